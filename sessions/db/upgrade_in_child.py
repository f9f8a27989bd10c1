"""Upgrades a SQLite file in a child process, so that alembic and its templates (10 MB) stay in no daemon's memory."""

import os
import sqlite3
import threading
from pathlib import Path

from sessions.db import open_database
from sessions.db.schema import HEAD
from sessions.db.upgrade_backup import revision_of


def upgrade_in_child(home: Path) -> None:
    """Makes the file, or brings it to HEAD, in a child, and waits for it. Does nothing when other threads run, which a child would
    not have. What fails here fails again, and is told, where the database is opened."""
    if threading.active_count() > 1 or not _is_behind(home / "state.db"):
        return
    # Not `subprocess`: a new interpreter would take half a second of the start.
    child = os.fork()
    if child == 0:
        _upgrade_and_end(home)
    os.waitpid(child, 0)


def _is_behind(path: Path) -> bool:
    try:
        return not path.exists() or (revision_of(path) or "") < HEAD
    except (sqlite3.Error, OSError):
        return False


def _upgrade_and_end(home: Path) -> None:
    try:
        open_database(home).close()
    except BaseException:  # noqa: BLE001  # the parent meets the same, and tells it
        os._exit(1)
    # Without the parent's exit handlers and buffers, which would run twice.
    os._exit(0)
