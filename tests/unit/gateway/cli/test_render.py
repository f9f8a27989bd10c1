"""How stored sessions look as text."""

import sys

import pytest

from gateway.cli.render import Progress, snippet, titled_table, when
from gateway.texts import clean, one_line
from sessions import store
from sessions.db import Database
from sessions.keys import SessionKey
from sessions.records import Source


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("short and whole", "whole", "short and whole"),
        ("two\n\n  lines", "lines", "two lines"),
        ("a " * 60 + "needle" + " b" * 10, "needle", "…" + "a " * 24 + "needle" + " b" * 10),
        ("needle" + " b" * 100, "needle", "needle" + " b" * 77 + "…"),
        (
            "x " * 60 + "commons" + " x" * 10 + " command",
            "command",
            "…" + "x " * 10 + "commons" + " x" * 10 + " command",
        ),
        ("x " * 60 + "running", "runners", "…" + "x " * 24 + "running"),
        ("あ" * 80 + "桜が咲く", "桜", "…" + "あ" * 50 + "桜が咲く"),
        ("found by its neighbours", "somewhere", "found by its neighbours"),
        ("any", "?!", "any"),
    ],
)
def test_a_snippet_is_around_the_first_word_that_was_looked_for(text, query, shown):
    assert snippet(text, query) == shown


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x00", "\x7f", "\x9b", "\r", "\u202e", "\u2066"])
def test_what_could_drive_a_terminal_is_replaced(character):
    assert clean(f"a{character}b") == "a\ufffdb"


def test_lines_and_tabs_stay():
    assert clean("a\r\nb\tc\nd") == "a\nb\tc\nd"
    assert one_line("a\n b\tc  d") == "a b c d"
    assert one_line("abcdef", 4) == "abc…"


def test_times_are_utc_and_never_fail():
    assert when(1_741_166_123_000) == "2025-03-05 09:15"
    assert when(None) == "-"
    assert when(10**18) == "?"


class FakeTerminal:
    def __init__(self, *, watched: bool = True) -> None:
        self.text = ""
        self._watched = watched

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return self._watched


@pytest.mark.parametrize(("seconds", "watched", "shown"), [(0.9, True, False), (1.1, True, True), (1.1, False, False)])
def test_progress_is_told_after_a_second_where_somebody_looks(monkeypatch, seconds, watched, shown):
    terminal, now = FakeTerminal(watched=watched), [0.0]
    monkeypatch.setattr(sys, "stderr", terminal)

    with Progress("Counting", clock=lambda: now[0]) as progress:
        now[0] = seconds
        progress(3, 1200)
        progress(4, 1200)  # at the same moment: once is enough

    assert terminal.text == ("\rCounting: 3 of 1,200\033[K\r\033[K" if shown else "")


@pytest.mark.parametrize("width", [80, 120])
def test_a_list_on_a_terminal_names_titles_and_does_not_wrap(sqlite: Database, width: int) -> None:
    key = SessionKey.parse("agent:main:telegram:dm")
    session = sqlite.write_now(store.start, key, 1, source=Source.TELEGRAM)
    lines = titled_table([(session, "About the garden " * 9)], width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert "About the garden" in lines[2]
    assert lines[2].startswith(session.id)
