"""The catalogue of what the gateway says: complete, used, and in its style."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import gateway
from gateway import texts
from gateway.texts import format_duration, format_short_time, needed, say
from gateway.texts.quoting import as_code

ROOT = Path(gateway.__file__).parent
CATALOGUE: dict[str, dict[str, str]] = tomllib.loads((Path(texts.__file__).parent / "en.toml").read_text())
TEXTS = {f"{section}.{key}": text for section, entries in CATALOGUE.items() for key, text in entries.items()}

FOR_LATER = {
    "budget.day",
    "budget.day_owner",
    "status.waiting",
    "ask.changed",
}
"""Texts for resets, jobs, budgets and the like, whose parts follow."""


def calls() -> list[tuple[str, ast.Call]]:
    return [
        (f"{file.relative_to(ROOT)}:{node.lineno}", node)
        for file in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say" and node.args
    ]


def names(node: ast.expr) -> list[str]:
    """The text's name, or both of `a if … else b`; for an f-string, all that begin like it."""
    match node:
        case ast.Constant(str(name)):
            return [name]
        case ast.IfExp(body=one, orelse=other):
            return [*names(one), *names(other)]
        case ast.JoinedStr(values=[ast.Constant(str(start)), *_]):
            return [name for name in TEXTS if name.startswith(start)]
        case _:
            return []


@pytest.mark.parametrize(("where", "call"), [pytest.param(where, call, id=where) for where, call in calls()])
def test_every_text_gets_the_values_it_needs(where: str, call: ast.Call):
    given = {keyword.arg for keyword in call.keywords} - {"language"}
    for name in names(call.args[0]):
        assert name in TEXTS, f"{where}: there is no text {name}"
        if not isinstance(call.args[0], ast.JoinedStr) and None not in given:
            assert needed(name) == given, f"{where}: {name}"


def test_nothing_in_the_catalogue_is_unused():
    said = {
        node.value
        for file in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    begun = {name for _, call in calls() for name in names(call.args[0])}
    assert set(TEXTS) - said - begun == FOR_LATER


@pytest.mark.parametrize("name", TEXTS)
def test_the_style_of_every_text(name: str):
    text = re.sub(r"\{\w+\}", "", TEXTS[name])
    assert "!" not in text
    assert not re.search(r"[\U0001F000-\U0001FAFF\u2600-\u27BF]", text)
    # What somebody has used, and may use, is counted in tokens: there is no other word for them.
    is_counted = name in {"status.usage", "status.usage_today", "limits.day_tokens"}
    assert not re.search(r"\b(session key|token|gateway|context)s?\b", text) or is_counted


def test_a_missing_value_is_a_bug():
    with pytest.raises(KeyError):
        say("session.titled")
    with pytest.raises(KeyError):
        say("no.such")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h"),
        (11_400, "3 h 10 min"),
        (200_000, "2 days"),
    ],
)
def test_spans(seconds: float, told: str):
    assert format_duration(seconds) == told


def test_times_are_short_when_they_are_near():
    now = 1_750_000_000_000  # 15 June 2025, 15:06 UTC
    day = 86_400_000
    assert format_short_time(now, now, "UTC") == "15:06"
    assert format_short_time(now - 2 * day, now, "Europe/Oslo") == "13 Jun 17:06"
    assert format_short_time(now - 300 * day, now, "UTC") == "19 Aug 2024"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("echo *a* <!-- b -->", "`echo *a* <!-- b -->`"),
        ("sleep 60\n# next", "`sleep 60 # next`"),
        ("echo `date` ``", "``` echo `date` `` ```"),
        ("a\u202eb\x1b\u2800", "`a\\u{202e}b\\u{1b}\\u{2800}`"),
        ("x" * 300, f"`{'x' * 200}…`"),
    ],
)
def test_a_command_is_shown_as_it_is_in_one_line(text: str, shown: str):
    assert as_code(text) == shown
