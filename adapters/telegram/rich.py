"""Reads rich messages (Bot API 10.1), which the library does not know yet: their text with entities as other messages have them."""

from collections.abc import Iterator
from typing import Any, cast

from telegram import Message, MessageEntity

from adapters.payload import Json, as_object, part, parts, text
from sessions.messages import Attachment, AttachmentKind

_DEEPEST = 12
_MEDIA = {
    "photo": (AttachmentKind.IMAGE, "photo", ".jpg", "image/jpeg"),
    "video": (AttachmentKind.VIDEO, "video", ".mp4", "video/mp4"),
    "animation": (AttachmentKind.VIDEO, "video", ".mp4", "video/mp4"),
    "audio": (AttachmentKind.AUDIO, "audio", ".mp3", "audio/mpeg"),
    "voice_note": (AttachmentKind.VOICE, "voice", ".ogg", "audio/ogg"),
}


def rich_message(message: object) -> Json:
    """Returns the raw rich message; empty where there is none."""
    if not isinstance(message, Message):
        return {}
    known = getattr(message, "rich_message", None)  # once the library knows it
    return as_object(known.to_dict() if known is not None else message.api_kwargs.get("rich_message"))


def rich_text(rich: Json) -> tuple[str, list[MessageEntity]]:
    written = _Written()
    _write_blocks(rich, written, 0)
    return "".join(written.pieces).rstrip("\n"), [*MessageEntity.de_list(written.entities, None)]


def rich_files(rich: Json, number: int) -> Iterator[Attachment]:
    for block in _all_blocks(rich, 0):
        kind, name, ending, mime = _MEDIA.get(text(block, "type"), (None, "", "", ""))
        if kind is None:
            continue
        sizes = parts(block, "photo")
        file = sizes[-1] if sizes else part(block, text(block, "type"))
        if text(file, "file_id"):
            size = file.get("file_size")
            yield Attachment(
                kind=kind,
                name=text(file, "file_name") or f"{name}-{number}{ending}",
                mime=text(file, "mime_type") or mime,
                size=size if isinstance(size, int) else None,
                ref=text(file, "file_id"),
            )


def _all_blocks(holder: Json, depth: int) -> Iterator[Json]:
    if depth > _DEEPEST:
        return
    for block in (*parts(holder, "blocks"), *parts(holder, "items")):
        yield block
        yield from _all_blocks(block, depth + 1)


class _Written:
    """Text that grows, and the entities in it; `length` in UTF-16 units."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.entities: list[dict[str, Any]] = []
        self.length = 0

    def add(self, words: str) -> None:
        if not words:
            return
        self.pieces.append(words)
        self.length += len(words.encode("utf-16-le", "surrogatepass")) // 2

    def mark(self, kind: str, start: int, **more: Any) -> None:
        if self.length > start:
            self.entities.append({"type": kind, "offset": start, "length": self.length - start, **more})


def _write_blocks(holder: Json, out: _Written, depth: int) -> None:
    if depth > _DEEPEST:
        return
    for block in parts(holder, "blocks"):
        if out.pieces and not out.pieces[-1].endswith("\n"):
            out.add("\n")
        start = out.length
        _write_block(block, out, depth)
        if text(block, "type") in {"blockquote", "pullquote"}:
            out.mark("blockquote", start)


def _write_block(block: Json, out: _Written, depth: int) -> None:
    match text(block, "type"):
        case "pre":
            out.add(f"```{text(block, 'language')}\n")
            _write_text(block.get("text"), out, depth)
            out.add("\n```")
        case "list":
            _write_items(block, out, depth)
        case "table":
            _write_rows(block, out, depth)
        case "mathematical_expression":
            out.add(text(block, "expression"))
        case "map":
            place = part(block, "location")
            out.add(f"[location {place.get('latitude')} {place.get('longitude')}]")
        case kind:
            if kind in _MEDIA:
                out.add(f"[{_MEDIA[kind][0]}]")
            for key in ("summary", "text"):
                if block.get(key):
                    _write_text(block.get(key), out, depth)
            _write_blocks(block, out, depth + 1)
    caption = block.get("caption")
    if caption:
        out.add("\n")
        _write_text(as_object(caption).get("text") if "text" in as_object(caption) else caption, out, depth)


def _write_items(block: Json, out: _Written, depth: int) -> None:
    for number, item in enumerate(parts(block, "items")):
        box = "[x] " if item.get("is_checked") else "[ ] " if item.get("has_checkbox") else ""
        label = text(item, "label") or "•"
        out.add("\n" if number else "")
        out.add(f"{label} {box}")
        inner = _Written()
        _write_blocks(item, inner, depth + 1)
        _append(inner, out)


def _write_rows(block: Json, out: _Written, depth: int) -> None:
    rows = [cells for row in _list(block.get("cells")) if (cells := _list(row))]
    for number, row in enumerate(rows):
        out.add("\n" if number else "")
        for place, cell in enumerate(row):
            out.add(" | " if place else "")
            _write_text(as_object(cell).get("text") or "", out, depth)


def _list(found: Any) -> list[Any]:
    return cast(list[Any], found) if isinstance(found, list) else []


def _append(inner: _Written, out: _Written) -> None:
    out.entities += [{**entity, "offset": entity["offset"] + out.length} for entity in inner.entities]
    out.add("".join(inner.pieces))


def _write_text(rich: Any, out: _Written, depth: int) -> None:
    if depth > _DEEPEST:
        return
    if isinstance(rich, str):
        out.add(rich)
    elif isinstance(rich, list):
        for one in _list(rich):
            _write_text(one, out, depth + 1)
    else:
        piece, start = as_object(rich), out.length
        out.add(text(piece, "alternative_text") or text(piece, "expression"))
        _write_text(piece.get("text") or "", out, depth + 1)
        match piece.get("type"):
            case "mention" | "bot_command" as kind:
                out.mark(kind, start)
            case "text_mention":
                out.mark("text_mention", start, user=piece.get("user"))
            case "url":
                out.mark("text_link", start, url=text(piece, "url"))
            case _:
                return
