"""Images that came with a message, as parts that a model can look at."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.agent.asking import JSON
from sessions.records import Message

MAX_IMAGE = 5_000_000
NEW, EARLIER = 10, 4
"""Of so many messages, and so many of each: of those that are being answered (an album has ten), and of those before."""
_KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def looked_at(history: Sequence[Message], run_id: str) -> Mapping[int, Sequence[JSON]]:
    """The pictures that the model is shown, by message."""
    pictured = [message for message in history if message.attachments]
    new = [message for message in pictured if message.run_id == run_id][-NEW:]
    earlier = [message for message in pictured if message.run_id != run_id][-EARLIER:]
    shown = {message.id: (await pictures_of(message))[:EARLIER] for message in earlier}
    return shown | {message.id: (await pictures_of(message))[:NEW] for message in new}


async def pictures_of(message: Message) -> Sequence[JSON]:
    """Saved files become data URLs, addresses stay; what is gone or too large is left out (its name is in the text)."""
    parts = [await _part(attachment) for attachment in message.attachments or ()]
    return [part for part in parts if part is not None]


async def _part(attachment: dict[str, Any]) -> JSON | None:
    if attachment.get("kind") != "image":
        return None
    if url := attachment.get("url"):
        return {"type": "image_url", "image_url": {"url": url}}
    path, mime = attachment.get("path"), attachment.get("mime", "")
    if not path or mime not in _KINDS:
        return None
    data = await asyncio.to_thread(_read, Path(path))
    return None if data is None else {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > MAX_IMAGE:
            return None
        return base64.b64encode(path.read_bytes()).decode()
    except OSError:
        return None
