"""Deleting sessions so that no word of them stays in any file of the home."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import Connection

from sessions import store, transcripts
from sessions.db import search
from sessions.db.engine import Database


def erase(
    home: Path,
    database: Database,
    session_ids: Sequence[str],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> int:
    """Delete these sessions for good. Blocks. Each is one transaction; the index is cleaned in small steps, so that others can write.

    Raises Busy for one that is being worked on; what was deleted before it is cleaned up all the same.
    """
    deleted = 0
    try:
        for session_id in session_ids:
            database.write_now(store.delete_session, session_id)
            transcripts.remove(home, [session_id])
            deleted += 1
            progress(deleted, len(session_ids))
    finally:
        if deleted:
            _leave_no_trace(database)
    return deleted


def _leave_no_trace(database: Database) -> None:
    while database.write_now(search.erase_step):
        pass
    database.write_now(_shrink)
    database.checkpoint()


def _shrink(conn: Connection) -> None:
    """Pages that the deletes freed are already overwritten (secure_delete); give them back to the disk."""
    if conn.dialect.name == "sqlite":
        cursor = conn.connection.cursor()  # SQLAlchemy takes this pragma for one without rows, and it works row by row
        cursor.execute("PRAGMA incremental_vacuum")
        cursor.fetchall()
        cursor.close()
