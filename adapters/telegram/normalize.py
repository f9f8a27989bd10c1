"""From Telegram's updates to neutral messages. Pure; positions in texts are UTF-16 units, as Telegram counts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from telegram import CallbackQuery, Chat, Message, MessageEntity, Update, User
from telegram.constants import ChatType

from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Attachment, AttachmentKind, Inbound, InboundKind, Quote

_KINDS = {
    ChatType.PRIVATE: ChatKind.DM,
    ChatType.GROUP: ChatKind.GROUP,
    ChatType.SUPERGROUP: ChatKind.GROUP,
    ChatType.CHANNEL: ChatKind.CHANNEL,
}
_UNREADABLE = (
    "sticker",
    "poll",
    "location",
    "venue",
    "contact",
    "dice",
    "game",
    "story",
    "checklist",
    "paid_media",
    "invoice",
)


def normalize(update: Update, me: User) -> list[Inbound]:
    """Empty for everything that no user said: service messages, automatic forwards, other bots, ourselves.

    A message of a kind that cannot be read (a sticker, a poll, a location) comes with neither text nor attachments, and no other
    message does: a bare mention of the bot keeps it as its text.
    """
    key = f"tg:{me.id}:{update.update_id}"
    if update.callback_query is not None:
        return list(_tap(update.callback_query, key))
    message = update.effective_message
    if message is None or update.business_message or update.edited_business_message:
        return []
    if message.migrate_to_chat_id or message.migrate_from_chat_id:
        return [_moved(message, key)]
    edited = update.edited_message is not None or update.edited_channel_post is not None
    return list(_said(message, me, key, InboundKind.EDIT if edited else InboundKind.MESSAGE))


def _said(message: Message, me: User, key: str, kind: InboundKind) -> Iterator[Inbound]:
    sender = _sender(message)
    if sender is None or message.is_automatic_forward or sender.id == str(me.id):
        return
    attachments = tuple(_attachments(message))
    reading = _read(message, me)
    if not reading.text and not attachments and not any(getattr(message, name) for name in _UNREADABLE):
        return
    quote = _quote(message, me)
    private = message.chat.type == ChatType.PRIVATE
    mentioned = private or reading.mentioned or (quote is not None and quote.from_us)
    yield Inbound(
        dedup_key=key,
        address=_address(message.chat, message),
        sender=sender,
        message_id=str(message.message_id),
        text=reading.text,
        kind=kind,
        mentioned=mentioned,
        mentions_other=reading.mentions_other and not mentioned,
        quote=quote,
        attachments=attachments,
        chat_title=message.chat.title or "",
        sent_at=int((message.edit_date or message.date).timestamp() * 1000),
    )


def _tap(query: CallbackQuery, key: str) -> Iterator[Inbound]:
    if query.message is None or query.data is None or query.from_user.is_bot:
        return
    message = query.message if isinstance(query.message, Message) else None
    yield Inbound(
        dedup_key=key,
        address=_address(query.message.chat, message),
        sender=Sender(id=str(query.from_user.id), name=query.from_user.full_name),
        message_id=str(query.message.message_id),
        text=query.data,
        kind=InboundKind.TAP,
        chat_title=query.message.chat.title or "",
        tap_id=query.id,
    )


def _moved(message: Message, key: str) -> Inbound:
    old, new = message.migrate_from_chat_id or message.chat_id, message.migrate_to_chat_id or message.chat_id
    return Inbound(
        dedup_key=key,
        address=Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id=str(old)),
        sender=_sender(message) or Sender(id=str(old)),
        message_id=str(message.message_id),
        text=str(new),
        kind=InboundKind.MOVED,
        chat_title=message.chat.title or "",
        sent_at=int(message.date.timestamp() * 1000),
    )


def _address(chat: Chat, message: Message | None) -> Address:
    topic = message.message_thread_id if message is not None and message.is_topic_message else None
    return Address(
        platform=Platform.TELEGRAM,
        kind=_KINDS[ChatType(chat.type)],
        chat_id=str(chat.id),
        thread_id=None if topic is None else str(topic),
    )


def _sender(message: Message) -> Sender | None:
    """None for other bots. Anonymous admins and channels speak through a bot of Telegram's, and are themselves the sender."""
    if message.sender_chat is not None:
        chat = message.sender_chat
        return Sender(id=str(chat.id), name=message.author_signature or chat.title or chat.full_name or "")
    if message.from_user is None or message.from_user.is_bot:
        return None
    return Sender(id=str(message.from_user.id), name=message.from_user.full_name)


