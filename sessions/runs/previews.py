"""The message in a chat that an answer grows in. What it is called is kept, so that none stays behind when the process dies."""

from sqlalchemy import Connection, exists, select, update

from sessions.db.schema import RUN_PREVIEW, outbox, runs
from sessions.db.sql import param
from sessions.records import OutState, Run

_KEEP = update(runs).where(runs.c.id == param("run")).values(preview=param("name"))


def keep_preview(conn: Connection, run_id: str, name: str | None) -> None:
    """None: there is none any more, or it is the answer now."""
    conn.execute(_KEEP, {"run": run_id, "name": name})


def with_previews(conn: Connection) -> list[Run]:
    """Those whose preview may still be seen. Not where the answer is a dead letter: it may have taken the preview's place."""
    dead = exists().where(outbox.c.run_id == runs.c.id, outbox.c.state == OutState.DEAD)
    return [Run.from_row(row) for row in conn.execute(select(runs).where(RUN_PREVIEW, ~dead)).mappings()]
