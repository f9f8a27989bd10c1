"""Reads a Telegram message: its text as people see it, whom it is addressed to, its files, and other contents in words for the model.

Rich messages (Bot API 10.1), which the library does not know yet, become text with entities as other messages have them. Positions
count UTF-16 units, as Telegram does.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from telegram import (
    Checklist,
    Contact,
    Dice,
    ExternalReplyInfo,
    Location,
    Message,
    MessageEntity,
    MessageOrigin,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginHiddenUser,
    MessageOriginUser,
    Poll,
    Sticker,
    User,
    Venue,
)
from telegram.constants import ChatType

from adapters.http import Json, as_object, part, parts, text
from sessions.messages import Attachment, AttachmentKind

_OPAQUE = ("story", "game", "paid_media", "invoice", "giveaway", "giveaway_winners")
_PICTURES = {"image/jpeg", "image/png", "image/gif", "image/webp"}


def attachments(message: Message | ExternalReplyInfo) -> Iterator[Attachment]:
    number = message.message_id or 0  # of a message in another chat it may be secret
    yield from rich_files(rich_message(message), number)
    photos = message.photo or (message.live_photo.photo if message.live_photo else ())
    if photos:
        photo = max(photos, key=lambda size: size.width * size.height)
        yield Attachment(
            kind=AttachmentKind.IMAGE,
            name=f"photo-{number}.jpg",
            mime="image/jpeg",
            size=photo.file_size,
            ref=photo.file_id,
        )
    for kind, file, name, mime in _files(message):
        if file is not None:
            # What was sent without compression is a document to Telegram, pictures too.
            told = getattr(file, "mime_type", None)
            yield Attachment(
                kind=AttachmentKind.IMAGE if kind is AttachmentKind.FILE and told in _PICTURES else kind,
                name=getattr(file, "file_name", None) or f"{name[0]}-{number}{name[1]}",
                mime=told or mime,
                size=file.file_size,
                ref=file.file_id,
            )


def _files(message: Message | ExternalReplyInfo) -> Iterator[tuple[AttachmentKind, Any, tuple[str, str], str]]:
    """Yields kind, file, and the name and media type for where the message does not say them."""
    yield AttachmentKind.VIDEO, message.video or message.animation, ("video", ".mp4"), "video/mp4"
    yield AttachmentKind.VIDEO, message.video_note, ("video", ".mp4"), "video/mp4"
    yield AttachmentKind.AUDIO, message.audio, ("audio", ".mp3"), "audio/mpeg"
    yield AttachmentKind.VOICE, message.voice, ("voice", ".ogg"), "audio/ogg"
    document = None if message.animation else message.document  # an animation is a document too, for old clients
    yield AttachmentKind.FILE, document, ("file", ""), "application/octet-stream"


def describe_contents(message: Message | ExternalReplyInfo) -> str:
    """Describes contents besides text in one line; empty when there are none."""
    match message:
        case object(sticker=Sticker(emoji=emoji)):
            return f"[sticker {emoji}]" if emoji else "[sticker]"
        case object(dice=Dice(emoji=emoji, value=value)):
            return f"[dice {emoji} {value}]"
        case object(venue=Venue(title=title, address=address, location=place)):
            return f"[place {title}, {address}, {_coordinates(place)}]"
        case object(location=Location() as place):
            return f"[location {_coordinates(place)}]"
        case object(contact=Contact() as contact):
            name = " ".join(filter(None, (contact.first_name, contact.last_name)))
            return f"[contact {name}, {contact.phone_number}]"
        case object(poll=Poll(question=question, options=options)):
            return f"[poll: {question} ({' / '.join(option.text for option in options)})]"
        case object(checklist=Checklist(title=title, tasks=tasks)):
            done = "\n".join(f"- [{'x' if task.completion_date else ' '}] {task.text}" for task in tasks)
            return f"Checklist {title}:\n{done}"
        case _:
            return ""


def _coordinates(place: Location) -> str:
    return f"{place.latitude:.5f} {place.longitude:.5f}"


def opaque_kind(message: Message | ExternalReplyInfo) -> str:
    """Names a kind of message that we cannot read."""
    return next((f"[{name.replace('_', ' ')}]" for name in _OPAQUE if getattr(message, name)), "")


def is_unreadable(message: Message) -> bool:
    """Returns whether a user has sent a kind of message that we do not know. In groups it was hardly meant for the bot."""
    unheard_of = message.chat.type == ChatType.PRIVATE and bool(message.api_kwargs)  # newer than the library
    return unheard_of or any(getattr(message, name) for name in _OPAQUE)


def origin(source: MessageOrigin | None, me: User) -> str:
    """Returns who wrote the forwarded words."""
    match source:
        case MessageOriginUser(sender_user=user):
            return "you" if user.id == me.id else user.full_name
        case MessageOriginHiddenUser(sender_user_name=name):
            return name
        case MessageOriginChat(sender_chat=chat) | MessageOriginChannel(chat=chat):
            return chat.effective_name or "a channel"
        case _:
            return ""


_LINK, _QUOTE, _MENTION = range(3)  # the order of changes in one place: the last is made first
_QUOTES = {MessageEntity.BLOCKQUOTE, MessageEntity.EXPANDABLE_BLOCKQUOTE}
_Change = tuple[int, int, int, str]
"""From where, which of the three, up to where in bytes of UTF-16, and what is there instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    text: str
    mentioned: bool = False
    mentions_other: bool = False
    for_any_bot: bool = False


