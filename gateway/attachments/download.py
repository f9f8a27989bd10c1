"""Downloads the files of a message when it is taken up, saves them in the workspace, and names them to the model."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from adapters.base import Adapter, DeliveryError, TryLater
from adapters.registry import title_of
from gateway.attachments.inbox_files import describe_file, safe_name
from gateway.attachments.safe_fetch import Fetch, Fetcher, NotFetched
from gateway.observe.logging import get_logger
from gateway.texts import format_size, say
from gateway.texts.quoting import as_quoted, escape_speaker_marks
from sessions.messages import Attachment, AttachmentKind

log = get_logger(__name__)

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
RETRY_SECONDS = 60.0
"""How long downloads from a platform that fails are repeated, all its files together, however long it asks us to wait."""


Save = Callable[[str, bytes], Awaitable[Path]]
"""Saves a file under this name, or one like it. Raises OSError."""


class NotTranscribed(Exception):
    """The recording could not be turned into text. `str()` is for the operator."""


class Transcribes(Protocol):
    async def transcribe(self, audio: bytes, name: str) -> str:
        """Returns the text of a recording. Raises NotTranscribed."""
        ...


class AttachmentDownloader:
    """Downloads attachments. `adapters` are those that run now, `limit` returns the largest file that is fetched, in bytes; `fetch`
    follows addresses.
    """

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        *,
        limit: Callable[[], int],
        transcriber: Callable[[], Transcribes | None] = lambda: None,
        fetch: Fetch | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._adapters = adapters
        self._limit = limit
        self._transcriber = transcriber
        self._fetch_address = fetch or Fetcher().fetch
        self._monotonic = monotonic
        self._sleep = sleep
        self._failing_since: dict[str, float] = {}  # since when a platform has given nothing

    async def settle(self, file: Attachment, save: Save) -> tuple[Attachment, str]:
        """Returns the file with its path, or marked as gone, and a line for the model. Raises only what `save` raises beside OSError."""
        name, limit = safe_name(file.name or "file"), self._limit()
        if file.size is not None and file.size > limit:
            line = say("limits.file_too_big", name=name, size=format_size(file.size), limit=format_size(limit))
            return replace(file, gone=True), f"[{line}]"
        try:
            data, mime = await self._fetch(file, limit)
            path = await save(name, data)
        except NotFetched as error:
            log.warning("media.not_fetched", name=name, error=str(error))
            return replace(file, address="", gone=True), f"[file {name} is not there: {error}]"
        except (DeliveryError, OSError) as error:
            log.warning("media.gone", name=name, error=str(error))
            reason = "limits.file_not_now" if isinstance(error, TryLater) else "limits.file_gone"
            line = say(reason, name=name, platform=title_of(file.platform))
            return replace(file, gone=True), f"[{line}]"
        settled = replace(file, address="", mime=mime, path=str(path), size=len(data))  # the address may hold a secret
        return settled, await self._line(settled, path, data)

    async def _fetch(self, file: Attachment, limit: int) -> tuple[bytes, str]:
        """Returns the bytes and their media type."""
        if file.address:
            found = await self._fetch_address(file.address, limit)
            return found.data, found.mime
        adapter = self._adapters.get(file.platform)
        if adapter is None:
            raise DeliveryError("the platform is not connected")
        fetch = partial(adapter.fetch, file, limit)
        return await self._with_retries(str(adapter.platform), fetch), file.mime

    async def _with_retries(self, platform: str, fetch: Callable[[], Awaitable[bytes]]) -> bytes:
        """Repeats the download for a minute in all. In an outage the files of one message share that minute."""
        for pause in (*PAUSES, None):
            try:
                data = await fetch()
            except TryLater as error:
                wait = max(pause or 0, error.after or 0)
                if pause is None or self._failing_for(platform) + wait > RETRY_SECONDS:
                    raise
                await self._sleep(wait)
            else:
                self._failing_since.pop(platform, None)
                return data
        raise AssertionError("unreachable")

    def _failing_for(self, platform: str) -> float:
        """Returns for how many seconds this platform has failed. An old failure that did not come back does not count."""
        now = self._monotonic()
        since = self._failing_since.get(platform, now)
        self._failing_since[platform] = since if now - since < 2 * RETRY_SECONDS else now
        return now - self._failing_since[platform]

    async def _line(self, file: Attachment, path: Path, data: bytes) -> str:
        transcriber = self._transcriber() if file.kind is AttachmentKind.VOICE else None
        if transcriber is not None:
            try:
                return _transcript_line(await transcriber.transcribe(data, path.name), file.of, path)
            except NotTranscribed as error:
                log.warning("voice.not_understood", error=str(error))
        kind = {AttachmentKind.IMAGE: "picture", AttachmentKind.VOICE: "voice message"}.get(file.kind, "file")
        return describe_file(kind, path, file.mime, len(data))


def _transcript_line(said: str, whose: str, path: Path) -> str:
    """Returns the transcript as a line; that of a quoted message is quoted, because the sender did not say it."""
    return f"(what {whose} says in {path.name}:)\n{as_quoted(said)}" if whose else escape_speaker_marks(said)
