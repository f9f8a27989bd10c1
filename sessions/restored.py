"""Checks that the database knows the transcripts beside it.

A database that was replaced, or has lost its log, does not.
"""

import json
from pathlib import Path

from sqlalchemy import Connection, func, select, text, update

from sessions import runs
from sessions.clock import iso
from sessions.db.engine import Database
from sessions.db.schema import OUT_OPEN, RUN_RUNNING, inbox, messages, outbox
from sessions.db.schema import runs as runs_table
from sessions.errors import Unusable
from sessions.records import OutState, Run, RunKind

_LOOKED_AT = 50
"""Transcripts, the newest first: what a database has lost is what was written last."""
_TAIL = 65_536


def require_complete(home: Path, database: Database) -> None:
    """Raises Unusable when a transcript has a message that this database never had."""
    found = _newest_mirrored(home / "sessions")
    if found is None or found[0] <= database.read_now(_newest_ever):
        return
    number, path = found
    moved = path.parent.with_name("sessions.before")
    raise Unusable(
        f"The database does not know message {number}, which stands in {path} (of {iso(round(path.stat().st_mtime * 1000))[:16]})."
        " It was put aside, replaced by an older one, or has lost its log (state.db-wal). To go back, put the old files in their place."
        f" To go on with this database, move the transcripts away: mv {path.parent} {moved}"
    )


def _newest_mirrored(folder: Path) -> tuple[int, Path] | None:
    """The greatest message id in the newest transcripts, and the file that has it."""
    try:
        transcripts = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)[-_LOOKED_AT:]
    except OSError:  # one went while they were listed
        return None
    return max(((_last_id(path), path) for path in transcripts), default=None)


def _last_id(path: Path) -> int:
    """The id in the last readable line; 0 when there is none, as in a file of somebody else."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["id"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


def _newest_ever(conn: Connection) -> int:
    """The greatest id that a message ever had, deleted ones included."""
    if conn.dialect.name == "sqlite":
        # AUTOINCREMENT keeps it also when the newest messages are deleted, so a deletion is no loss.
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'messages'"
    else:
        query = "SELECT last_value FROM messages_id_seq"
    return int(conn.scalar(text(query)) or 0)


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
