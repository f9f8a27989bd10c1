"""The agent's files in the workspace of its namespace."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gateway.agent.tools.document_text import PDF, NoText, document_text, split_address
from gateway.agent.tools.registry import Arguments, FromOutside, Tool, ToolContext, ToolError
from gateway.attachments.inbox_files import INBOX
from gateway.attachments.outgoing_files import NotSendable, enclosed, send

MAX_FILE = 1_000_000
MAX_PDF = 50_000_000
MAX_LISTED = 500
MAX_FILES = 5_000


class FilesArguments(Arguments):
    keeps_empty = frozenset({"content"})  # an empty file can be written
    action: Literal["read", "write", "list", "delete", "send"]
    path: Annotated[str, Field(max_length=500, description="e.g. notes/plan.md")] = "."
    content: Annotated[str | None, Field(max_length=MAX_FILE, description="to write, or to say with a sent file")] = (
        None
    )


async def files(place: ToolContext, arguments: FilesArguments) -> str | FromOutside:
    """Files that you keep across conversations. send: puts a file into the chat."""
    path, workspace = arguments.path, place.workspace
    try:
        match arguments.action:
            case "read":
                return FromOutside(f"file {path}", await _read(workspace, path))
            case "send":
                return await _send(place, path, arguments.content or "")
            case "list":
                found = await asyncio.to_thread(lambda: list(_listing(inside(workspace, path), workspace)))
                return "\n".join(found) or "There are no files here yet."
            case "write":
                return await asyncio.to_thread(_write, workspace, inside(workspace, path), arguments.content)
            case "delete":
                await asyncio.to_thread(inside(workspace, path).unlink)
                return f"Deleted {path}."
    except FileNotFoundError as error:
        raise ToolError(f"there is no {path}; the action list shows what there is") from error
    except (IsADirectoryError, PermissionError) as error:  # unlink of a folder: the first on Linux, the second on macOS
        raise ToolError(f"{path} is a folder; name a file in it") from error
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error


async def _send(place: ToolContext, path: str, words: str) -> str:
    file = inside(place.workspace, path)
    try:
        body = await asyncio.to_thread(enclosed, file, words, place.outgoing, place.idem_key)
    except NotSendable as error:
        raise ToolError(str(error)) from error
    if place.files is not None:
        await place.files.put(Path(body.attachments[0].path))
    if not await place.database.write(send, place.run_id, place.idem_key, body, place.clock()):
        raise ToolError(f"this conversation is in no chat that takes files; tell where it is instead: {path}")
    return f"{path} is on its way into the chat."


async def _read(workspace: Path, path: str) -> str:
    """Returns the text of the file; of a PDF page by page, from the one that the end `#page=N` names."""
    name, page = split_address(path)
    data, size = await asyncio.to_thread(_bytes, inside(workspace, name))
    if data.startswith(b"%PDF-"):
        try:
            return (await document_text(data, PDF)).shown(page, name)
        except NoText as error:
            raise ToolError(f"{name}: {error}") from error
    if b"\0" in data[:8_000]:
        raise ToolError(f"{name} is no text file ({size} bytes)")
    return data[:MAX_FILE].decode("utf-8", errors="replace")


def inside(workspace: Path, path: str) -> Path:
    """Returns the path of this name in the workspace, with links resolved. Raises ToolError when it is outside."""
    if "\0" in path:
        raise ToolError("a path holds no zero bytes")
    try:
        root = workspace.resolve()
        target = (root / path.lstrip("/")).resolve()  # models take the workspace for the root
    except (RuntimeError, OSError):
        raise ToolError(f"{path} leads through links that never end") from None
    if target != root and root not in target.parents:
        raise ToolError(f"{path} is outside your workspace; use a relative path without ..")
    return target


def _listing(folder: Path, workspace: Path) -> Iterator[str]:
    if not folder.exists():
        return
    root = workspace.resolve()
    found = [folder] if folder.is_file() else sorted(entry for entry in folder.rglob("*") if entry.is_file())
    for entry in found[:MAX_LISTED]:
        yield f"{entry.relative_to(root)}  {entry.stat().st_size} bytes"
    if len(found) > MAX_LISTED:
        yield f"… {len(found) - MAX_LISTED} more"


def _bytes(target: Path) -> tuple[bytes, int]:
    """Returns as much of the file as is ever read, and its size."""
    # O_NONBLOCK: to open a pipe waits for its writer otherwise, for ever.
    with os.fdopen(os.open(target, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            raise ToolError(f"{target.name} is no ordinary file")
        start = file.read(MAX_FILE)
        return (start + file.read(MAX_PDF - MAX_FILE) if start.startswith(b"%PDF-") else start), seen.st_size


def _write(workspace: Path, target: Path, content: str | None) -> str:
    if content is None:
        raise ToolError("write needs content")
    if target == workspace.resolve():
        raise ToolError("write needs the path of a file")
    if target == workspace.resolve() / INBOX:
        raise ToolError(f"{INBOX} is the folder of received files; choose another name")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sum(1 for _ in workspace.rglob("*")) > MAX_FILES:
        raise ToolError(f"there are more than {MAX_FILES} files already; delete some first")
    # A crash leaves the old file or the new one. O_NOFOLLOW: a link of this name could lead out of the workspace.
    temporary = target.with_name(f".{target.name}.part")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(content)
    temporary.replace(target)
    return f"Wrote {len(content)} characters to {target.relative_to(workspace.resolve())}."


TOOL = Tool(
    name="files",
    arguments=FilesArguments,
    function=files,
    idempotent=True,
    harmless=frozenset({"read", "list", "write"}),
)
