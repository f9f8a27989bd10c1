"""Turns Telegram's updates into neutral messages. Pure; positions in texts count UTF-16 units, as Telegram does."""

from collections.abc import Iterator
from typing import Any

from telegram import (
    CallbackQuery,
    Chat,
    ChatMember,
    ChatMemberRestricted,
    ChatMemberUpdated,
    ExternalReplyInfo,
    Message,
    Update,
    User,
)
from telegram.constants import ChatMemberStatus, ChatType

from adapters.http import part, text
from adapters.telegram.contents import attachments, describe_contents, is_unreadable, opaque_kind, origin, read, text_of
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Inbound, InboundKind, Quote

_NEARLY_FULL = 4_000
"""UTF-16 units. Clients cut what is longer than a message can be somewhere before its end."""
_KINDS = {
    ChatType.PRIVATE: ChatKind.DM,
    ChatType.GROUP: ChatKind.GROUP,
    ChatType.SUPERGROUP: ChatKind.GROUP,
    ChatType.CHANNEL: ChatKind.CHANNEL,
}


def normalize(update: Update, me: User) -> list[Inbound]:
    """Returns nothing for what no user said: service messages, automatic forwards, other bots, ourselves.

    A message of a kind that cannot be read (a story, an invoice) comes with neither text nor attachments, and no other message
    does: a bare mention of the bot keeps it as its text.
    """
    key = f"tg:{me.id}:{update.update_id}"
    if update.my_chat_member is not None:
        return list(_membership(update.my_chat_member, key))
    if update.callback_query is not None:
        return list(_tap(update.callback_query, key))
    message = update.effective_message
    # Business messages are said between others, in the name of the account's owner.
    if message is None or update.business_message or update.edited_business_message:
        return []
    if message.migrate_to_chat_id or message.migrate_from_chat_id:
        return [_moved(message, key)]
    edited = update.edited_message is not None or update.edited_channel_post is not None
    return list(_message(message, me, key, InboundKind.EDIT if edited else InboundKind.MESSAGE))


def unreadable(item: Any, me: User) -> list[Inbound]:
    """Returns a message without contents for an update that the library cannot parse, if a person wrote it to us: they hear that we could
    not read it. What was said in a group was hardly meant for us.
    """
    message = part(item, "message")
    chat, sender, number = part(message, "chat"), part(message, "from"), text(message, "message_id")
    person = text(sender, "id")
    if chat.get("type") != ChatType.PRIVATE or not text(chat, "id") or not person or not number or sender.get("is_bot"):
        return []
    return [
        Inbound(
            dedup_key=f"tg:{me.id}:{text(item, 'update_id')}",
            address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id=text(chat, "id")),
            sender=Sender(id=person, name=text(sender, "first_name")),
            message_id=number,
        )
    ]


