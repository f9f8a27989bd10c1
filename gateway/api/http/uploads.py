"""Files in API messages. Data is saved in the inbox/ folder of the workspace; addresses are fetched when a run takes the message in."""

import asyncio
import binascii
import mimetypes
import re
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote

from pydantic import BaseModel

from gateway.agent.models.interface import JSON
from gateway.api.http.body_files import DetachedFiles, is_data, split
from gateway.api.http.endpoint import ApiCall
from gateway.api.http.errors import ApiError, invalid, too_large
from gateway.api.http.parsing import place_of
from gateway.attachments.inbox_files import INBOX, describe_file, detect_type, save_file
from gateway.attachments.safe_fetch import NotFetched
from gateway.attachments.shared_files import remove_received, save_received
from sessions.errors import DayLimitReached, NotFound
from sessions.messages import Attachment, AttachmentKind

_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_SLICE = 65_536
_UNKNOWN = "application/octet-stream"
REFUSALS = (ApiError, NotFound, DayLimitReached)
"""Errors after which a message is surely not stored. After any other it may be stored all the same, and needs its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One file as it was sent. `mime`: what it is said to be. `source`: base64, a data: URL, or an http address.

    `part`: the kind of part that the model has to get it as. None: the model reads its name, and may open it with a tool.
    """

    source: str
    name: str = ""
    mime: str = ""
    part: Literal["image_url", "file", "input_audio"] | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUploads:
    """The files as the journal has them, and a line about each file that the model does not get otherwise."""

    files: Sequence[Attachment] = ()
    lines: Sequence[str] = ()


class UploadedFiles:
    """The files of one request, in the inbox of the workspace of one namespace."""

    def __init__(self, namespace: str, call: ApiCall[Any, Any]) -> None:
        self._namespace = namespace
        self._server = call.server
        self._sent: BaseModel = call.body
        self._detached = call.files
        self._written: list[Path] = []
        self._count = 0
        self.unwanted = False

    async def take(self, uploads: Sequence[Upload]) -> StoredUploads:
        """Saves the files of one message. Raises ApiError when they are too many or too large."""
        self._count += len(uploads)
        if self._count > self._server.limits.files_per_call:
            raise too_large(f"A request may have {self._server.limits.files_per_call} files.")
        found = [await self._take(upload) for upload in uploads]
        lines = [line for _, line in found if line]
        return StoredUploads(files=[file for file, _ in found], lines=lines)

    async def _take(self, upload: Upload) -> tuple[Attachment, str]:
        if "://" in upload.source[:8]:
            return self._by_address(upload), ""
        promised, encoded = split(upload.source) if is_data(upload.source) else (None, upload.source)
        head, size, pieces = await asyncio.to_thread(self._contents, encoded)
        # By its first bytes, where they say it: what a file is called, and what is promised about it, may be wrong.
        mime = detect_type(head) or promised or upload.mime or _UNKNOWN
        name = upload.name or f"{secrets.token_hex(4)}{mimetypes.guess_extension(mime) or ''}"
        app = self._server.app
        inbox = app.workspace(self._namespace) / INBOX
        path = await save_received(app, self._namespace, lambda: save_file(inbox, name, pieces))
        self._written.append(path)
        kind = AttachmentKind.IMAGE if mime in _PICTURES else AttachmentKind.FILE
        file = Attachment(
            kind=kind, name=path.name, mime=mime, size=size, path=str(path), part=upload.part, detail=upload.detail
        )
        return file, "" if kind is AttachmentKind.IMAGE else describe_file(kind, path, mime, size)

    def _contents(self, encoded: str) -> tuple[bytes, int, Iterable[bytes]]:
        """Returns the first bytes, the size, and all pieces of a file. Raises ApiError when it is too large."""
        limit, detached = self._server.app.config.limits.attachment_bytes, self._detached.get(encoded)
        size = len(encoded) // 4 * 3 - encoded[-2:].count("=") if detached is None else detached.size
        if size > limit:
            raise too_large(f"A file may have {limit:,} bytes.")
        if detached is not None:
            return next(self._detached.pieces(detached, 256), b""), size, self._detached.pieces(detached)
        slices = (encoded[at : at + _SLICE] for at in range(0, len(encoded), _SLICE))
        data = [binascii.a2b_base64(letters) for letters in slices]  # as a whole it would hold the GIL
        return b"".join(data[:1])[:256], size, data

    def _by_address(self, upload: Upload) -> Attachment:
        """Returns the file as it is stored. The address of a picture goes to the model; other files are fetched when a run takes the
        message in. Raises ApiError when the address is not public.
        """
        name = upload.name or _name_in(upload.source)
        try:
            self._server.fetcher.check(upload.source)
        except NotFetched as error:
            raise invalid(str(error), code="bad_url", param=place_of(upload.source, self._sent.model_dump())) from None
        if upload.mime.startswith("image/"):
            file = Attachment(kind=AttachmentKind.IMAGE, name=name, mime=upload.mime, url=upload.source)
        else:
            mime = upload.mime or mimetypes.guess_type(name)[0] or _UNKNOWN
            file = Attachment(kind=AttachmentKind.FILE, name=name, mime=mime, address=upload.source)
        return replace(file, part=upload.part, detail=upload.detail)

    async def remove(self) -> None:
        await remove_received(self._server.app, self._namespace, self._written)


