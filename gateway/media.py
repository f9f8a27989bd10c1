"""Files that came with a message: fetched when their message is taken up, saved in the workspace, named to the model."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from adapters.base import Adapter, DeliveryError, FetchesMedia, TryLater
from gateway.agent.asking import ModelError
from gateway.fetching import Fetch, Fetcher, NotFetched
from gateway.observe.logging import get_logger
from gateway.received import in_words, put, safe_name, told
from gateway.texts import say
from sessions.messages import Attachment, AttachmentKind

log = get_logger(__name__)

_TRIES = 3


class Transcribes(Protocol):
    async def transcribe(self, audio: bytes, name: str) -> str: ...


class Media:
    """`adapters` are those that run now. `limit` is the largest file that is fetched, in bytes. `fetch` follows addresses."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        *,
        limit: Callable[[], int],
        transcriber: Callable[[], Transcribes | None] = lambda: None,
        fetch: Fetch | None = None,
        pause: float = 1.0,
    ) -> None:
        self._adapters = adapters
        self._limit = limit
        self._transcriber = transcriber
        self._fetch_address = fetch or Fetcher().fetch
        self._pause = pause

    async def settle(self, attachment: Mapping[str, Any], inbox: Path) -> tuple[dict[str, Any], str]:
        """The attachment with where it is now (or that it is gone), and a line that tells the model. Never raises."""
        name = safe_name(str(attachment.get("name") or "file"))
        size = attachment.get("size")
        limit = self._limit()
        if size is not None and size > limit:
            line = say("limits.file_too_big", name=name, size=in_words(size), limit=in_words(limit))
            return {**attachment, "gone": True}, f"[{line}]"
        try:
            data, mime = await self._fetch(attachment, limit)
            path = await asyncio.to_thread(put, inbox, name, data)
        except NotFetched as error:
            log.warning("media.not_fetched", name=name, error=str(error))
            return {**_without_address(attachment), "gone": True}, f"[file {name} is not there: {error}]"
        except (DeliveryError, OSError) as error:
            log.warning("media.gone", name=name, error=str(error))
            line = say("limits.file_gone", name=name, platform=str(attachment.get("platform", "")).title())
            return {**attachment, "gone": True}, f"[{line}]"
        settled = {**_without_address(attachment), "mime": mime, "path": str(path), "size": len(data)}
        return settled, await self._line(settled, path, data)

    async def _fetch(self, attachment: Mapping[str, Any], limit: int) -> tuple[bytes, str]:
        """The bytes and what they are."""
        if address := attachment.get("address"):
            found = await self._fetch_address(str(address), limit)
            return found.data, found.mime
        return await self._fetch_from_platform(attachment, limit), str(attachment.get("mime", ""))

    async def _fetch_from_platform(self, attachment: Mapping[str, Any], limit: int) -> bytes:
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
        return told(kind, path, str(attachment.get("mime", "")), len(data))


def _without_address(attachment: Mapping[str, Any]) -> dict[str, Any]:
    """It has served, and may hold a secret."""
    return {key: value for key, value in attachment.items() if key != "address"}
