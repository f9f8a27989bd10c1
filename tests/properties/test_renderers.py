"""What must hold for every text, on every platform: within its limits, no letter lost, nothing formatted that was not meant so."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.discord.render import NOTATION as DISCORD_NOTATION
from adapters.discord.render import render as discord
from adapters.slack.render import NOTATION as SLACK_NOTATION
from adapters.slack.render import render as slack
from adapters.telegram.render import render as telegram
from adapters.testing.discord_rules import message_problems
from adapters.testing.slack_rules import problems as slack_problems
from adapters.testing.whatsapp_rules import problems as whatsapp_problems
from adapters.text.blocks import Span, Style, plain_text
from adapters.text.lines import Notation, escape_markdown, inline
from adapters.text.markdown import parse
from adapters.whatsapp.render import render as whatsapp
from sessions.keys import Address, ChatKind
from sessions.messages import Outbound
from tests.fakes.telegram_rules import text_problems
from tests.properties.test_text import ANYTHING, MARKDOWN


def outbound(text: str) -> Outbound:
    return Outbound(address=Address(platform="x", kind=ChatKind.DM, chat_id="1"), text=text)


def discord_texts(text: str) -> list[str]:
    calls = [call for call in discord(outbound(text)) if "filename" not in call]
    for call in calls:
        body = {"content": call["content"], "allowed_mentions": {"parse": []}}
        found = [problem for problem in message_problems(body) if "fence" not in problem]
        assert found == []
    return [call["content"] for call in calls]


def slack_texts(text: str) -> list[str]:
    calls = [call for call in slack(outbound(text)) if "filename" not in call]
    for call in calls:
        assert slack_problems("chat.postMessage", {"channel": "C1", **call}) == []
        assert "<!" not in call["blocks"][0]["text"]
        assert "<@" not in call["blocks"][0]["text"]
    return [call["blocks"][0]["text"] for call in calls]


def whatsapp_texts(text: str) -> list[str]:
    calls = [call for call in whatsapp(outbound(text)) if "filename" not in call]
    for call in calls:
        assert (
            whatsapp_problems({"messaging_product": "whatsapp", "recipient_type": "individual", "to": "1", **call})
            == []
        )
    return [call["text"]["body"] for call in calls]


def telegram_texts(text: str) -> list[str]:
    calls = [call for call in telegram(outbound(text)) if "filename" not in call]
    for call in calls:
        assert text_problems(call["text"], call["entities"], 4096) == []
    return [call["text"] for call in calls]


TEXTS: dict[str, Callable[[str], list[str]]] = {
    "telegram": telegram_texts,
    "discord": discord_texts,
    "slack": slack_texts,
    "whatsapp": whatsapp_texts,
}


@pytest.mark.parametrize("name", TEXTS)
@settings(max_examples=60, deadline=None)
@given(text=ANYTHING)
@example(text="x" * 5000)
@example(text="> " * 12 + "deep")
@example(text="<!channel> <@U1> ```\n<!here>\n```")
def test_every_piece_keeps_the_platforms_rules(name: str, text: str) -> None:
    TEXTS[name](text)


@pytest.mark.parametrize("name", TEXTS)
@settings(max_examples=60, deadline=None)
@given(text=st.one_of(MARKDOWN, MARKDOWN.map(lambda text: text * 20)))
def test_no_letter_is_lost(name: str, text: str) -> None:
    marked = text.replace("word", "wQrd")
    shown = TEXTS[name](marked)
    whole = "".join(plain_text(block) for block in parse(marked))
    if not any("filename" in call for call in _calls(name, marked)):
        assert "".join(shown).count("Q") >= whole.count("Q")


def _calls(name: str, text: str) -> list[Any]:
    return list({"telegram": telegram, "discord": discord, "slack": slack, "whatsapp": whatsapp}[name](outbound(text)))


PLAIN = st.text(st.sampled_from(list("ab *_`~[]()!#-+|\\&1.:>é😀")), min_size=1, max_size=60).map(
    lambda text: re.sub(r"\s+", " ", text).strip()
)


@settings(max_examples=300, deadline=None)
@given(text=PLAIN)
@example(text="2 * 3 * 4")
@example(text="snake_case_name _a_ __b__")
@example(text="1. no list")
@example(text="# no heading")
def test_plain_words_come_through_as_they_are(text: str) -> None:
    shown = " ".join(plain_text(block) for block in parse(escape_markdown(text)))
    assert shown.split() == text.split()


@pytest.mark.parametrize("notation", [DISCORD_NOTATION, SLACK_NOTATION])
@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from(["one", "two*", "thr_ee", "[x]", "`"]), min_size=3, max_size=8), data=st.data())
def test_marked_words_are_marked_again_when_parsed(notation: Notation, words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    at = data.draw(st.integers(0, len(words) - 1))
    start = len(" ".join(words[:at])) + (1 if at else 0)
    span = Span(start, start + len(words[at]), data.draw(st.sampled_from([Style.BOLD, Style.ITALIC])))
    written = inline(text, (span,), notation)
    (block,) = parse(written)
    assert plain_text(block) == text
    assert any(found[:3] == span[:3] for found in block.spans)  # type: ignore[attr-defined]
