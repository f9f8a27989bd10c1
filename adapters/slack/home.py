"""The bot's own page in Slack (App Home): what it is, who may use it, the last conversations, the questions that wait."""

from collections.abc import Sequence
from typing import Any

from adapters.base import HomePage
from adapters.slack.render import NOTICE, button_element, plain
from adapters.text.markdown import parse
from sessions.messages import Button

_TITLE = 150


SAYS = "say:"
"""What the data of a button begins with that says the rest of it in its person's name."""


def view(page: HomePage, prompts: Sequence[str] = ()) -> dict[str, Any]:
    """`prompts`: what people may ask, for those who may ask at all."""
    blocks: list[dict[str, Any]] = [_section(page.about), _context(page.access)]
    if prompts and page.may_talk:
        suggestions = [Button(label=prompt, data=f"{SAYS}{prompt}") for prompt in prompts]
        blocks.append({"type": "actions", "elements": [button_element(each, n) for n, each in enumerate(suggestions)]})
    if page.questions:
        blocks.append(_header("Waiting for you"))
    for question, buttons in page.questions:
        blocks.append(_section(plain(parse(question))))
        if buttons:
            elements = [button_element(button, number) for number, button in enumerate(buttons)]
            blocks.append({"type": "actions", "elements": elements})
    if page.sessions:
        blocks.append(_header("Earlier conversations"))
    for number, (title, when, command) in enumerate(page.sessions):
        goes_on = button_element(Button(label="Continue", data=command), number)
        blocks.append({**_section(f"*{_escaped(title)}*\n{_escaped(when)}"), "accessory": goes_on})
    return {"type": "home", "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:NOTICE] or " "}}


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text[:NOTICE] or " "}]}


def _header(text: str) -> dict[str, Any]:
    return {"type": "header", "text": {"type": "plain_text", "text": text[:_TITLE]}}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("*", "∗")
