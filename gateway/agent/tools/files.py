"""The agent's files in the workspace of its namespace."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gateway.agent.tools.outgoing_files import enclosed, send
from gateway.agent.tools.registry import Arguments, Tool, ToolContext, ToolError
from gateway.attachments.inbox_files import INBOX

MAX_FILE = 1_000_000
MAX_LISTED = 500
MAX_FILES = 5_000


class FilesArguments(Arguments):
    keeps_empty = frozenset({"content"})  # an empty file can be written
    action: Literal["read", "write", "list", "delete", "send"]
    path: Annotated[str, Field(max_length=500, description="e.g. notes/plan.md")] = "."
    content: Annotated[str | None, Field(max_length=MAX_FILE, description="to write, or to say with a sent file")] = (
        None
    )


async def files(place: ToolContext, arguments: FilesArguments) -> str:
    """Files that you keep across conversations. send: puts a file into the chat."""
    if arguments.action != "send":
        return await asyncio.to_thread(_act, place.workspace, arguments)
    file = inside(place.workspace, arguments.path)
    try:
        body = await asyncio.to_thread(enclosed, file, arguments.content or "", place)
    except OSError as error:
        raise ToolError(f"{arguments.path}: {error.strerror}") from error
    if not await place.database.write(send, place, body):
        raise ToolError(f"this conversation is in no chat that takes files; tell where it is instead: {arguments.path}")
    return f"{arguments.path} is on its way into the chat."


def _act(workspace: Path, arguments: FilesArguments) -> str:
    target = inside(workspace, arguments.path)
    try:
        match arguments.action:
            case "send":
                raise AssertionError("sending needs more than the workspace")
            case "list":
                return "\n".join(_listing(target, workspace)) or "There are no files here yet."
            case "read":
                return _read(target)
            case "write":
                return _write(workspace, target, arguments.content)
            case "delete":
                target.unlink()
                return f"Deleted {arguments.path}."
    except FileNotFoundError as error:
        raise ToolError(f"there is no {arguments.path}; the action list shows what there is") from error
    except (IsADirectoryError, PermissionError) as error:  # unlink of a folder: the first on Linux, the second on macOS
        raise ToolError(f"{arguments.path} is a folder; name a file in it") from error
    except OSError as error:
        raise ToolError(f"{arguments.path}: {error.strerror}") from error


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


def _read(target: Path) -> str:
    # O_NONBLOCK: to open a pipe waits for its writer otherwise, for ever.
    with os.fdopen(os.open(target, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            raise ToolError(f"{target.name} is no ordinary file")
        data = file.read(MAX_FILE)
    if b"\0" in data[:8_000]:
        raise ToolError(f"{target.name} is no text file ({seen.st_size} bytes)")
    return data.decode("utf-8", errors="replace")


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
