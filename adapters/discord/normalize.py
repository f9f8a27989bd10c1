"""Turns Discord's messages and interactions into neutral messages, and describes contents other than text to the model in words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import discord

from adapters.http import Json, attachment_kind, part, parts, text
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Attachment, AttachmentKind, Inbound, InboundKind, Quote

_START = re.compile(r"/?start\s+([A-Za-z0-9-]{8,9})", re.IGNORECASE)
_SAID = {discord.MessageType.default, discord.MessageType.reply}
_MENTION = re.compile(r"<@!?(\d+)>")
_ROLE = re.compile(r"<@&(\d+)>")
_CHANNEL = re.compile(r"<#(\d+)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordBot:
    id: int


def message(said: discord.Message, me: DiscordBot, kind: InboundKind = InboundKind.MESSAGE) -> Inbound | None:
    """Returns None for what no person said: other bots, webhooks, ourselves, service messages."""
    author = said.author
    if author.bot or said.webhook_id is not None or author.id == me.id or said.type not in _SAID:
        return None
    direct = said.guild is None
    role = said.guild.self_role if said.guild is not None else None
    our_role = role is not None and role in said.role_mentions
    named = our_role or re.search(rf"<@!?{me.id}>", said.content) is not None
    quote = _quote(said, me)
    replied = quote is not None and quote.from_us
    mentioned = direct or named or replied
    files = tuple(attachments(said))
    text = _text(said, me)
    words = "\n".join(filter(None, (text, describe_contents(said))))
    # An edit has the id of its message, so its time makes the key another one for each edit.
    edited = f":{said.edited_at.timestamp():.3f}" if kind is InboundKind.EDIT and said.edited_at else ""
    return Inbound(
        dedup_key=f"dc:{said.id}{edited}",
        address=address(said.channel.id, direct=direct),
        sender=Sender(id=str(author.id), name=author.display_name),
        message_id=str(said.id),
        text=_owner_code(words) if direct else words or (said.content if mentioned else ""),
        kind=kind,
        mentioned=mentioned,
        mentions_other=not mentioned and bool(said.mentions or said.role_mentions or said.mention_everyone),
        by_reply=not direct and replied and not named,
        quote=quote,
        forwarded_from="somebody" if said.message_snapshots else "",
        attachments=files,
        cut_off=len(said.content) >= 2000,  # the limit of a message: clients offer to send the rest as the next one
        chat_title=getattr(said.channel, "name", "") or "",
        parent_chat=_parent(said.channel),
        sent_at=int(said.created_at.timestamp() * 1000),
    )


def unreadable(raw: Json) -> Inbound | None:
    """Returns a message without contents for one that the library cannot read, if a person sent it to us directly: they hear so."""
    channel, author, number = text(raw, "channel_id"), part(raw, "author"), text(raw, "id")
    sender = Sender(id=text(author, "id"), name=text(author, "global_name") or text(author, "username"))
    is_said = raw.get("type") in {kind.value for kind in _SAID} and not author.get("bot") and "webhook_id" not in raw
    if "guild_id" in raw or not is_said or not (channel.isdecimal() and number.isdecimal() and sender.id.isdecimal()):
        return None
    where = address(int(channel), direct=True)
    return Inbound(dedup_key=f"dc:{number}", address=where, sender=sender, message_id=number)


def interaction(event: discord.Interaction[Any], data: Json) -> Inbound | None:
    """Returns the event of a tap on one of our buttons, or of a slash command; None for what we have not offered."""
    channel = event.channel_id
    if channel is None or event.user.bot:
        return None
    where = address(channel, direct=event.guild_id is None)
    sender = Sender(id=str(event.user.id), name=event.user.display_name)
    if event.type is discord.InteractionType.component and event.message is not None:
        return Inbound(
            dedup_key=f"dc:{event.id}",
            address=where,
            sender=sender,
            message_id=str(event.message.id),
            text=text(data, "custom_id"),
            kind=InboundKind.TAP,
            parent_chat=_parent(event.channel),
            tap_id=f"{event.id}:{event.token}",
        )
    if event.type is discord.InteractionType.application_command:
        argument = " ".join(text(option, "value") for option in parts(data, "options"))
        return Inbound(
            dedup_key=f"dc:{event.id}",
            address=where,
            sender=sender,
            message_id="",
            text=f"/{text(data, 'name')} {argument}".strip(),
            parent_chat=_parent(event.channel),
            respond_to=f"{event.application_id}:{event.token}",
        )
    return None


def address(channel_id: int, *, direct: bool) -> Address:
    """A thread is a channel with an id of its own."""
    kind = ChatKind.DM if direct else ChatKind.CHANNEL
    return Address(platform=Platform.DISCORD, kind=kind, chat_id=str(channel_id))


def _parent(channel: object) -> str:
    return str(channel.parent_id) if isinstance(channel, discord.Thread) else ""


def _owner_code(text: str) -> str:
    """Reads the code of a message `start CODE`: Discord's clients send no unknown slash commands as text."""
    found = _START.fullmatch(text.strip())
    return f"/start {found[1]}" if found else text


