"""Copies the SQLite file before its schema is changed, so that the older program can be used again."""

import contextlib
import sqlite3
from pathlib import Path

from sessions.db.schema import HEAD, OLDEST

_PATTERN = "state.before-*.db"


def keep_copy(path: Path) -> Path | None:
    """Copies the database when it is of an older version that can be upgraded; the copies of earlier upgrades go. Returns the copy. Raises sqlite3.Error."""
    revision = revision_of(path) if path.exists() else None
    if revision is None or not OLDEST <= revision < HEAD:
        return None
    drop_copies(path.parent)
    copy = path.with_name(_PATTERN.replace("*", revision))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("VACUUM INTO ?", (str(copy),))
    copy.chmod(0o600)
    return copy


def drop_copies(home: Path, *, older_than: float | None = None) -> None:
    """All of them, since what is deleted now would stay in them; or those from before this moment (epoch seconds)."""
    for copy in home.glob(_PATTERN):
        if older_than is None or copy.stat().st_mtime < older_than:
            copy.unlink(missing_ok=True)


def drop_copies_with_forgotten(home: Path, newest: int) -> None:
    """Those from before the newest mark of something forgotten: they hold it still."""
    for copy in home.glob(_PATTERN):
        with contextlib.closing(sqlite3.connect(copy)) as conn:
            try:
                (known,) = conn.execute("SELECT max(id) FROM forgotten").fetchone()
            except sqlite3.OperationalError:  # older than the table
                known = None
        if (known or 0) < newest:
            copy.unlink(missing_ok=True)


def revision_of(path: Path) -> str | None:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        try:
            row = conn.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError:
            return None
    return str(row[0]) if row else None
