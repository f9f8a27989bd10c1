"""Opening a database: find it, bring it to this version's schema under a lock, refuse what is not ours or too new."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, delete, insert, inspect, select, text

from sessions.db.engine import Backend, Database, Listener, touch
from sessions.db.schema import HEAD, OLDEST, meta
from sessions.db.upgrade_backup import keep_copy
from sessions.errors import NewerSchema, OlderSchema, Unusable

__all__ = ["Database", "open_database", "open_to_read", "probe", "touch"]


def open_database(home: Path, url: str = "") -> Database:
    """The database of this home. Raises Unusable and its kin with a sentence for a person."""
    return _open_postgres(url) if url else _open_sqlite(home / "state.db")


def open_to_read(home: Path) -> Database:
    """SQLite in a home that cannot be written; nothing is made or upgraded. Raises Unusable and its kin."""
    from sessions.db.sqlite_unwritable import SqliteUnwritable

    path = home / "state.db"
    database = Database(SqliteUnwritable(path), [])
    try:
        database.read_now(_refuse_unless_readable, path)
    except BaseException:
        database.close()
        raise
    return database


def _open_sqlite(path: Path) -> Database:
    from sessions.db import sqlite

    with sqlite.locked(path.with_name("state.lock")):
        sqlite.prepare_file(path)
        try:
            keep_copy(path)
        except sqlite3.Error as error:
            raise sqlite.explain(error, path) from error
        listeners: list[Listener] = []
        return _migrated(sqlite.Sqlite(path, listeners), listeners)


def _open_postgres(url: str) -> Database:
    from sessions.db import postgres

    listeners: list[Listener] = []
    return _migrated(postgres.Postgres(postgres.make_engine(url), listeners), listeners)


def _migrated(backend: Backend, listeners: list[Listener]) -> Database:
    database = Database(backend, listeners)
    try:
        if not database.read_now(is_current):
            database.write_now(migrate)
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
    """An older database is upgraded, or refused when it is from before OLDEST; a newer one must have said that we may work on it. `more`: see `upgrade`."""
    _one_at_a_time(conn)
    revision = _revision(conn)
    _refuse_if_too_old(revision)
    if revision is None or revision < head:
        from sessions.db.migrations import upgrade

        upgrade(conn, more)
    elif revision > head:
        _refuse_unless_usable(conn, revision, head)


def _one_at_a_time(conn: Connection) -> None:
    if conn.dialect.name != "sqlite":  # there the file `state.lock` is held
        from sessions.db import postgres

        postgres.lock(conn)


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
