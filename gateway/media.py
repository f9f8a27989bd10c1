"""Files that came with a message: fetched when their message is taken up, saved in the workspace, named to the model."""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import structlog

from adapters.base import Adapter, DeliveryError, FetchesMedia, TryLater
from gateway.agent.asking import ModelError
from gateway.texts import say
from sessions.messages import Attachment, AttachmentKind

log = structlog.get_logger(__name__)

_UNSAFE = re.compile(r"[^\w.() -]+")
_MIME = re.compile(r"[^\w.+/-]+")
_NAME_BYTES = 200
_TRIES = 3


class Transcribes(Protocol):
    async def transcribe(self, audio: bytes, name: str) -> str: ...


class Media:
    """`adapters` are those that run now. `limit` is the largest file that is fetched, in bytes."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        *,
        limit: Callable[[], int],
        transcriber: Callable[[], Transcribes | None] = lambda: None,
        pause: float = 1.0,
    ) -> None:
        self._adapters = adapters
        self._limit = limit
        self._transcriber = transcriber
        self._pause = pause

    async def settle(self, attachment: Mapping[str, Any], inbox: Path) -> tuple[dict[str, Any], str]:
        """The attachment with where it is now (or that it is gone), and a line that tells the model. Never raises."""
        name = safe_name(str(attachment.get("name") or "file"))
        size = attachment.get("size")
        limit = self._limit()
        if size is not None and size > limit:
            line = say("limits.file_too_big", name=name, size=_size(size), limit=_size(limit))
            return {**attachment, "gone": True}, f"[{line}]"
        try:
            data = await self._fetch(attachment, limit)
            path = await asyncio.to_thread(_save, inbox, name, data)
        except (DeliveryError, OSError) as error:
            log.warning("media.gone", name=name, error=str(error))
            line = say("limits.file_gone", name=name, platform=str(attachment.get("platform", "")).title())
            return {**attachment, "gone": True}, f"[{line}]"
        settled = {**attachment, "path": str(path), "size": len(data)}
        return settled, await self._line(settled, path, data)

    async def _fetch(self, attachment: Mapping[str, Any], limit: int) -> bytes:
        adapter = self._adapters.get(str(attachment.get("platform", "")))
        if not isinstance(adapter, FetchesMedia):
            raise DeliveryError("the platform is not connected")
        wanted = Attachment(
            kind=AttachmentKind(attachment["kind"]),
            name=str(attachment["name"]),
            mime=str(attachment["mime"]),
            ref=str(attachment["ref"]),
        )
        for left in range(_TRIES - 1, -1, -1):
            try:
                return await adapter.fetch(wanted, limit)
            except TryLater:
                if not left:
                    raise
                await asyncio.sleep(self._pause)
        raise AssertionError("unreachable")

    async def _line(self, attachment: Mapping[str, Any], path: Path, data: bytes) -> str:
        transcriber = self._transcriber() if attachment["kind"] == AttachmentKind.VOICE else None
        if transcriber is not None:
            try:
                return await transcriber.transcribe(data, path.name)
            except ModelError as error:
                log.warning("voice.not_understood", error=str(error))
        kind = {AttachmentKind.IMAGE: "picture", AttachmentKind.VOICE: "voice message"}.get(attachment["kind"], "file")
        mime = _MIME.sub("_", str(attachment.get("mime", "")))[:80]
        return f"[{kind} inbox/{path.name}, {mime}, {_size(len(data))}]"


def _size(size: int) -> str:
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{max(1, size // 1024)} kB"


def safe_name(name: str) -> str:
    """One file name, whatever somebody called their file."""
    base = _UNSAFE.sub("_", Path(name.replace("\\", "/")).name).strip(". ") or "file"
    stem, dot, ending = base.rpartition(".")
    if len(base.encode()) <= _NAME_BYTES:
        return base
    kept = f"{dot}{ending}" if stem and len(ending) <= 16 else ""
    return base.encode()[: _NAME_BYTES - len(kept.encode())].decode(errors="ignore") + kept


def _save(inbox: Path, name: str, data: bytes) -> Path:
    """Never over another file."""
    inbox.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = safe_name(name)
    stem, dot, ending = wanted.rpartition(".")
    for number in range(1, 10_000):
        path = inbox / (wanted if number == 1 else f"{stem or ending} ({number}){dot}{ending if stem else ''}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return path
    raise OSError(f"there are too many files called {wanted}")