def _text(said: discord.Message, me: DiscordBot) -> str:
    """Returns the text as people read it, without our own mention."""
    text = re.sub(rf"\s*<@!?{me.id}>", "", said.content)
    role = said.guild.self_role if said.guild is not None else None
    if role is not None:
        text = re.sub(rf"\s*<@&{role.id}>", "", text)
    if text != said.content:
        text = re.sub(r"^[,:;]\s*", "", text.strip())
    return _with_names(text, said)


def _with_names(text: str, said: discord.Message) -> str:
    names = {str(user.id): user.display_name for user in said.mentions}
    text = _MENTION.sub(lambda found: f"@{names.get(found[1], found[1])}", text)
    roles = {str(role.id): role.name for role in said.role_mentions}
    text = _ROLE.sub(lambda found: f"@{roles.get(found[1], found[1])}", text)
    channels = {str(channel.id): channel.name for channel in said.channel_mentions}
    return _CHANNEL.sub(lambda found: f"#{channels.get(found[1], found[1])}", text)


def _quote(said: discord.Message, me: DiscordBot) -> Quote | None:
    reference = said.reference
    if reference is None or reference.message_id is None or said.type is not discord.MessageType.reply:
        return None
    resolved = reference.resolved  # no message where that is deleted
    if not isinstance(resolved, discord.Message):
        return Quote(message_id=str(reference.message_id))
    from_us = resolved.author.id == me.id
    words = "\n".join(filter(None, (_with_names(resolved.content, resolved), describe_contents(resolved, quoted=True))))
    return Quote(
        message_id=str(resolved.id),
        text=words or next((f"[{file.kind}]" for file in attachments(resolved)), ""),
        sender_name=resolved.author.display_name,
        from_us=from_us,
        attachments=() if from_us else tuple(attachments(resolved)),
    )


# --- contents ---

_DEEPEST = 8


def attachments(said: discord.Message) -> Iterator[Attachment]:
    """Returns the files of the message. `ref` holds the address, and the message in which a new address is found when that one has run
    out.
    """
    found = [*said.attachments, *(file for snapshot in said.message_snapshots for file in snapshot.attachments)]
    for file in found:
        mime = (file.content_type or "application/octet-stream").partition(";")[0]
        yield Attachment(
            kind=AttachmentKind.VOICE if file.is_voice_message() else attachment_kind(mime),
            name=file.filename,
            mime=mime,
            size=file.size,
            ref=f"{said.channel.id}/{said.id}/{file.id}|{file.url}",
        )


def describe_contents(said: discord.Message, *, quoted: bool = False) -> str:
    """Describes contents besides text; empty when there are none. `quoted`: also its embeds, which below what people write are mere
    previews of links.
    """
    lines = [*_stickers(said), *_components(said)]
    if said.poll is not None:
        lines.append(f"[poll: {said.poll.question} ({' / '.join(answer.text for answer in said.poll.answers)})]")
    if quoted:
        lines += map(_embed, said.embeds)
    for passed_on in said.message_snapshots:
        embeds = map(_embed, passed_on.embeds)
        lines += [passed_on.content, *embeds, *_components(passed_on), *_stickers(passed_on)]
    return "\n".join(filter(None, lines))


def _stickers(said: discord.Message | discord.MessageSnapshot) -> Iterator[str]:
    return (f"[sticker {sticker.name}]" for sticker in said.stickers)


def _embed(embed: discord.Embed) -> str:
    raw: Any = embed.to_dict()
    title, link = text(raw, "title"), text(raw, "url")
    lines = [
        text(part(raw, "author"), "name"),
        f"{title} ({link})" if title and link else title or link,
        text(raw, "description"),
        *(f"{text(field, 'name')}: {text(field, 'value')}" for field in parts(raw, "fields")),
        text(part(raw, "footer"), "text"),
    ]
    return "\n".join(filter(None, lines))


def _components(said: discord.Message | discord.MessageSnapshot) -> Iterator[str]:
    for component in getattr(said, "components", ()):  # the library sets it only where Discord sends the field
        raw: Any = component.to_dict()
        yield "\n".join(filter(None, _words(raw, 0)))


def _words(component: Json, depth: int) -> Iterator[str]:
    """Yields the words of a component and of those in it, whatever its kind."""
    if not component or depth > _DEEPEST:
        return
    label, link = text(component, "label"), text(component, "url")
    yield f"[{label} {link}]" if label and link else f"[{label}]" if label else ""
    yield from (text(component, key) for key in ("content", "description", "name"))
    for key in ("components", "items", "options"):
        for one in parts(component, key):
            yield from _words(one, depth + 1)
    for key in ("component", "accessory"):
        yield from _words(part(component, key), depth + 1)