@asynccontextmanager
async def uploaded_files(call: ApiCall[Any, Any], namespace: str) -> AsyncGenerator[UploadedFiles]:
    """Saves the files while the message is admitted. When the message is refused, or the block sets `unwanted`, removes them again."""
    inbox_files = UploadedFiles(namespace, call)
    try:
        yield inbox_files
    except REFUSALS:
        inbox_files.unwanted = True
        raise
    finally:
        if inbox_files.unwanted:
            await inbox_files.remove()


def _name_in(address: str) -> str:
    return unquote(re.split(r"[?#]", address, maxsplit=1)[0].rpartition("/")[2]) or "file"


def upload_in(part: JSON) -> Upload | None:
    """Returns the file in one content part of a message; None: it holds none."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url), **more}}:
            return Upload(source=url, mime="image/*", part="image_url", detail=more.get("detail"))
        case {"type": "file", "file": {"file_data": str(data), **more}}:
            return Upload(source=data, name=str(more.get("filename") or ""), part="file")
        case {"type": "file", "file": {"file_url": str(url), **more}}:
            return Upload(source=url, name=str(more.get("filename") or ""), part="file")
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            return Upload(source=data, name=f"audio.{form}", mime=f"audio/{form}", part="input_audio", detail=form)
        case _:
            return None


async def embedded(call: ApiCall[Any, Any], messages: Sequence[JSON]) -> Sequence[JSON]:
    """Returns the messages with the contents of all files: models do not follow addresses, and know none of our tokens."""
    found: list[JSON] = []
    for message in messages:
        content: Any = message.get("content")
        if isinstance(content, list):
            content = [await _embedded(call, part) for part in cast(list[JSON], content)]
        found.append({**message, "content": content} if content is not None else message)
    return found


async def _embedded(call: ApiCall[Any, Any], part: JSON) -> JSON:
    server = call.server
    match part:
        case {"type": "file", "file": {"file_url": str(url), **more}} if not more.get("file_data"):
            name = str(more.get("filename") or _name_in(url))
            try:
                found = await server.fetcher.fetch(url, server.app.config.limits.attachment_bytes)
            except NotFetched as error:
                return {"type": "text", "text": f"[file {name} is not there: {error}]"}
            encoded = await asyncio.to_thread(binascii.b2a_base64, found.data, newline=False)
            data = f"data:{found.mime};base64,{encoded.decode()}"
            return {"type": "file", "file": {"filename": name, "file_data": data}}
        case {"type": "image_url", "image_url": {"url": str(url)}} if not is_data(url):
            try:
                server.fetcher.check(url)  # the endpoint follows it, and may stand in our network
            except NotFetched as error:
                raise invalid(str(error), code="bad_url", param="image_url") from None
            return part
        case _:
            return await asyncio.to_thread(attached, call.files, part)


def attached(files: DetachedFiles, part: JSON) -> JSON:
    """Returns a part of a message with its file instead of the token that stands for it. Blocks."""
    kind: Any = part.get(part["type"])
    if not isinstance(kind, dict):
        return part
    fields = cast(JSON, kind).items()
    return {**part, part["type"]: {name: files.whole(it) if isinstance(it, str) else it for name, it in fields}}