def text_of(message: Message | ExternalReplyInfo) -> str:
    """Returns the text, with the address behind each link, and `> ` before quoted lines."""
    text, entities = _said(message)
    return _changed(text, _shown(text, entities))


def read(message: Message, me: User) -> Reading:
    """Returns the text as `text_of`, without the bot's own mentions, and whom it is addressed to."""
    text, entities = _said(message)
    if not text:
        return Reading(text="")
    units = text.encode("utf-16-le", "surrogatepass")
    ours: list[_Change] = []
    other = for_any_bot = False
    for entity in entities:
        start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
        named = units[start:end].decode("utf-16-le", "replace")
        match entity.type:
            case MessageEntity.TEXT_MENTION if entity.user is not None:
                mine, other = entity.user.id == me.id, other or entity.user.id != me.id
            case MessageEntity.MENTION:
                mine, other = _is_me(named[1:], me), other or not _is_me(named[1:], me)
            case MessageEntity.BOT_COMMAND if "@" in named:
                command, _, bot = named.partition("@")
                mine, other = _is_me(bot, me), other or not _is_me(bot, me)
                start += 2 * len(command)
            case MessageEntity.BOT_COMMAND:
                for_any_bot = for_any_bot or entity.offset == 0
                continue
            case _:
                continue
        if mine:
            ours.append((start, _MENTION, end, ""))
    shown = _shown(text, entities)
    left = _changed(text, [*ours, *shown])
    if ours:
        left = left.strip()
        if min(ours)[0] == 0:
            left = re.sub(r"^[,:;]\s*", "", left)
    return Reading(
        text=left or _changed(text, shown),
        mentioned=bool(ours),
        mentions_other=other,
        for_any_bot=for_any_bot and not other,
    )


def _said(message: Message | ExternalReplyInfo) -> tuple[str, Sequence[MessageEntity]]:
    if isinstance(message, Message) and (message.text or message.caption):
        return message.text or message.caption or "", message.entities or message.caption_entities
    return rich_text(rich_message(message))


def _is_me(name: str, me: User) -> bool:
    return me.username is not None and name.lower() == me.username.lower()


def _shown(text: str, entities: Sequence[MessageEntity]) -> list[_Change]:
    """Returns what has to be written into the text so that nothing in it is hidden."""
    changes: list[_Change] = []
    units = text.encode("utf-16-le", "surrogatepass")
    for entity in entities:
        start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
        covered = units[start:end].decode("utf-16-le", "surrogatepass")
        if entity.type == MessageEntity.TEXT_LINK and entity.url and entity.url.rstrip("/") not in covered:
            changes.append((end, _LINK, end, f" ({entity.url})"))
        elif entity.type in _QUOTES:
            lines = [start, *(start + 2 * _units(covered[: at.end()]) for at in re.finditer("\n(?=.)", covered))]
            changes += [(line, _QUOTE, line, "> ") for line in lines]
    return changes


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _changed(text: str, changes: list[_Change]) -> str:
    if not changes:
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    for start, kind, end, instead in sorted(changes, reverse=True):
        before, after = units[:start], units[end:]
        if kind == _MENTION and before.endswith(b" \0") and after.startswith(b" \0"):
            after = after[2:]
        units = before + instead.encode("utf-16-le", "surrogatepass") + after
    return units.decode("utf-16-le", "surrogatepass")


# --- rich messages ---

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
        out.entities += [{**entity, "offset": entity["offset"] + out.length} for entity in inner.entities]
        out.add("".join(inner.pieces))


def _write_rows(block: Json, out: _Written, depth: int) -> None:
    rows = [cells for row in _list(block.get("cells")) if (cells := _list(row))]
    for number, row in enumerate(rows):
        out.add("\n" if number else "")
        for place, cell in enumerate(row):
            out.add(" | " if place else "")
            _write_text(as_object(cell).get("text") or "", out, depth)


def _list(found: Any) -> list[Any]:
    return cast(list[Any], found) if isinstance(found, list) else []


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
