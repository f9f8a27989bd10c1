"""Stores what a chat is shown of a run before its answer: the id of the preview message and of the messages marked as read. After a crash
the next process removes them.
"""

import json
from collections.abc import Sequence

from sqlalchemy import Connection, exists, select, update

from sessions.db.schema import RUN_SHOWN, outbox, runs
from sessions.db.sql import param
from sessions.records import OutState, Run

_KEEP = update(runs).where(runs.c.id == param("run")).values(preview=param("name"))
_KEEP_ALL = _KEEP.values(noted=param("read"))


def keep_preview(conn: Connection, run_id: str, name: str | None) -> None:
    """Stores the id of the preview; None: there is none any more, or it is the answer now."""
    conn.execute(_KEEP, {"run": run_id, "name": name})


def keep_shown(conn: Connection, run_id: str, preview: str | None, noted: Sequence[str]) -> None:
    """Stores the preview, and the ids of the messages that were marked as read (`noted`)."""
    conn.execute(_KEEP_ALL, {"run": run_id, "name": preview, "read": json.dumps(list(noted)) if noted else None})


def still_shown(conn: Connection) -> list[Run]:
    """Returns runs of which a chat may still show something; not where the answer is undelivered, because it may have replaced the
    preview.
    """
    dead = exists().where(outbox.c.run_id == runs.c.id, outbox.c.state == OutState.DEAD)
    return [Run.from_row(row) for row in conn.execute(select(runs).where(RUN_SHOWN, ~dead)).mappings()]
