"""Renders Markdown as calls of the Bot API: plain text with entities, within Telegram's limits."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from adapters.text import end_of_draft
from adapters.text.blocks import Block, Fence, Heading, Paragraph, Rule, Span, Style, Table
from adapters.text.lines import as_grid, as_records
from adapters.text.markdown import parse
from adapters.text.split import Size, split, split_or_file, utf16_length
from sessions.messages import Attachment, AttachmentKind, Button, Outbound, Piece

MESSAGE = Size(4096, 100)  # UTF-16 units and entities
CAPTION = Size(1024, 100)
BUTTON_BYTES = 64
_PHOTO_BYTES = 10_000_000
_ROW_OF_BUTTONS = 30  # characters of labels that fit beside each other

_SPAN_TYPES = {
    Style.BOLD: "bold",
    Style.ITALIC: "italic",
    Style.STRIKE: "strikethrough",
    Style.CODE: "code",
    Style.LINK: "text_link",
}
_ALONE = {Style.LINK, Style.CODE}

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")

Entity = dict[str, Any]
Mark = tuple[str, int, int, str]
"""An entity before it is written: its type, from where up to where in characters, and its URL or language."""
Marked = tuple[str, list[Mark]]


def render(outbound: Outbound) -> list[Piece]:
    blocks = parse(outbound.text)
    voice = [_file(file) for file in outbound.attachments if file.kind is AttachmentKind.VOICE]
    calls = _captioned(blocks, outbound.attachments) or [
        *voice,
        *_texts(blocks, outbound.text),
        *(_file(file) for file in outbound.attachments if file.kind is not AttachmentKind.VOICE),
    ]
    if not calls:
        return []
    calls[0] |= reply_parameters(outbound.reply_to)
    if outbound.buttons:
        calls[-1]["reply_markup"] = {"inline_keyboard": _keyboard(outbound.buttons)}
    for later, call in enumerate(calls):
        if outbound.silent or later:
            call["disable_notification"] = True
    return list(calls)


def reply_parameters(reply_to: str | None) -> dict[str, Any]:
    """Returns the parameters that quote the question. If that was deleted meanwhile, the answer is sent without the quote."""
    return {"reply_parameters": {"message_id": int(reply_to), "allow_sending_without_reply": True}} if reply_to else {}


def render_draft(markdown: str) -> Piece:
    """Renders the end of a growing answer, as much as fits into one message."""
    layout = Layout()
    *_, last = split(parse(end_of_draft(markdown)), MESSAGE, layout.measure) if markdown.strip() else [()]
    return _message(last, layout)


class Layout:
    """Renders each block once, however often it is measured."""

    def __init__(self) -> None:
        self._known: dict[
            int, tuple[Block, Marked, Size]
        ] = {}  # by id(); the block is kept beside, or its id could go to another one

    def _rendered(self, block: Block) -> tuple[Block, Marked, Size]:
        text, marks = _lay(block)
        size = Size(utf16_length(text) + 2, len(marks) + (block.quote > 0))
        found = self._known[id(block)] = (block, (text, marks), size)
        return found

    def of(self, block: Block) -> Marked:
        return (self._known.get(id(block)) or self._rendered(block))[1]

    def measure(self, block: Block) -> Size:
        return (self._known.get(id(block)) or self._rendered(block))[2]


def _texts(blocks: Sequence[Block], markdown: str) -> Iterator[dict[str, Any]]:
    layout = Layout()
    pieces, as_file = split_or_file(blocks, MESSAGE, layout.measure)
    yield from (message for piece in pieces if (message := _message(piece, layout))["text"].strip())
    if as_file:
        yield {"method": "sendDocument", "filename": "answer.md", "content": markdown}


def _message(blocks: Sequence[Block], layout: Layout) -> dict[str, Any]:
    text, entities = _compose(blocks, layout)
    return {"method": "sendMessage", "text": text, "entities": entities, "link_preview_options": {"is_disabled": True}}


def _captioned(blocks: Sequence[Block], attachments: Sequence[Attachment]) -> list[dict[str, Any]]:
    """Puts a short text as a caption to a single file."""
    layout = Layout()
    pieces = list(islice(split(blocks, CAPTION, layout.measure), 2)) if len(attachments) == 1 else []
    if len(pieces) != 1:
        return []
    text, entities = _compose(pieces[0], layout)
    return [{**_file(attachments[0]), "caption": text, "caption_entities": entities}]


def _file(attachment: Attachment) -> dict[str, Any]:
    match attachment.kind:
        case AttachmentKind.IMAGE if (
            attachment.mime in {"image/jpeg", "image/png"} and (attachment.size or 0) <= _PHOTO_BYTES
        ):
            method = "sendPhoto"
        case AttachmentKind.VOICE if attachment.mime in {"audio/ogg", "audio/mpeg", "audio/mp4"}:
            method = "sendVoice"
        case _:
            method = "sendDocument"
    return {"method": method, "filename": attachment.name, "path": attachment.path}


def _keyboard(buttons: Sequence[Button]) -> list[list[dict[str, str]]]:
    too_long = [button.label for button in buttons if len(button.data.encode()) > BUTTON_BYTES]
    if too_long:
        raise ValueError(f"the data of button {too_long[0]!r} is longer than {BUTTON_BYTES} bytes")
    keys = [{"text": button.label, "callback_data": button.data} for button in buttons]
    return [keys] if sum(len(button.label) for button in buttons) <= _ROW_OF_BUTTONS else [[key] for key in keys]


def _compose(blocks: Sequence[Block], layout: Layout) -> tuple[str, list[Entity]]:
    parts: list[str] = []
    marks: list[Mark] = []
    length = 0
    quoted: int | None = None  # where the mark of the quote stands that we are in
    for block in blocks:
        gap = "" if not parts else "\n" if block.tight else "\n\n"
        text, own = layout.of(block)
        start = length + len(gap)
        length = start + len(text)
        parts += (gap, text)
        if not block.quote:
            quoted = None
        elif quoted is None:
            quoted = len(marks)
            marks.append(("blockquote", start, length, ""))
        else:
            marks[quoted] = ("blockquote", marks[quoted][1], length, "")
        marks += ((kind, start + begin, start + end, more) for kind, begin, end, more in own)
    text = "".join(parts)
    return text, _written(text, marks)


def _written(text: str, marks: list[Mark]) -> list[Entity]:
    """Returns text and entities. Offsets count UTF-16 units, of which characters beyond the first 65,536 take two."""
    wide = [] if text.isascii() else [found.start() for found in _ASTRAL.finditer(text)]
    entities: list[Entity] = []
    for kind, start, end, more in marks:
        if start == end:
            continue
        entity = {"type": kind, "offset": start, "length": end - start}
        if wide:
            entity["offset"] = start + bisect_left(wide, start)
            entity["length"] = end + bisect_left(wide, end) - entity["offset"]
        if more:
            entity["url" if kind == "text_link" else "language"] = more
        entities.append(entity)
    return entities


def _lay(block: Block) -> Marked:
    text, marks = _body(block)
    if not block.indent:
        return text, marks
    prefix = "  " * max(0, block.indent - 1) + (f"{block.marker} " if block.marker else "")
    by = len(prefix)
    return prefix + text, [(kind, start + by, end + by, more) for kind, start, end, more in marks]


def _body(block: Block) -> Marked:
    match block:
        case Heading(text=text):
            spans = (Span(0, len(text), Style.BOLD), *(span for span in block.spans if span.style is not Style.BOLD))
            return text, _marks(spans)
        case Paragraph(text=text, spans=spans):
            return text, _marks(spans)
        case Fence(code=code, language=language):
            return code, [("pre", 0, len(code), language)]
        case Table():
            grid = as_grid(block)
            return (as_records(block), []) if grid is None else (grid, [("pre", 0, len(grid), "")])
        case Rule():
            return "———", []
        case _:
            return "", []


def _marks(spans: Sequence[Span]) -> list[Mark]:
    """Drops marks that Telegram does not allow inside of others: links win over code, code wins over bold and the like."""
    if not spans:
        return []
    alone = _without_inner(spans)
    codes = [span for span in alone if span.style is Style.CODE]
    marks: list[Mark] = []
    behind = 0  # so many codes begin before this span and all later ones
    for span in alone:
        while behind < len(codes) and codes[behind].start < span.start:
            behind += 1
        if span.style in _ALONE or behind == len(codes) or codes[behind].start >= span.end:
            marks.append((_SPAN_TYPES[span.style], span.start, span.end, span.url))
        else:
            marks += _around(span, islice(codes, behind, None))
    return marks


def _without_inner(spans: Sequence[Span]) -> list[Span]:
    kept: list[Span] = []
    link_end = 0
    for span in spans:
        if span.start < link_end and span.style in _ALONE:
            continue
        kept.append(span)
        if span.style is Style.LINK:
            link_end = span.end
    return kept


def _around(span: Span, codes: Iterable[Span]) -> Iterator[Mark]:
    kind, start = _SPAN_TYPES[span.style], span.start
    for code in codes:
        if code.start >= span.end:
            break
        if start < code.start:
            yield kind, start, code.start, ""
        start = code.end
    if start < span.end:
        yield kind, start, span.end, ""
