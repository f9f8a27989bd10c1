"""What is written is true: pages that are made from the code, links, commands, metrics, pictures."""

import json
import re
import shlex
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gateway.api.http.server import ENDPOINTS
from gateway.cli.main import hermes
from gateway.observe.metrics import Metrics

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def tool(name: str) -> Any:
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = tool("generate")


@pytest.mark.parametrize("name", GENERATE.PAGES)
def test_the_reference_is_what_the_code_says(name: str):
    written = (ROOT / "docs" / "reference" / name).read_text()
    assert written == GENERATE.HEAD + GENERATE.PAGES[name](), "run make docs"


def test_every_setting_command_endpoint_metric_and_event_is_in_the_reference():
    pages = {name: (ROOT / "docs" / "reference" / name).read_text() for name in GENERATE.PAGES}
    assert all(f"`{endpoint.method} {endpoint.path}`" in pages["http.md"] for endpoint in ENDPOINTS)
    exposed = {family.name for family in Metrics().collect() if family.name.startswith("hermes_")}
    assert exposed <= {name.removesuffix("_total") for name in re.findall(r"`(hermes_\w+)`", pages["metrics.md"])}
    for event in (
        "message.accepted",
        "run.finished",
        "outbox.sent",
    ):  # the three lines of an answer, see how-to/monitoring.md
        assert f"`{event}`" in pages["log-events.md"]
    assert "`session_reset.idle_minutes`" in pages["configuration.md"]
    assert "## hermes sessions list" in pages["command-line.md"]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 900


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    text = page.read_text()
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def commands(text: str) -> set[str]:
    """Every `hermes …` of code blocks and of code in a line."""
    lines = re.findall(r"^    (?:\.venv/bin/)?(hermes[^#\n]*)", text, re.MULTILINE)
    lines += re.findall(r"`(?:\.venv/bin/)?(hermes [^`]+)`", text)
    return {line.strip() for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_exists(page: Path):
    for line in commands(page.read_text()):
        words = shlex.split(line.partition("|")[0].replace("…", ""))[1:]
        command: click.Command = hermes
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            names = words.pop(0).split("|")
            if not all(name.islower() for name in names):
                break
            found = [command.get_command(click.Context(command), name) for name in names]
            assert all(found), f"{page.name}: {line}"
            command = found[0]
        known = {
            name
            for each in command.params
            if isinstance(each, click.Option)
            for name in (*each.opts, *each.secondary_opts)
        }
        for word in words:
            if word.startswith("-") and word != "-":
                assert word.partition("=")[0] in known | {"--help", "--home"}, f"{page.name}: {line}"


def test_alerts_and_board_know_only_metrics_that_exist_and_lead_to_the_runbook():
    exposed = set(re.findall(r"`(hermes_\w+)`", (ROOT / "docs/reference/metrics.md").read_text()))
    series = exposed | {f"{name}{end}" for name in exposed for end in ("_count", "_sum", "_bucket")}
    rules = [
        rule
        for group in yaml.safe_load((ROOT / "docs/monitoring/alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    assert len(rules) == 6
    runbook = anchors(ROOT / "docs/runbook.md")
    for rule in rules:
        assert set(re.findall(r"hermes_\w+", rule["expr"])) <= series, rule["alert"]
        assert rule["annotations"]["runbook"].partition("#")[2] in runbook
    board = json.loads((ROOT / "docs/monitoring/grafana.json").read_text())
    shown = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"hermes_\w+", target["expr"])
    }
    assert shown <= series
    assert len(shown) >= 12


def test_every_page_is_in_the_index_and_every_picture_is_shown():
    index = (ROOT / "docs/README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        path = str(page.relative_to(ROOT / "docs"))
        assert f"({path})" in index or path == "README.md", f"docs/README.md leads nowhere to {path}"
    shown = "".join(page.read_text() for page in PAGES)
    for picture in (ROOT / "docs/pictures").iterdir():
        assert f"pictures/{picture.name}" in shown, f"no page shows {picture.name}"


def test_every_promise_has_its_tests():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/promises.md").read_text()))
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not {name for name in named if f"def {name}(" not in written}
    assert len(named) > 30


def test_the_pictures_say_what_the_program_says():
    pictures = tool("pictures")
    for name, svg in pictures.draw().items():
        committed = (ROOT / "docs" / "pictures" / name).read_text()
        assert pictures.words_of(svg) == pictures.words_of(committed), f"{name}: run make pictures"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_snippet_can_be_read(page: Path):
    for language, code in re.findall(r"^ *```(\w+)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
        match language:
            case "python":
                compile(code, page.name, "exec")
            case "yaml":
                assert yaml.safe_load(code)
            case "json":
                json.loads(code)
            case _:
                pass
