"""Checks the SQLite file after an unclean end, so that damage is found at the start."""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from sessions.db import sqlite

SECONDS = 5.0
"""A bigger file is looked at as far as this reaches."""
_INSTRUCTIONS = 1_000


def quick_check(path: Path, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> bool:
    """Raises Unusable when a page is damaged. Returns False when the time was over before all pages were checked."""
    deadline = clock() + seconds
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as conn:
            # The only way to end a check in the middle: a handler that returns true interrupts the statement.
            conn.set_progress_handler(lambda: clock() > deadline, _INSTRUCTIONS)
            found = conn.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            return False
        raise sqlite.explain(error, path) from error
    except sqlite3.DatabaseError as error:
        raise sqlite.explain(error, path) from error
    if found != "ok":
        damage = sqlite3.DatabaseError(f"malformed: {' '.join(str(found).split())[:200]}")
        raise sqlite.explain(damage, path)
    return True


def ended_uncleanly(path: Path) -> bool:
    """Whether the log holds something. Whoever closes the database last moves all of it into the file."""
    log = path.with_name(path.name + "-wal")
    return path.exists() and log.exists() and log.stat().st_size > 0
