"""The text of a message as people see it, and whom it is addressed to. Positions count UTF-16 units, as Telegram does."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from telegram import ExternalReplyInfo, Message, MessageEntity, User

from adapters.telegram.rich import rich_message, rich_text

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
