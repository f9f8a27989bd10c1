"""Reads the files of a Discord message, and describes other contents to the model in words: of a message, of one that is quoted, of one that is passed on."""

from collections.abc import Iterator
from typing import Any

import discord

from adapters.payload import Json, part, parts, text
from sessions.messages import Attachment, AttachmentKind

_DEEPEST = 8
_PICTURES = {"image/jpeg", "image/png", "image/gif", "image/webp"}


def attachments(said: discord.Message) -> Iterator[Attachment]:
    """Returns the files of the message. `ref` holds the address, and the message in which a new address is found when that one has run
    out.
    """
    found = [*said.attachments, *(file for snapshot in said.message_snapshots for file in snapshot.attachments)]
    for file in found:
        mime = (file.content_type or "application/octet-stream").partition(";")[0]
        yield Attachment(
            kind=AttachmentKind.VOICE if file.is_voice_message() else _kind(mime),
            name=file.filename,
            mime=mime,
            size=file.size,
            ref=f"{said.channel.id}/{said.id}/{file.id}|{file.url}",
        )


def _kind(mime: str) -> AttachmentKind:
    if mime in _PICTURES:
        return AttachmentKind.IMAGE
    return {"audio": AttachmentKind.AUDIO, "video": AttachmentKind.VIDEO}.get(
        mime.partition("/")[0], AttachmentKind.FILE
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
