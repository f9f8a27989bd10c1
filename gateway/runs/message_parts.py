"""Pictures and files that came with a message, as parts that a model can look at."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.agent.models.interface import JSON
from sessions.messages import AttachmentKind
from sessions.records import Message
from sessions.stored_files import StoredFile

MAX_IMAGE = 5_000_000
NEW, EARLIER = 10, 4
"""Of so many messages, and so many of each: of those that are being answered (an album has ten), and of those before."""
_KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def parts_to_show(history: Sequence[Message], run_id: str, *, every: bool) -> Mapping[int, Sequence[JSON]]:
    """The pictures and files that the model is shown, by message. `every`: of the new ones all, however many and large they are."""
    with_parts = [message for message in history if message.attachments]
    new = [message for message in with_parts if message.run_id == run_id]
    earlier = [message for message in with_parts if message.run_id != run_id][-EARLIER:]
    shown = {message.id: (await parts_of(message))[:EARLIER] for message in earlier}
    if every:
        return shown | {message.id: await parts_of(message, whole=True) for message in new}
    return shown | {message.id: (await parts_of(message))[:NEW] for message in new[-NEW:]}


async def parts_of(message: Message, *, whole: bool = False) -> Sequence[JSON]:
    """Saved files become data URLs, addresses stay; what is gone or, unless `whole`, too large is left out (its name is in the text)."""
    parts = [await _part(file, None if whole else MAX_IMAGE) for file in message.attachments]
    return [part for part in parts if part is not None]


async def _part(file: StoredFile, limit: int | None) -> JSON | None:
    sent_as = file.part or ("image_url" if file.kind is AttachmentKind.IMAGE else None)
    match sent_as:
        case "image_url" if file.url:
            return _picture(file.url, file)
        case "image_url" if file.path and (file.mime in _KINDS or file.part):
            data = await asyncio.to_thread(_read, Path(file.path), limit)
            return None if data is None else _picture(f"data:{file.mime};base64,{data}", file)
        case "file" if file.path:
            data = await asyncio.to_thread(_read, Path(file.path), limit)
            return None if data is None else _file(file.name, f"data:{file.mime};base64,{data}")
        case _:
            return None


def _picture(url: str, file: StoredFile) -> JSON:
    detail = {"detail": file.detail} if file.detail else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _file(name: str, data: str) -> JSON:
    return {"type": "file", "file": {"filename": name, "file_data": data}}


def _read(path: Path, limit: int | None) -> str | None:
    try:
        if limit is not None and path.stat().st_size > limit:
            return None
        return base64.b64encode(path.read_bytes()).decode()
    except OSError:
        return None
