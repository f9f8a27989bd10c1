"""Reads the files of a Discord message, and describes other contents to the model in words."""

from collections.abc import Iterator

import discord

from sessions.messages import Attachment, AttachmentKind

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


def describe_contents(said: discord.Message) -> str:
    """Describes contents besides text in one line; empty when there are none."""
    lines = [f"[sticker {sticker.name}]" for sticker in said.stickers]
    if said.poll is not None:
        lines.append(f"[poll: {said.poll.question} ({' / '.join(answer.text for answer in said.poll.answers)})]")
    lines += [snapshot.content for snapshot in said.message_snapshots if snapshot.content]
    return "\n".join(lines)
