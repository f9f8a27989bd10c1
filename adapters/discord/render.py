"""Renders Markdown for Discord: its own Markdown, in messages of 2,000 characters, each with its fences closed."""

from itertools import islice
from typing import Any

from adapters.text import end_of_draft
from adapters.text.blocks import Style
from adapters.text.lines import LineLayout, Notation, escape_markdown
from adapters.text.markdown import parse
from adapters.text.split import Size, split, split_or_file
from sessions.messages import AttachmentKind, Button, Outbound, Piece

MESSAGE = Size(2_000)
LABEL = 80
_IN_A_ROW = 5
NO_EMBEDS, _NO_NOTIFICATION = 1 << 2, 1 << 12  # the flags SUPPRESS_EMBEDS and SUPPRESS_NOTIFICATIONS


def _link(words: str, url: str) -> str:
    """Discord opens web addresses only."""
    if not url.lower().startswith("http"):
        address = url.removeprefix("mailto:")
        return words if words == escape_markdown(address) else f"{words} ({escape_markdown(address)})"
    return url if words == url else f"[{words}]({url.replace(')', '%29').replace(' ', '%20')})"


NOTATION = Notation(
    marks={Style.BOLD: ("**", "**"), Style.ITALIC: ("*", "*"), Style.STRIKE: ("~~", "~~"), Style.CODE: ("`", "`")},
    escape=escape_markdown,
    link=_link,
    headings=("#", "##", "###"),
)


def render(outbound: Outbound) -> list[Piece]:
    layout = LineLayout(NOTATION)
    blocks = parse(outbound.text) if outbound.text.strip() else ()
    pieces, as_file = split_or_file(blocks, MESSAGE, layout.measure)
    calls: list[dict[str, Any]] = [{"content": words} for piece in pieces if (words := layout.compose(piece)).strip()]
    if as_file:
        calls.append({"filename": "answer.md", "text": outbound.text})
    if outbound.buttons and calls:
        # Their data is all that is needed to understand a tap, so that buttons work after a restart.
        keys = iter(_key(button) for button in outbound.buttons)
        rows: list[dict[str, Any]] = []
        while row := list(islice(keys, _IN_A_ROW)):
            rows.append({"type": 1, "components": row})
        calls[-1]["components"] = rows
    files = [{"filename": attachment.name, "path": attachment.path} for attachment in outbound.attachments]
    if files and len(calls) == 1 and "filename" not in calls[0]:
        calls, files = [{**calls[0], **files[0]}], files[1:]
    is_spoken = any(file.kind is AttachmentKind.VOICE for file in outbound.attachments)
    calls = [*files, *calls] if is_spoken else [*calls, *files]
    for number, call in enumerate(calls):
        call["flags"] = NO_EMBEDS | (_NO_NOTIFICATION if number or outbound.silent else 0)
        if outbound.respond_to:
            call["respond_to"] = outbound.respond_to
            call["first"] = not number
    if calls:
        calls[0] |= reply(outbound.reply_to)
    return list(calls)


def reply(reply_to: str | None) -> dict[str, Any]:
    """Returns the reference that quotes the question. If that was deleted meanwhile, the answer is sent without the quote."""
    return {"message_reference": {"message_id": reply_to, "fail_if_not_exists": False}} if reply_to else {}


def render_draft(markdown: str, *, silent: bool) -> dict[str, Any]:
    """Renders the end of a growing answer, as much as fits into one message, in small print."""
    layout = LineLayout(NOTATION)
    *_, last = split(parse(end_of_draft(markdown)), MESSAGE, layout.measure) if markdown.strip() else [()]
    words = layout.compose(last)
    return {"content": f"-# {words.strip('*')}" if silent else words, "flags": NO_EMBEDS}


def _key(button: Button) -> dict[str, Any]:
    label = button.label if len(button.label) <= LABEL else f"{button.label[: LABEL - 1]}…"
    return {"type": 2, "style": 2, "label": label, "custom_id": button.data}
