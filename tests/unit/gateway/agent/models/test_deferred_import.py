"""Packages that run when they are asked for a name, as others see them."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from gateway.agent.models.deferred_import import import_deferring

TYPES = """
import sys, time
sys.ran_types = getattr(sys, "ran_types", 0) + 1
time.sleep(0.02)
from .shape import Shape
from . import shape
__all__ = ["Shape"]
"""


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package with one below it, whose `__init__` counts how often it runs. Gives it, imported without that."""
    types = tmp_path / "big_package" / "types"
    types.mkdir(parents=True)
    (types.parent / "__init__.py").write_text("from . import types\nfrom .types.plain import NUMBER\n")
    (types / "__init__.py").write_text(TYPES)
    (types / "plain.py").write_text("NUMBER = 7\n")
    (types / "shape.py").write_text("import big_package.types\nclass Shape: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "ran_types", 0, raising=False)
    yield import_deferring("big_package", below="big_package.types")
    for name in [name for name in sys.modules if name.startswith("big_package")]:
        del sys.modules[name]


def test_a_package_below_runs_with_the_first_name_that_is_asked_for(big) -> None:
    assert big.NUMBER == 7  # from a module inside it
    assert sys.ran_types == 0
    assert big.types.Shape.__name__ == "Shape"
    assert import_module("big_package.types").__all__ == ["Shape"]
    assert sys.ran_types == 1


def test_it_runs_once_for_many_threads_and_each_finds_the_name(big) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: big.types.Shape, range(8)))
    assert len(found) == sys.ran_types == 1


def test_a_name_that_is_not_there_is_missed_as_ever(big) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Circle'"):
        _ = big.types.Circle
    with pytest.raises(ImportError, match="cannot import name 'Circle'"):
        exec("from big_package.types import Circle")


def test_the_shapes_of_openai_are_loaded_only_for_those_who_want_them() -> None:
    code = """
import sys
from gateway.agent.models import endpoint
endpoint._import_library()
assert not [name for name in sys.modules if name.startswith("openai.types.responses.response")]
from openai.types.responses import Response
import openai
print(Response.__name__, openai.types.responses.Response is Response, openai.types.Model.__name__)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "Response True Model\n"
