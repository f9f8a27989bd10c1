"""Reads the files of a Telegram message, and describes other contents to the model in words."""

from collections.abc import Iterator
from typing import Any

from telegram import (
    Checklist,
    Contact,
    Dice,
    ExternalReplyInfo,
    Location,
    Message,
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

from adapters.telegram.rich import rich_files, rich_message
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
            yield Attachment(
                kind=_picture(kind, getattr(file, "mime_type", None)),
                name=getattr(file, "file_name", None) or f"{name[0]}-{number}{name[1]}",
                mime=getattr(file, "mime_type", None) or mime,
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


def _picture(kind: AttachmentKind, mime: str | None) -> AttachmentKind:
    """Returns the picture; one that was sent without compression is a document to Telegram."""
    return AttachmentKind.IMAGE if kind is AttachmentKind.FILE and mime in _PICTURES else kind


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
