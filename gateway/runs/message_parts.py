"""Reads pictures and files that came with a message, as parts that a model can look at."""

import asyncio
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.agent.models.interface import JSON
from sessions.messages import AttachmentKind
from sessions.records import Message
from sessions.stored_files import StoredFile

MAX_IMAGE = 5_000_000
NEW, EARLIER = 10, 4
"""How many messages show their parts, and how many parts of each: of the messages that are being answered (an album has ten), and of
those before."""
_SLICE = 49_152
"""Bytes that make 64 kB of base64."""
_KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def parts_to_show(history: Sequence[Message], run_id: str, *, every: bool) -> Mapping[int, Sequence[JSON]]:
    """Returns the pictures and files that the model is shown, by message. `every`: all of the new ones, however many and large."""
    with_parts = [message for message in history if message.attachments]
    new = [message for message in with_parts if message.run_id == run_id]
    earlier = [message for message in with_parts if message.run_id != run_id][-EARLIER:]
    shown = {message.id: (await parts_of(message))[:EARLIER] for message in earlier}
    if every:
        return shown | {message.id: await parts_of(message, whole=True) for message in new}
    return shown | {message.id: (await parts_of(message))[:NEW] for message in new[-NEW:]}


async def parts_of(message: Message, *, whole: bool = False) -> Sequence[JSON]:
    """Returns the parts of one message: saved files as data URLs, addresses as they are. A file that is gone or, unless `whole`, too
    large is left out; its name is in the text.
    """
    parts = [await _part(file, None if whole else MAX_IMAGE) for file in message.attachments]
    return [part for part in parts if part is not None]


async def _part(file: StoredFile, limit: int | None) -> JSON | None:
    sent_as = file.part or ("image_url" if file.kind is AttachmentKind.IMAGE else None)
    match sent_as:
        case "image_url" if file.url:
            return _picture(file.url, file)
        case "image_url" if file.path and (file.mime in _KINDS or file.part):
            data = await asyncio.to_thread(_read, Path(file.path), file.mime, limit)
            return None if data is None else _picture(data, file)
        case "file" if file.path:
            data = await asyncio.to_thread(_read, Path(file.path), file.mime, limit)
            return None if data is None else {"type": "file", "file": {"filename": file.name, "file_data": data}}
        case _:
            return None


def _picture(url: str, file: StoredFile) -> JSON:
    detail = {"detail": file.detail} if file.detail else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _read(path: Path, mime: str, limit: int | None) -> str | None:
    """Returns the file as a data: URL; None where it is gone or too large. Encodes in slices: 18 MB at once would hold the GIL all the
    time.
    """
    try:
        if limit is not None and path.stat().st_size > limit:
            return None
        with path.open("rb") as file:
            slices = iter(lambda: file.read(_SLICE), b"")
            encoded = [binascii.b2a_base64(data, newline=False).decode() for data in slices]
    except OSError:
        return None
    return "".join([f"data:{mime};base64,", *encoded])
