"""An answer that grows on the screen ends up as the one that is shown whole."""

import io
import re

import pytest
from rich.console import Console

from gateway.agent.models.practice_tricks import long_answer
from gateway.cli.terminal import Screen
from gateway.runs.live_events import LiveEvent

LONG = "A paragraph with **bold words** and `some * code` that goes on for quite a while. " * 6


def shown(text: str, *, piece: int) -> str:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=40, force_terminal=True, highlight=False))
    for at in range(0, len(text), piece):
        screen.hear(LiveEvent("run", "token", text[at : at + piece]))
    screen.hear(LiveEvent("run", "said"))
    return re.sub(r"id=\d+", "id=", out.getvalue())  # rich numbers links at random


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f"{LONG}\n\n- one {LONG}\n- two\n\n{LONG}",
        f"> {LONG}\n\n1. {LONG}",
        f"{LONG} and *this {LONG} is* all, with [a link {LONG}](https://example.org) {LONG}",
        f"A word of {'x' * 90} is cut. {LONG}",
        long_answer(),
    ],
)
def test_pieces_make_the_same_screen_as_the_whole(text: str):
    assert shown(text, piece=3) == shown(text, piece=len(text))


def test_a_long_paragraph_is_not_waited_for():
    out = io.StringIO()
    screen = Screen(Console(file=out, width=40, highlight=False))
    for word in re.findall(r"\S+ ", LONG):
        screen.hear(LiveEvent("run", "token", word))
    assert out.getvalue().count("\n") >= 5
