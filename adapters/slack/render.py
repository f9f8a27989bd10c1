"""Renders Markdown for Slack: a `markdown` block, with plain text beside it for notifications; and the bot's own page."""

import re
from collections.abc import Sequence
from typing import Any

from adapters.base import HomePage
from adapters.slack.app_manifest import COMMAND, COMMANDS
from adapters.text import end_of_draft
from adapters.text.blocks import Block, Style, plain_text
from adapters.text.lines import LineLayout, Notation, escape_markdown
from adapters.text.markdown import parse
from adapters.text.split import Size, split, split_or_file
from sessions.messages import AttachmentKind, Button, Outbound, Piece

MESSAGE = Size(12_000)
NOTICE = 3_000
"""Characters of the plain text beside the block: what a notification shows, and old clients."""
LABEL = 75
_NOBODY = "\u2060"
"""A joiner without width between `<` and `!`: then Slack pings nobody."""


_OURS = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"  # code stays as it is
    rf"|(?<![\w/.:@-])(?<!hermes )/(?P<name>{'|'.join(sorted(COMMANDS))})(?=$|[\s,;:!?)”\"'|]|\.(?:\s|$))",
    re.DOTALL | re.MULTILINE,
)
_PING = re.compile(
    r"(<|&(?:lt|#0*60|#x0*3c);)(?=\\?[!@#]|&(?:excl|commat|num|#0*(?:33|64|35)|#x0*(?:21|40|23));)", re.IGNORECASE
)
"""What begins a mention, however it is spelt: Slack resolves entities and backslashes before it looks for mentions."""


def without_pings(text: str) -> str:
    """Escapes `<!channel>` and `<@U…>`, so that nobody is notified. For text that goes out, as parsing makes mentions of other texts."""
    return _PING.sub(rf"\1{_NOBODY}", text)


def with_slacks_commands(text: str, bot: str, *, in_thread: bool) -> str:
    """Writes commands as people have to give them: Slack's clients send no `/new`, and in threads not even `/hermes new`."""
    instead = rf"@{bot} /\g<name>" if in_thread else rf"{COMMAND} \g<name>"
    return _OURS.sub(lambda found: found.expand(instead) if found["name"] else found[0], text)


def _escape(text: str) -> str:
    return escape_markdown(text).replace("\\<", "<")


def _link(words: str, url: str) -> str:
    return url if words == url else f"[{words}]({url.replace(')', '%29').replace(' ', '%20')})"


NOTATION = Notation(
    marks={Style.BOLD: ("**", "**"), Style.ITALIC: ("*", "*"), Style.STRIKE: ("~~", "~~"), Style.CODE: ("`", "`")},
    escape=_escape,
    link=_link,
    headings=("#", "##", "###"),
    indent=4,
    rule="---",
)


def render(outbound: Outbound) -> list[Piece]:
    if not outbound.attachments or outbound.buttons:
        return _texts(outbound)
    files: list[Piece] = [{"filename": file.name, "path": file.path} for file in outbound.attachments]
    comment = outbound.text.strip()
    if not comment or len(comment) > NOTICE:
        is_spoken = any(file.kind is AttachmentKind.VOICE for file in outbound.attachments)
        return [*files, *_texts(outbound)] if is_spoken else [*_texts(outbound), *files]
    return [{**files[0], "comment": plain(parse(comment))}, *files[1:]]  # a short text is the comment of the first file


def _texts(outbound: Outbound) -> list[Piece]:
    layout = LineLayout(NOTATION)
    blocks = parse(outbound.text) if outbound.text.strip() else ()
    pieces, as_file = split_or_file(blocks, MESSAGE, layout.measure)
    calls = [_message(piece, layout) for piece in pieces]
    calls = [call for call in calls if call["text"].strip()]
    if outbound.buttons and calls:
        calls[-1]["blocks"].append(_buttons(outbound.buttons))
    if outbound.respond_to:
        calls = [{**call, "respond_to": outbound.respond_to} for call in calls]
    if as_file:
        calls.append({"filename": "answer.md", "content": outbound.text})
    return list(calls)


def render_draft(markdown: str) -> dict[str, Any]:
    """Renders the end of a growing answer, as much as fits into one message."""
    layout = LineLayout(NOTATION)
    *_, last = split(parse(end_of_draft(markdown)), MESSAGE, layout.measure) if markdown.strip() else [()]
    return _message(last, layout)


def _message(blocks: Sequence[Block], layout: LineLayout) -> dict[str, Any]:
    return {"text": plain(blocks), "blocks": [{"type": "markdown", "text": without_pings(layout.compose(blocks))}]}


def plain(blocks: Sequence[Block]) -> str:
    """Returns the text without formatting, with the three characters escaped that Slack wants escaped."""
    text = "\n".join(f"{block.marker} {plain_text(block)}".strip() for block in blocks)[:NOTICE]
    return without_pings(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _buttons(buttons: Sequence[Button]) -> dict[str, Any]:
    elements = [button_element(button, number) for number, button in enumerate(buttons)]
    return {"type": "actions", "elements": elements}


def button_element(button: Button, number: int) -> dict[str, Any]:
    label = button.label if len(button.label) <= LABEL else f"{button.label[: LABEL - 1]}…"
    return {
        "type": "button",
        "text": {"type": "plain_text", "text": label},
        "value": button.data,
        "action_id": f"hermes:{number}:{button.data}"[:255],
    }


# --- the bot's own page (App Home): what it is, who may use it, the last conversations, the questions that wait ---

_TITLE = 150
SAYS = "say:"
"""What the data of a button begins with that says the rest of it in its person's name."""


def view(page: HomePage, prompts: Sequence[str] = ()) -> dict[str, Any]:
    """`prompts`: what people may ask, for those who may ask at all."""
    access = {"type": "context", "elements": [{"type": "mrkdwn", "text": page.access[:NOTICE] or " "}]}
    blocks: list[dict[str, Any]] = [_section(page.about), access]
    if prompts and page.may_talk:
        blocks.append(_buttons([Button(label=prompt, data=f"{SAYS}{prompt}") for prompt in prompts]))
    if page.questions:
        blocks.append(_header("Waiting for you"))
    for question, buttons in page.questions:
        blocks.append(_section(plain(parse(question))))
        if buttons:
            blocks.append(_buttons(buttons))
    if page.sessions:
        blocks.append(_header("Earlier conversations"))
    for number, (title, when, command) in enumerate(page.sessions):
        goes_on = button_element(Button(label="Continue", data=command), number)
        blocks.append({**_section(f"*{_escaped(title)}*\n{_escaped(when)}"), "accessory": goes_on})
    return {"type": "home", "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:NOTICE] or " "}}


def _header(text: str) -> dict[str, Any]:
    return {"type": "header", "text": {"type": "plain_text", "text": text[:_TITLE]}}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("*", "∗")
