"""One name, one class: whoever searches for a class finds one."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("sessions", "adapters", "gateway", "bench", "docs", "tests")


def classes() -> dict[str, list[str]]:
    """Where each class is, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_no_two_classes_have_one_name():
    assert {name: places for name, places in classes().items() if len(places) > 1} == {}
