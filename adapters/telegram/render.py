"""From an answer in Markdown to calls of the Bot API: plain text with entities, never more than Telegram takes."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from adapters.text.markdown import Block, Fence, Heading, Paragraph, Rule, Span, Style, Table, parse
from adapters.text.split import Size, split, split_or_file
from sessions.messages import Attachment, AttachmentKind, Button, Outbound, Piece

MESSAGE = Size(4096, 100)  # UTF-16 units and entities
CAPTION = Size(1024, 100)
BUTTON_BYTES = 64
_PHOTO_BYTES = 10_000_000
_GRID_COLUMNS = 44  # a wider table wraps on a phone
_ROW_OF_BUTTONS = 30  # characters of labels that fit beside each other

_SPAN_TYPES = {
    Style.BOLD: "bold",
    Style.ITALIC: "italic",
    Style.STRIKE: "strikethrough",
    Style.CODE: "code",
    Style.LINK: "text_link",
}

Entity = dict[str, Any]
Marked = tuple[str, list[Entity]]
"""Text and its entities, whose offsets still count characters."""


def render(outbound: Outbound) -> list[Piece]:
    blocks = parse(outbound.text)
    calls = _captioned(blocks, outbound.attachments) or [
        *_texts(blocks, outbound.text),
        *map(_file, outbound.attachments),
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
    """The quote of an answer. One whose question was deleted in the meantime is sent without."""
    return {"reply_parameters": {"message_id": int(reply_to), "allow_sending_without_reply": True}} if reply_to else {}


def render_draft(markdown: str) -> Piece:
    """The end of a growing answer, as much of it as one message holds."""
    *_, last = split(parse(markdown), MESSAGE, measure) if markdown.strip() else [()]
    return _message(last)


def measure(block: Block) -> Size:
    text, entities = _lay(block)
    return Size(utf16_length(text) + 2, len(entities) + (block.quote > 0))


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _texts(blocks: Sequence[Block], markdown: str) -> Iterator[dict[str, Any]]:
    pieces, as_file = split_or_file(blocks, MESSAGE, measure)
    yield from (message for message in map(_message, pieces) if message["text"].strip())
    if as_file:
        yield {"method": "sendDocument", "filename": "answer.md", "content": markdown}


def _message(blocks: Sequence[Block]) -> dict[str, Any]:
    text, entities = _compose(blocks)
    return {"method": "sendMessage", "text": text, "entities": entities, "link_preview_options": {"is_disabled": True}}


def _captioned(blocks: Sequence[Block], attachments: Sequence[Attachment]) -> list[dict[str, Any]]:
    """A single file carries a short text with it."""
    pieces = list(islice(split(blocks, CAPTION, measure), 2)) if len(attachments) == 1 else []
    if len(pieces) != 1:
        return []
    text, entities = _compose(pieces[0])
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


def _compose(blocks: Sequence[Block]) -> Marked:
    parts: list[str] = []
    entities: list[Entity] = []
    length = 0
    quoted: Entity | None = None
    for block in blocks:
        gap = "" if not parts else "\n" if block.tight else "\n\n"
        text, own = _lay(block)
        start = length + len(gap)
        length = start + len(text)
        parts += (gap, text)
        if not block.quote:
            quoted = None
        elif quoted is None:
            quoted = {"type": "blockquote", "offset": start, "length": 0}
            entities.append(quoted)
        if quoted is not None:
            quoted["length"] = length - quoted["offset"]
        entities += ({**entity, "offset": entity["offset"] + start} for entity in own)
    text = "".join(parts)
    return text, _in_utf16(text, [entity for entity in entities if entity["length"]])


def _in_utf16(text: str, entities: list[Entity]) -> list[Entity]:
    if text.isascii():
        return entities
    at = [0]
    for character in text:
        at.append(at[-1] + 1 + (character > "\uffff"))
    return [
        {
            **entity,
            "offset": at[entity["offset"]],
            "length": at[entity["offset"] + entity["length"]] - at[entity["offset"]],
        }
        for entity in entities
    ]


def _lay(block: Block) -> Marked:
    prefix = "  " * max(0, block.indent - 1) + (f"{block.marker} " if block.marker else "")
    text, entities = _body(block)
    return prefix + text, [{**entity, "offset": entity["offset"] + len(prefix)} for entity in entities]


def _body(block: Block) -> Marked:
    match block:
        case Heading(text=text):
            spans = (Span(0, len(text), Style.BOLD), *(span for span in block.spans if span.style is not Style.BOLD))
            return text, list(_entities(spans))
        case Paragraph(text=text, spans=spans):
            return text, list(_entities(spans))
        case Fence(code=code, language=language):
            return code, [_pre(code, language)]
        case Table():
            return _table(block)
        case Rule():
            return "———", []
        case _:
            return "", []


def _pre(code: str, language: str = "") -> Entity:
    entity: Entity = {"type": "pre", "offset": 0, "length": len(code)}
    return {**entity, "language": language} if language else entity


def _entities(spans: Sequence[Span]) -> Iterator[Entity]:
    """Telegram allows nothing inside code, and no link inside a link: links win over code, code wins over bold and the like."""
    alone = _without_inner(spans)
    codes = [span for span in alone if span.style is Style.CODE]
    for span in alone:
        match span.style:
            case Style.LINK:
                yield {**_entity(span.style, span.start, span.end), "url": span.url}
            case Style.CODE:
                yield _entity(span.style, span.start, span.end)
            case _:
                yield from _around(span, codes)


def _without_inner(spans: Sequence[Span]) -> list[Span]:
    kept: list[Span] = []
    link_end = 0
    for span in spans:
        if span.style in {Style.LINK, Style.CODE} and span.start < link_end:
            continue
        kept.append(span)
        if span.style is Style.LINK:
            link_end = span.end
    return kept


def _around(span: Span, codes: Sequence[Span]) -> Iterator[Entity]:
    start = span.start
    for code in codes[bisect_left(codes, span.start, key=lambda code: code.start) :]:
        if code.start >= span.end:
            break
        if start < code.start:
            yield _entity(span.style, start, code.start)
        start = code.end
    if start < span.end:
        yield _entity(span.style, start, span.end)


def _entity(style: Style, start: int, end: int) -> Entity:
    return {"type": _SPAN_TYPES[style], "offset": start, "length": end - start}


def _table(table: Table) -> Marked:
    rows = table.rows if table.continued else (table.header, *table.rows)
    widths = [max(len(row[column]) for row in (table.header, *table.rows)) for column in range(len(table.header))]
    if sum(widths) + 2 * len(widths) <= _GRID_COLUMNS:
        grid = "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )
        return grid, [_pre(grid)]
    records = (
        "\n".join(f"{name}: {cell}" for name, cell in zip(table.header, row, strict=True) if cell) for row in table.rows
    )
    return "\n\n".join(records), []
