"""An answer that grows on the screen ends up as the one that is shown whole."""

import io
import re
from dataclasses import fields

import pytest
from rich.console import Console

from gateway.agent.models.practice import long_answer
from gateway.cli.terminal.conversation import RunOutcome
from gateway.cli.terminal.screen import Screen
from gateway.runs.live import LiveEvent
from sessions.keys import Address, ChatKind
from sessions.records import Ask, AskKind
from tests.unit.gateway.scenes import a_run

LONG = "A paragraph with **bold words** and `some * code` that goes on for quite a while. " * 6


def shown(text: str, *, piece: int) -> str:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=40, force_terminal=True, highlight=False))
    for at in range(0, len(text), piece):
        screen.on_event(LiveEvent("run", "token", text[at : at + piece]))
    screen.on_event(LiveEvent("run", "said"))
    return re.sub(r"id=\d+", "id=", out.getvalue())  # rich numbers links at random


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f"{LONG}\n\n- one {LONG}\n- two\n\n{LONG}",
        f"> {LONG}\n\n1. {LONG}",
        f"{LONG} and *this {LONG} is* all, with [a link {LONG}](https://example.org) {LONG}",
        f"A word of {'x' * 90} is cut. {LONG}",
        "First line\nsecond line\n```python\ndef f():\n\n    return 1\n```\nand [more](https://example.org).\n\n- one\n  ```\n  a\n  ```",
        f"```\n{LONG}\n\n{LONG}\n",
        long_answer(),
    ],
)
def test_pieces_make_the_same_screen_as_the_whole(text: str):
    assert shown(text, piece=3) == shown(text, piece=len(text))


def test_a_long_paragraph_is_not_waited_for():
    out = io.StringIO()
    screen = Screen(Console(file=out, width=40, highlight=False))
    for word in re.findall(r"\S+ ", LONG):
        screen.on_event(LiveEvent("run", "token", word))
    assert out.getvalue().count("\n") >= 5


def plain(text: str, *, width: int = 40) -> list[str]:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=width, highlight=False))
    screen.on_event(LiveEvent("run", "token", text))
    screen.flush()
    return out.getvalue().split("\n")


def test_a_link_shows_its_address_as_text():
    assert plain("[the docs](https://example.org/a)")[0] == "the docs (https://example.org/a)"
    for same in ("<https://example.org/a>", "[example.org/a](https://example.org/a)"):
        assert plain(same)[0] == "https://example.org/a"
    assert "\x1b]8" not in shown("[the docs](https://example.org/a)", piece=99)


def test_line_breaks_stay():
    assert plain("Roses are red\nviolets are blue")[:2] == ["Roses are red", "violets are blue"]


def test_code_is_shown_as_it_would_be_copied():
    code = ["def f():", "", "    return 'a line that is longer than the window is wide'  # kept whole"]
    for text in (
        "\n".join(["```python", *code, "```"]),
        "\n".join(["1. so:", "", "   ```", *(f"   {c}" for c in code)]),
    ):
        assert [line for line in plain(text) if line and "so:" not in line] == [code[0], code[2]]


def test_text_that_is_not_yet_a_line_is_previewed():
    console = Console(file=io.StringIO(), width=40, height=20, highlight=False)
    screen = Screen(console)
    for piece in ("one, ", "two", "\n\nthree"):
        screen.on_event(LiveEvent("run", "token", piece))
        with console.capture() as preview:
            console.print(screen.preview(), end="")
        assert preview.get().strip() == {"one, ": "one,", "two": "one, two", "\n\nthree": "three"}[piece]


def test_the_preview_of_a_long_answer_fits_the_window():
    console = Console(file=io.StringIO(), width=40, height=20, highlight=False)
    screen = Screen(console)
    for number in range(3000):
        screen.on_event(LiveEvent("run", "token", f"- item {number}\n"))
        if number % 50 == 0:
            assert len(list(screen.preview().lines)) < 20


def test_an_approval_shows_the_very_command():
    out = io.StringIO()
    command = "process: echo *a* `x` <!-- ; rm -rf ~ --> __b__"
    known = dict.fromkeys(field.name for field in fields(Ask)) | {"options": (), "question": command}
    ask = Ask(**{**known, "kind": AskKind.APPROVAL})
    run = a_run(Address(platform="cli", kind=ChatKind.DM, chat_id="1"))
    Screen(Console(file=out, width=80, highlight=False)).show_outcome(RunOutcome(run=run, ask=ask))
    assert command in out.getvalue()


@pytest.mark.parametrize("piece", [1, 1000])
def test_what_a_model_writes_does_not_drive_the_terminal(piece: int):
    written = shown(
        "tea \x1b]52;c;cm0gLXJm\x07 `\x1b[2J` [\x9b2J](https://example.org)\n\n```\n\x1b[2J\n```\n", piece=piece
    )
    assert not any(sign in written for sign in ("\x1b]52", "\x1b[2J", "\x07", "\x9b"))
