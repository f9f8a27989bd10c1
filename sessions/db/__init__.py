"""Opening a database: find it, bring it to this version's schema under a lock, refuse what is not ours or too new."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, delete, insert, inspect, select, text

from sessions.db import unfinished_moves
from sessions.db.engine import Backend, Database, Listener, touch
from sessions.db.schema import HEAD, OLDEST, meta
from sessions.errors import NewerSchema, OlderSchema, Unusable

__all__ = ["Database", "open_database", "open_to_read", "probe", "touch"]


def open_database(home: Path, url: str = "", *, connections: int = 5, is_patient: bool = False) -> Database:
    """The database of this home; `connections` for writing with a server, and one less for reading at the same time. `is_patient`: its transactions
    may wait for a person who reads what comes out; else a server ends those of a process that stands still. Raises Unusable, or a subclass, with a
    sentence for a person, Busy while the home moves to another database.
    """
    with unfinished_moves.settled(home, url) as came_to_nothing:
        listeners: list[Listener] = []
        if url:
            try:
                from sessions.db import postgres
            except ModuleNotFoundError as error:
                from sessions.packages import install_command

                raise Unusable(f"PostgreSQL needs its client library. Run: {install_command('postgres')}") from error
            engine = postgres.make_engine(url, connections, idle_seconds=0.0 if is_patient else postgres.IDLE_SECONDS)
            backend = postgres.Postgres(engine, listeners, connections)
            database = _migrated(backend, listeners, came_to_nothing)
            database.read_now(lambda conn: backend.clock.sync(lambda: conn.scalar(postgres.SERVER_TIME) or 0))
            return database
        from sessions.db import sqlite

        path = home / "state.db"
        with sqlite.locked(path.with_name("state.lock")):
            if not path.exists():
                unfinished_moves.refuse_if_put_aside(home)
            sqlite.prepare_file(path)
            try:
                keep_copy(path)
            except sqlite3.Error as error:
                raise sqlite.explain(error, path) from error
            return _migrated(sqlite.Sqlite(path, listeners), listeners, came_to_nothing)


def open_to_read(home: Path) -> Database:
    """SQLite in a home that cannot be written; nothing is made or upgraded. Raises Unusable, or a subclass."""
    from sessions.db.sqlite import SqliteUnwritable

    path = home / "state.db"
    database = Database(SqliteUnwritable(path), [])
    try:
        database.read_now(_refuse_unless_readable, path)
    except BaseException:
        database.close()
        raise
    return database


def _migrated(backend: Backend, listeners: list[Listener], came_to_nothing: str) -> Database:
    database = Database(backend, listeners)
    try:
        if not database.read_now(is_current):
            database.write_now(migrate)
        if database.read_now(unfinished_moves.marks):
            database.write_now(unfinished_moves.take_into_use, came_to_nothing)
    except BaseException:
        database.close()
        raise
    return database


_PROBE = "probe"
_PROBE_CHARACTERS = 65_536


def probe(conn: Connection) -> None:
    """Write something of the size of an answer, in place of what the last probe has written."""
    conn.execute(delete(meta).where(meta.c.key == _PROBE))
    conn.execute(insert(meta), {"key": _PROBE, "value": "x" * _PROBE_CHARACTERS})


def is_current(conn: Connection) -> bool:
    return _revision(conn) == HEAD


def migrate(conn: Connection, *, head: str = HEAD, more: Sequence[Path] = ()) -> None:
    """Upgrades an older database. Raises OlderSchema for one from before OLDEST, and NewerSchema for a newer one that does not allow this
    version to use it. `more`: see `upgrade`.
    """
    if conn.dialect.name != "sqlite":  # there the file `state.lock` is held
        from sessions.db import postgres

        postgres.lock(conn)
    revision = _revision(conn)
    _refuse_if_too_old(revision)
    if revision is None or revision < head:
        from sessions.db.migrations import upgrade

        if conn.dialect.name != "sqlite":  # between two statements it may have much to compute
            conn.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        upgrade(conn, more)
    elif revision > head:
        _refuse_unless_usable(conn, revision, head)


def _refuse_if_too_old(revision: str | None) -> None:
    if revision is not None and revision < OLDEST:
        raise OlderSchema(
            f"This database has schema {revision}, and this version of hermes upgrades from {OLDEST} on."
            " Open it once with an earlier version of hermes that knows both, then with this one."
        )


def _refuse_unless_usable(conn: Connection, revision: str, head: str) -> None:
    oldest = conn.scalar(select(meta.c.value).where(meta.c.key == "usable_from")) or revision
    if oldest > head:
        raise NewerSchema(
            f"This database has schema {revision}, and this version of hermes knows {head}."
            f" It was last used by a newer hermes: install that version, or restore a backup from before the upgrade."
        )


def _refuse_unless_readable(conn: Connection, path: Path) -> None:
    revision = _revision(conn)
    _refuse_if_too_old(revision)
    if revision is None or revision < HEAD:
        raise Unusable(
            f"{path} is of an older version, and cannot be upgraded where it may not be written."
            " Copy the home to another place, and name the copy with --home DIR."
        )
    if revision > HEAD:
        _refuse_unless_usable(conn, revision, HEAD)


def _revision(conn: Connection) -> str | None:
    if not inspect(conn).has_table("alembic_version"):
        return None
    return conn.scalar(text("SELECT version_num FROM alembic_version"))


# --- upgrades of a SQLite file ----------------------------------------------------------------------------------------------

_PATTERN = "state.before-*.db"


def keep_copy(path: Path) -> Path | None:
    """Copies the database if it has an older schema that can be upgraded, and deletes the copies of earlier upgrades. Returns the path of the
    copy. Raises sqlite3.Error.
    """
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


def upgrade_in_child(home: Path) -> None:
    """Makes the file, or brings it to HEAD, in a child, and waits for it. Does nothing when other threads run, which a child would
    not have. What fails here fails again, and is told, where the database is opened."""
    if threading.active_count() > 1 or not _is_behind(home / "state.db"):
        return
    # Not `subprocess`: a new interpreter would take half a second of the start.
    child = os.fork()
    if child == 0:
        try:
            open_database(home).close()
        except BaseException:  # noqa: BLE001  # the parent meets the same, and tells it
            os._exit(1)
        # Without the parent's exit handlers and buffers, which would run twice.
        os._exit(0)
    os.waitpid(child, 0)


def _is_behind(path: Path) -> bool:
    try:
        return not path.exists() or (revision_of(path) or "") < HEAD
    except (sqlite3.Error, OSError):
        return False
