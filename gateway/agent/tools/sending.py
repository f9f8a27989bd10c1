"""A file of the workspace goes into the chat: through the outbox like everything else, before what is said after it."""

import mimetypes
from pathlib import Path

from sqlalchemy import Connection

from gateway.agent.asking import JSON
from gateway.agent.tools.registry import Place, ToolError
from sessions import outbox, runs
from sessions.errors import NotFound
from sessions.messages import AttachmentKind

MAX_BYTES = 50_000_000
MAX_CAPTION = 1_000


def enclosed(file: Path, caption: str) -> JSON:
    """The message that carries it. Raises ToolError. Blocks."""
    if not file.is_file():
        raise ToolError(f"there is no file {file.name}; the action list shows what there is")
    size = file.stat().st_size
    if not 0 < size <= MAX_BYTES:
        raise ToolError(f"{file.name} has {size:,} bytes; 1 to {MAX_BYTES:,} can be sent")
    mime = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    kind = AttachmentKind.IMAGE if mime.startswith("image/") else AttachmentKind.FILE
    attachment = {"kind": kind, "name": file.name, "mime": mime, "size": size, "path": str(file)}
    return {"text": caption[:MAX_CAPTION], "attachments": [attachment]}


def send(conn: Connection, place: Place, body: JSON) -> bool:
    """Once, however often the call is repeated. False: nobody is there in a chat."""
    try:
        run = runs.get(conn, place.run_id)
    except NotFound:  # a call that keeps nothing
        return False
    if run.route is None:
        return False
    key = f"{outbox.FILE}{place.idem_key}"
    outbox.put(conn, run.route, body, place.clock(), dedup_key=key, session_key=run.session_key, run_id=run.id)
    return True
