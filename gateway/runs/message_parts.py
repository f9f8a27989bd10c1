"""Reads pictures, files and recordings that came with a message, as parts that a model can look at."""

import asyncio
import binascii
import os
import stat
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
_ADDRESSES = ("https://", "http://", "data:")
_KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def parts_to_show(
    history: Sequence[Message], run_id: str, *, every: bool, workspaces: Path
) -> Mapping[int, Sequence[JSON]]:
    """Returns the pictures and files that the model is shown, by message. `every`: all of the new ones, however many and large. A file that
    does not lie below `workspaces` is not read, whoever has written its path.
    """
    root = await asyncio.to_thread(workspaces.resolve)
    with_parts = [message for message in history if message.attachments]
    new = [message for message in with_parts if message.run_id == run_id]
    earlier = [message for message in with_parts if message.run_id != run_id][-EARLIER:]
    shown = {message.id: (await _parts_of(message, root))[:EARLIER] for message in earlier}
    if every:
        return shown | {message.id: await _parts_of(message, root, whole=True) for message in new}
    return shown | {message.id: (await _parts_of(message, root))[:NEW] for message in new[-NEW:]}


async def _parts_of(message: Message, root: Path, *, whole: bool = False) -> Sequence[JSON]:
    """Returns the parts of one message: saved files as data URLs, addresses as they are. A file that is gone or, unless `whole`, too
    large is left out; its name is in the text.
    """
    parts = [await _part(file, root, None if whole else MAX_IMAGE) for file in message.attachments]
    return [part for part in parts if part is not None]


async def _part(file: StoredFile, root: Path, limit: int | None) -> JSON | None:
    sent_as = file.part or ("image_url" if file.kind is AttachmentKind.IMAGE else None)
    match sent_as:
        case "image_url" if file.url:
            return _picture(file.url, file) if file.url.startswith(_ADDRESSES) else None
        case "image_url" if file.path and (file.mime in _KINDS or file.part):
            data = await asyncio.to_thread(_read, Path(file.path), root, file.mime, limit)
            return None if data is None else _picture(data, file)
        case "file" if file.path:
            data = await asyncio.to_thread(_read, Path(file.path), root, file.mime, limit)
            return None if data is None else {"type": "file", "file": {"filename": file.name, "file_data": data}}
        case "input_audio" if file.path:
            data = await asyncio.to_thread(_read, Path(file.path), root, file.mime, limit)
            sound = {"data": (data or "").partition(",")[2], "format": file.detail or ""}
            return None if data is None else {"type": "input_audio", "input_audio": sound}
        case _:
            return None


def _picture(url: str, file: StoredFile) -> JSON:
    detail = {"detail": file.detail} if file.detail else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _read(path: Path, root: Path, mime: str, limit: int | None) -> str | None:
    """Returns the file as a data: URL; None where it is gone, too large, or not below `root`. Encodes in slices: 18 MB at once would hold the GIL all the
    time.
    """
    try:
        place = path.resolve()
        if not place.is_relative_to(root):
            return None
        # O_NONBLOCK: to open a pipe waits for its writer otherwise, for ever.
        with os.fdopen(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode) or (limit is not None and seen.st_size > limit):
                return None
            slices = iter(lambda: file.read(_SLICE), b"")
            encoded = [binascii.b2a_base64(data, newline=False).decode() for data in slices]
    except OSError:
        return None
    return "".join([f"data:{mime};base64,", *encoded])
