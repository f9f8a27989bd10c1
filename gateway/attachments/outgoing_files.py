"""Sends a file of the workspace to the chat: puts it into the outbox, before the text of the answer. Keeps answers that are said aloud."""

import hashlib
import mimetypes
import shutil
from collections.abc import Collection
from pathlib import Path

from sqlalchemy import Connection

from sessions import outbox, runs
from sessions.errors import NotFound
from sessions.messages import Attachment, AttachmentKind, Content

MAX_BYTES = 50_000_000
MAX_CAPTION = 1_000


class NotSendable(Exception):
    """This file cannot be sent. `str()` says why."""


def enclosed(file: Path, caption: str, outgoing: Path, call_key: str) -> Content:
    """Copies the file, because the agent may change it before it is sent, and returns the outbox body that names the copy. A repeated call
    (`call_key`) finds the first copy. Raises NotSendable and OSError. Blocks.
    """
    if not file.is_file():
        raise NotSendable(f"there is no file {file.name}; the action list shows what there is")
    size = file.stat().st_size
    if not 0 < size <= MAX_BYTES:
        raise NotSendable(f"{file.name} has {size:,} bytes; 1 to {MAX_BYTES:,} can be sent")
    folder = outgoing / folder_of(f"{outbox.FILE}{call_key}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy, part = folder / file.name, folder / ".part"
    if not copy.exists():  # a part is never sent: it gets its name when it is whole
        shutil.copyfile(file, part)
        part.chmod(0o600)
        part.replace(copy)
    mime = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    kind = AttachmentKind.IMAGE if mime.startswith("image/") else AttachmentKind.FILE
    attachment = Attachment(kind=kind, name=file.name, mime=mime, size=copy.stat().st_size, path=str(copy))
    return Content(text=caption[:MAX_CAPTION], attachments=(attachment,))


def recording(outgoing: Path, dedup_key: str) -> Path:
    """Returns where the message with this key lies when it is said aloud."""
    return outgoing / folder_of(dedup_key) / "answer.ogg"


def keep_recording(path: Path, data: bytes) -> None:
    """Writes a recording, which has its name only when it is whole. Raises OSError. Blocks."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(".part")
    part.write_bytes(data)
    part.chmod(0o600)
    part.replace(path)


def folder_of(dedup_key: str) -> str:
    return hashlib.sha256(dedup_key.encode()).hexdigest()[:24]


def send(conn: Connection, run_id: str, call_key: str, body: Content, now: int) -> bool:
    """Puts the file into the outbox, once, however often the call is repeated. Returns False when the session is in no chat."""
    try:
        run = runs.get(conn, run_id)
    except NotFound:  # a call that keeps nothing
        return False
    if run.route is None:
        return False
    key = f"{outbox.FILE}{call_key}"
    outbox.put(conn, run.route, body, now, dedup_key=key, session_key=run.session_key, run_id=run.id)
    return True


def prune(outgoing: Path, unsent: Collection[str], before: float) -> None:
    """Deletes copies older than `before` (in seconds) that no message waits for. `unsent`: the keys of those that wait. Blocks."""
    waiting = {folder_of(key) for key in unsent}
    # The age spares copies whose message is not in the outbox yet.
    for folder in outgoing.iterdir() if outgoing.is_dir() else ():
        if folder.name not in waiting and folder.stat().st_mtime < before:
            shutil.rmtree(folder, ignore_errors=True)
