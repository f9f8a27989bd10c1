"""Files that come with a message: into the workspace's inbox, under safe names, within limits."""

import asyncio
import base64
import binascii
import mimetypes
import os
import re
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from gateway.api.desk import Bounds
from gateway.api.errors import invalid, too_large

_DATA = re.compile(r"data:(?P<mime>[\w.+-]+/[\w.+-]+)?(?P<rest>(?:;[^,;]*)*),", re.ASCII)
_UNSAFE = re.compile(r"[^\w.() +-]+")
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def safe_name(name: str) -> str:
    """One file name that leads nowhere, whatever was sent."""
    last = name.replace("\\", "/").rpartition("/")[2]
    cleaned = _UNSAFE.sub("_", last).strip(". ")[-100:]
    return cleaned or "file"


def decode(data: str, limit: int) -> bytes:
    """Base64 within the limit. Raises ApiError. Takes time: not on the event loop."""
    if len(data) * 3 // 4 > limit + 3:
        raise too_large(f"An attachment may have {limit:,} bytes.")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("data is not valid base64.", code="bad_base64", param="data") from None


async def keep(folder: Path, name: str, mime: str, data: bytes) -> dict[str, Any]:
    """Save it and give it as an attachment of a message."""
    path = await asyncio.to_thread(_write, folder, safe_name(name), data)
    kind = "image" if mime in _PICTURES else "file"
    return {"kind": kind, "name": path.name, "mime": mime, "size": len(data), "path": str(path)}


def _write(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(4)}-{name}"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
    return path


async def keep_picture(url: str, folder: Path, bounds: Bounds) -> dict[str, Any]:
    """An image of a chat: data is saved, an address is left for the model to follow. Raises ApiError."""
    if not url.startswith("data:"):
        return {"kind": "image", "name": "image", "url": address(url)}
    mime, data = await asyncio.to_thread(_from_data_url, url, bounds.attachment_bytes)
    return await keep(folder, f"image{mimetypes.guess_extension(mime) or ''}", mime, data)


def address(url: str) -> str:
    """Raises ApiError for anything but http and https."""
    if not re.match(r"https?://[^\s/]+", url) or len(url) > 4_096:
        raise invalid("Give an http or https address, or a data: URL.", code="bad_url", param="url")
    return url


def _from_data_url(url: str, limit: int) -> tuple[str, bytes]:
    found = _DATA.match(url)
    if found is None:
        raise invalid("This data: URL cannot be read.", code="bad_url", param="url")
    rest = url[found.end() :]
    if "base64" in found["rest"]:
        return found["mime"] or "text/plain", decode(rest, limit)
    if len(rest) > limit:
        raise too_large(f"An attachment may have {limit:,} bytes.")
    return found["mime"] or "text/plain", unquote_to_bytes(rest)


async def receive(sent: dict[str, Any], folder: Path, bounds: Bounds) -> dict[str, Any]:
    """One attachment of a message: data is saved; of addresses, only images are taken, and the model follows them itself."""
    name, mime = str(sent["name"]), str(sent["type"])
    url = str(sent.get("url") or "")
    if sent.get("data") is not None:
        data = await asyncio.to_thread(decode, str(sent["data"]), bounds.attachment_bytes)
        return await keep(folder, name, mime, data)
    if url.startswith("data:"):
        mime, data = await asyncio.to_thread(_from_data_url, url, bounds.attachment_bytes)
        return await keep(folder, name, mime, data)
    if not mime.startswith("image/"):
        raise invalid(
            "Only images are taken by address. Send other files as base64 in data.", code="url_not_fetched", param="url"
        )
    return {"kind": "image", "name": safe_name(name), "mime": mime, "url": address(url)}
