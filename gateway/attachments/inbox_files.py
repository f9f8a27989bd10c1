"""Saves files from outside in the inbox/ folder of a workspace, not the inbox table: under safe names, and never over another file."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from gateway.texts import format_size
from sessions.files import numbered

_UNSAFE = re.compile(r"[^\w.() -]+")
_NOT_MIME = re.compile(r"[^\w.+/-]+")
_NAME_BYTES = 200
INBOX = "inbox"
"""The folder of a workspace in which received files lie."""
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def safe_name(name: str) -> str:
    """Returns a single file name without any path, whatever the sender called the file."""
    base = _UNSAFE.sub("_", Path(name.replace("\\", "/")).name).strip(". ") or "file"
    stem, dot, ending = base.rpartition(".")
    if len(base.encode()) <= _NAME_BYTES:
        return base
    kept = f"{dot}{ending}" if stem and len(ending) <= 16 else ""
    return base.encode()[: _NAME_BYTES - len(kept.encode())].decode(errors="ignore") + kept


def save_file(inbox: Path, name: str, data: bytes | Iterable[bytes]) -> Path:
    """Saves the data, or its pieces, with mode 0600. Raises OSError. Blocks."""
    make_room(inbox)
    wanted = safe_name(name)
    for path in numbered(inbox / wanted):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
        return path
    raise OSError(f"there are too many files called {wanted}")


def make_room(folder: Path) -> None:
    """Creates a folder that the gateway needs in a workspace. A file or link of the agent with that name is
    renamed. Blocks."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        numbers = (folder.with_name(f"{folder.name} ({number})") for number in range(2, 10_000))
        folder.rename(next(name for name in numbers if not os.path.lexists(name)))
    folder.mkdir(mode=0o700, exist_ok=True)


def describe_file(kind: str, path: Path, mime: str, size: int) -> str:
    """Returns the line that the model reads. Neither name nor type can add words to it."""
    return f"[{kind} inbox/{path.name}, {_NOT_MIME.sub('_', mime)[:80]}, {format_size(size)}]"


def detect_type(head: bytes) -> str | None:
    """Returns the media type by the first 256 bytes: an error page that is named as a picture is not one."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "text/html"
    return next((mime for start, mime in _SIGNATURES if head.startswith(start)), None)
