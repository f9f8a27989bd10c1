"""Four renderers from one parse. The files in tests/golden/renderers were looked at by a person; a change shows there."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from adapters.discord.render import render as discord
from adapters.discord.render import render_draft as discord_draft
from adapters.slack.render import render as slack
from adapters.slack.render import render_draft as slack_draft
from adapters.telegram.render import render as telegram
from adapters.telegram.render import render_draft as telegram_draft
from adapters.whatsapp.render import render as whatsapp
from gateway.texts import say
from sessions.keys import Address, ChatKind
from sessions.messages import Attachment, AttachmentKind, Button, Outbound

GOLDEN = Path(__file__).parents[3] / "golden"
ANSWER = (GOLDEN / "answer.md").read_text()
RENDERERS: dict[str, Callable[[Outbound], Sequence[Any]]] = {
    "telegram": telegram,
    "discord": discord,
    "slack": slack,
    "whatsapp": whatsapp,
}


def outbound(text: str = "", **more: Any) -> Outbound:
    return Outbound(address=Address(platform="x", kind=ChatKind.DM, chat_id="1"), text=text, **more)


@pytest.mark.parametrize("name", RENDERERS)
def test_an_answer_as_it_goes_out(name: str) -> None:
    calls = RENDERERS[name](outbound(ANSWER))
    assert json.loads((GOLDEN / "renderers" / f"{name}.json").read_text()) == list(calls)


@pytest.mark.parametrize("name", ["discord", "slack", "whatsapp"])
def test_the_same_as_people_read_it(name: str) -> None:
    (call,) = RENDERERS[name](outbound(ANSWER))
    shown = {
        "discord": lambda: call["content"],
        "slack": lambda: call["blocks"][0]["text"],
        "whatsapp": lambda: call["text"]["body"],
    }
    assert (GOLDEN / "renderers" / f"{name}.txt").read_text() == shown[name]() + "\n"


@pytest.mark.parametrize("name", RENDERERS)
def test_the_number_of_a_note_is_its_own_on_every_platform(name: str) -> None:
    notes = [say("memory.line", number=number, text="Likes tea", since="said here") for number in (2, 5, 8)]
    (call,) = RENDERERS[name](outbound("\n".join(notes)))
    assert "#2 Likes tea (said here)\n#5 Likes tea (said here)\n#8 Likes tea" in "\n".join(_texts(call))


@pytest.mark.parametrize("draft", [telegram_draft, slack_draft, lambda text: discord_draft(text, silent=False)])
def test_of_a_huge_draft_only_its_end_is_rendered(draft: Callable[[str], Any]) -> None:
    began = time.process_time()
    shown = json.dumps(draft("```python\n" + "x = 1\n" * 200_000))
    assert time.process_time() - began < 0.5
    assert "x = 1" in shown
    assert "python" not in shown
    prose = json.dumps(draft("A **bold** word.\n\n" * 60_000 + "The end."))
    assert "The end." in prose


def _texts(found: Any) -> list[str]:
    if isinstance(found, str):
        return [found]
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return [text for each in inner for text in _texts(each)]


BUTTONS = (Button(label="Approve", data="a:1:y"), Button(label="Deny", data="a:1:n"))


@pytest.mark.parametrize("name", RENDERERS)
def test_buttons_are_below_the_last_piece(name: str) -> None:
    calls = RENDERERS[name](outbound("May I?\n\n" + "words " * 500, buttons=BUTTONS))
    found = [json.dumps(call) for call in calls]
    assert [("a:1:y" in call) for call in found] == [False] * (len(found) - 1) + [True]


def test_whatsapp_lists_what_has_no_button_and_shortens_what_is_long() -> None:
    many = tuple(Button(label=f"Choice {n}", data=f"a:1:{n}") for n in range(5))
    (call,) = whatsapp(outbound("Which?", buttons=many))
    assert call["type"] == "text"
    assert "- Choice 4" in call["text"]["body"]
    long = (
        Button(label="The very first of two choices", data="a:1:0"),
        Button(label="The very first of two cheeses", data="a:1:1"),
    )
    (call,) = whatsapp(outbound("Which?", buttons=long))
    titles = [button["reply"]["title"] for button in call["interactive"]["action"]["buttons"]]
    assert len(set(titles)) == 2
    assert all(len(title) <= 20 for title in titles)
    assert "The very first of two cheeses" in call["interactive"]["body"]["text"]


@pytest.mark.parametrize("name", RENDERERS)
def test_from_the_sixth_piece_on_the_whole_goes_as_a_file(name: str) -> None:
    long = "\n\n".join(f"Paragraph {n}. " + "words " * 300 for n in range(60))
    calls = RENDERERS[name](outbound(long))
    assert len(calls) == 2
    assert calls[1]["filename"] == "answer.md"


@pytest.mark.parametrize("name", RENDERERS)
def test_a_file_goes_out_with_its_words(name: str) -> None:
    file = Attachment(kind=AttachmentKind.FILE, name="a.txt", mime="text/plain", size=3, path="/tmp/a.txt")
    (call,) = RENDERERS[name](outbound("Here *it* is.", attachments=(file,)))
    assert (call["filename"], call["path"]) == ("a.txt", "/tmp/a.txt")
    assert "it" in json.dumps(call)


@pytest.mark.parametrize("name", ["discord", "whatsapp"])
def test_the_first_piece_quotes_what_it_answers(name: str) -> None:
    first, *later = RENDERERS[name](outbound("x" * 5000, reply_to="77"))
    assert "77" in json.dumps(first)
    assert all("77" not in json.dumps(call) for call in later)


@pytest.mark.parametrize("name", ["discord", "slack"])
def test_code_stays_as_it_is_and_every_fence_is_closed(name: str) -> None:
    code = "\n".join(f"line {n}: *a* _b_ `c`" for n in range(600))
    calls = RENDERERS[name](outbound(f"Look:\n\n```python\n{code}\n```"))
    shown = [
        call["content"] if name == "discord" else call["blocks"][0]["text"] for call in calls if "filename" not in call
    ]
    assert all(text.count("```") % 2 == 0 for text in shown)
    assert "line 3: *a* _b_ `c`" in "".join(shown)