def _quote(message: Message, me: User) -> Quote | None:
    part = message.quote.text if message.quote else ""
    replied = message.reply_to_message
    if replied is not None and replied.forum_topic_created is None:
        author = _sender(replied)
        from_us = replied.from_user is not None and replied.from_user.id == me.id
        name = author.name if author else replied.from_user.full_name if replied.from_user else ""
        text = part or replied.text or replied.caption or ""
        return Quote(message_id=str(replied.message_id), text=text, sender_name=name, from_us=from_us)
    if message.external_reply is not None:
        return Quote(message_id=str(message.external_reply.message_id or ""), text=part)
    return None


def _attachments(message: Message) -> Iterator[Attachment]:
    number = message.message_id
    if message.photo:
        photo = max(message.photo, key=lambda size: size.width * size.height)
        yield Attachment(
            kind=AttachmentKind.IMAGE,
            name=f"photo-{number}.jpg",
            mime="image/jpeg",
            size=photo.file_size,
            ref=photo.file_id,
        )
    named = (
        (AttachmentKind.VIDEO, message.video or message.animation, f"video-{number}.mp4", "video/mp4"),
        (AttachmentKind.VIDEO, message.video_note, f"video-{number}.mp4", "video/mp4"),
        (AttachmentKind.AUDIO, message.audio, f"audio-{number}.mp3", "audio/mpeg"),
        (AttachmentKind.VOICE, message.voice, f"voice-{number}.ogg", "audio/ogg"),
        # an animation comes with itself as a document, for old clients
        (
            AttachmentKind.FILE,
            None if message.animation else message.document,
            f"file-{number}",
            "application/octet-stream",
        ),
    )
    for kind, file, name, mime in named:
        if file is not None:
            yield Attachment(
                kind=_picture(kind, getattr(file, "mime_type", None)),
                name=getattr(file, "file_name", None) or name,
                mime=getattr(file, "mime_type", None) or mime,
                size=file.file_size,
                ref=file.file_id,
            )


def _picture(kind: AttachmentKind, mime: str | None) -> AttachmentKind:
    """A picture sent without compression is a document to Telegram."""
    pictures = {"image/jpeg", "image/png", "image/gif", "image/webp"}
    return AttachmentKind.IMAGE if kind is AttachmentKind.FILE and mime in pictures else kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    text: str
    mentioned: bool
    mentions_other: bool


def _read(message: Message, me: User) -> _Reading:
    """The text without our own mentions, and whom it is addressed to."""
    text = message.text or message.caption or ""
    if not text:
        return _Reading(text="", mentioned=False, mentions_other=False)
    units = text.encode("utf-16-le", "surrogatepass")
    ours: list[slice] = []
    other = general_command = False
    for entity in message.entities or message.caption_entities:
        place = slice(2 * entity.offset, 2 * (entity.offset + entity.length))
        named = units[place].decode("utf-16-le", "replace")
        match entity.type:
            case MessageEntity.TEXT_MENTION if entity.user is not None:
                mine, other = entity.user.id == me.id, other or entity.user.id != me.id
            case MessageEntity.MENTION:
                mine, other = _is_me(named[1:], me), other or not _is_me(named[1:], me)
            case MessageEntity.BOT_COMMAND if "@" in named:
                command, _, bot = named.partition("@")
                mine, other = _is_me(bot, me), other or not _is_me(bot, me)
                place = slice(place.start + 2 * len(command), place.stop)
            case MessageEntity.BOT_COMMAND:
                general_command = general_command or entity.offset == 0
                continue
            case _:
                continue
        if mine:
            ours.append(place)
    left = _without(units, ours) if ours else text
    return _Reading(text=left or text, mentioned=bool(ours) or (general_command and not other), mentions_other=other)


def _is_me(name: str, me: User) -> bool:
    return me.username is not None and name.lower() == me.username.lower()


def _without(units: bytes, places: list[slice]) -> str:
    for place in sorted(places, key=lambda place: place.start, reverse=True):
        before, after = units[: place.start], units[place.stop :]
        if before.endswith(b" \0") and after.startswith(b" \0"):
            after = after[2:]
        units = before + after
    text = units.decode("utf-16-le", "surrogatepass").strip()
    return re.sub(r"^[,:;]\s*", "", text) if places and min(place.start for place in places) == 0 else text