def _message(message: Message, me: User, key: str, kind: InboundKind) -> Iterator[Inbound]:
    sender = _sender(message)
    if sender is None or message.is_automatic_forward or sender.id == str(me.id):
        return
    if kind is InboundKind.EDIT and (message.location or message.checklist):  # it moves, or its tasks are ticked off
        return
    files = tuple(attachments(message))
    reading = read(message, me)
    text = "\n".join(filter(None, (reading.text, describe_contents(message))))
    if not text and not files and not is_unreadable(message):
        return
    quote = _quote(message, me)
    private = message.chat.type == ChatType.PRIVATE
    addressed = private or reading.mentioned or (quote is not None and quote.from_us)
    mentioned = addressed or reading.for_any_bot
    yield Inbound(
        dedup_key=key,
        address=_address(message.chat, message),
        sender=sender,
        message_id=str(message.message_id),
        text=text,
        kind=kind,
        mentioned=mentioned,
        mentions_other=reading.mentions_other and not mentioned,
        for_any_bot=not addressed and reading.for_any_bot,
        by_reply=not private and not reading.mentioned and addressed,
        quote=quote,
        forwarded_from=origin(message.forward_origin, me),
        attachments=files,
        cut_off=len((message.text or "").encode("utf-16-le", "surrogatepass")) // 2 > _NEARLY_FULL,
        album=message.media_group_id or "",
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


def _membership(event: ChatMemberUpdated, key: str) -> Iterator[Inbound]:
    """Reads that the bot came or went. In a channel nobody is greeted: all its readers would see it."""
    was_in, is_in = _is_in(event.old_chat_member), _is_in(event.new_chat_member)
    is_group = event.chat.type in {ChatType.GROUP, ChatType.SUPERGROUP} and not event.chat.is_direct_messages
    if was_in == is_in or (is_in and not is_group):
        return
    yield Inbound(
        dedup_key=key,
        address=_address(event.chat, None),
        sender=Sender(id=str(event.from_user.id), name=event.from_user.full_name),
        message_id="",
        kind=InboundKind.JOINED if is_in else InboundKind.LEFT,
        mentioned=False,
        chat_title=event.chat.title or "",
        sent_at=int(event.date.timestamp() * 1000),
    )


def _is_in(member: ChatMember) -> bool:
    if isinstance(member, ChatMemberRestricted):
        return member.is_member
    return member.status not in {ChatMemberStatus.LEFT, ChatMemberStatus.BANNED}


def _address(chat: Chat, message: Message | None) -> Address:
    # Direct messages to a channel come in one chat of the channel, with a topic for each person.
    if chat.is_direct_messages or (message is not None and message.direct_messages_topic is not None):
        person = message.direct_messages_topic if message is not None else None
        return Address(
            platform=Platform.TELEGRAM,
            kind=ChatKind.CHANNEL,
            chat_id=str(chat.id),
            thread_id=None if person is None else str(person.topic_id),
        )
    # Replies in ordinary groups have a thread id, too; only those of a forum are topics.
    topic = message.message_thread_id if message is not None and message.is_topic_message else None
    return Address(
        platform=Platform.TELEGRAM,
        kind=_KINDS[ChatType(chat.type)],
        chat_id=str(chat.id),
        thread_id=None if topic is None else str(topic),
    )


def _sender(message: Message) -> Sender | None:
    """Returns None for other bots. Anonymous admins and channels write through a bot of Telegram's, and are themselves the sender."""
    if message.sender_chat is not None:
        chat = message.sender_chat
        return Sender(id=str(chat.id), name=message.author_signature or chat.title or chat.full_name or "")
    if message.from_user is None or message.from_user.is_bot:
        return None
    return Sender(id=str(message.from_user.id), name=message.from_user.full_name)


def _quote(message: Message, me: User) -> Quote | None:
    part = message.quote.text if message.quote else ""
    replied = message.reply_to_message
    # Clients make every message of a topic a reply to the service message that began the topic.
    if replied is not None and replied.forum_topic_created is None:
        author = _sender(replied)
        from_us = replied.from_user is not None and replied.from_user.id == me.id
        name = author.name if author else replied.from_user.full_name if replied.from_user else ""
        text = part or _described(replied)
        return Quote(
            message_id=str(replied.message_id),
            text=text,
            sender_name=name,
            from_us=from_us,
            attachments=() if from_us else tuple(attachments(replied)),
        )
    if message.external_reply is not None:
        elsewhere = message.external_reply
        whose = origin(elsewhere.origin, me)
        return Quote(
            message_id=str(elsewhere.message_id or ""),
            text=part or _described(elsewhere),
            sender_name=whose,
            attachments=() if whose == "you" else tuple(attachments(elsewhere)),
        )
    return None


def _described(message: Message | ExternalReplyInfo) -> str:
    contents = "\n".join(filter(None, (text_of(message), describe_contents(message))))
    file = next(attachments(message), None)
    return contents or (f"[{file.kind}]" if file else opaque_kind(message))
