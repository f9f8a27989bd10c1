"""What changes in the database of a home that was restored from a backup: the paths of its files, and what was under way."""

import json
from pathlib import Path

from sqlalchemy import Connection, func, select, update

from sessions import runs
from sessions.db.schema import OUT_OPEN, RUN_RUNNING, inbox, messages, outbox
from sessions.db.schema import runs as runs_table
from sessions.records import OutState, Run, RunKind

_HOLD_FILES = (messages.c.attachments, inbox.c.body, outbox.c.body)


def rename_home(conn: Connection, old: Path, new: Path) -> None:
    """The stored files lie below `new` from now on. Words that name the old place stay as they were said."""
    for column in _HOLD_FILES:
        for colon in (": ", ":"):  # as JSON is written with and without spaces
            was, now = (f'"path"{colon}{json.dumps(f"{home}/")[:-1]}' for home in (old, new))
            conn.execute(
                update(column.table).where(func.instr(column, was) > 0).values({column: func.replace(column, was, now)})
            )


def hold_back(conn: Connection, now: int) -> int:
    """Ends the runs that were at work, and holds back what was to be sent: the original has gone on since, and may have done both. Returns
    how many messages are held back.
    """
    at_work = select(runs_table).where(RUN_RUNNING, runs_table.c.kind != RunKind.FAREWELL)
    for row in conn.execute(at_work).mappings().all():
        runs.fail(conn, Run.from_row(row), "the home was restored from a backup", now)
    held = update(outbox).where(OUT_OPEN)
    why = "restored from a backup: it may have been sent since"
    return conn.execute(held.values(state=OutState.DEAD, last_error=why, lease_owner=None, lease_until=None)).rowcount
