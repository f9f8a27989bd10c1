"""Images that came with a message, as parts that a model can look at."""

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.agent.asking import JSON
from sessions.records import Message

MAX_IMAGE = 5_000_000
_KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


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
