"""Rewrites the paths in the database that name files of the home, after the home was moved."""

import json
from pathlib import Path

from sqlalchemy import Connection, func, update

from sessions.db.schema import inbox, messages, outbox

_HOLD_FILES = (messages.c.attachments, inbox.c.body, outbox.c.body)


def rename_home(conn: Connection, old: Path, new: Path) -> None:
    """The stored files lie below `new` from now on. Words that name the old place stay as they were said."""
    for column in _HOLD_FILES:
        for colon in (": ", ":"):  # as JSON is written with and without spaces
            was, now = (f'"path"{colon}{json.dumps(f"{home}/")[:-1]}' for home in (old, new))
            conn.execute(
                update(column.table).where(func.instr(column, was) > 0).values({column: func.replace(column, was, now)})
            )
