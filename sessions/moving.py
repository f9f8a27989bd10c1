"""Moves everything that is stored from one database to another: `hermes migrate`.

Until `config.yaml` names the new database, the old one is in force; what a killed move leaves is settled by whoever opens a database next (`sessions/db/unfinished_moves.py`).
"""

import contextlib
import json
import re
import secrets
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Boolean, Column, Connection, Table, Text, select, text, type_coerce
from sqlalchemy.exc import DBAPIError

from sessions import audit, files, meta, restored, shared_folders, workers, workspace_files
from sessions.clock import now_ms
from sessions.db import is_current, migrate, open_database, unfinished_moves
from sessions.db.schema import inbox, leases, message_search, messages, metadata, observations, outbox
from sessions.db.schema import meta as meta_table
from sessions.db.schema import workers as workers_table
from sessions.db.schema import workspace_files as files_table
from sessions.db.sql import storable
from sessions.db.sqlite import alone, explain, filled
from sessions.errors import Busy, Invalid, NewerSchema, Unusable
from sessions.records import Observation
from sessions.search import message_index, note_index

Row = tuple[Any, ...]
Progress = Callable[[str, int, int], None]
"""Called with what goes on, how much of it is done, and how much there is."""

_TABLES = [table for table in metadata.sorted_tables if table not in (leases, workers_table, files_table)]
_PASSING = {*unfinished_moves.MARKS, "probe", workspace_files.NAME, workspace_files.FOLDER}
"""Keys of `meta` that say something about one database, not about the home."""
_ROWS = 5_000
ANYBODY_SECONDS = 3.0
# The bytes of “MOVE”.
_LOCK = 0x4D4F5645


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedHome:
    """`files`: how many of the agent, received ones and skills have moved. `kept`: the SQLite file under its new name; None when the old database
    is on a server."""

    counts: dict[str, int]
    files: int
    kept: Path | None


class NotTheSame(Unusable):
    """The new database does not hold what the old one holds."""


def move(
    home: Path,
    old_url: str,
    new_url: str,
    *,
    who: str,
    switch: Callable[[], None],
    progress: Progress,
    shares_files: bool = True,
) -> MovedHome:
    """Copies every row to the database at `new_url`, compares both, and calls `switch`, which makes the configuration name the new one. Empty
    urls stand for the SQLite file of the home. The caller holds the home. `shares_files`: on a server the files of the home are in the database,
    so they are moved there, and from there into the home; else they stay where they are.

    Raises Busy when another process uses one of the databases, Invalid when both are the same one, Unusable, or a subclass, when the new one is not empty
    or fails. After an error, as after a kill, the next `open_database` with the url that the configuration names takes back what was begun, or ends it.
    """
    with contextlib.closing(open_database(home, old_url)) as database:
        # It is of this version's schema now, and without what a killed move has left.
        if old_url and shares_files:
            # Makes the home and the server's database have the same files, so that only what is the same has to be compared later.
            folders = shared_folders.SharedFolders(home, database)
            names = sorted({*database.read_now(workspace_files.states), *folders.known(), workspace_files.SKILLS})
            for done, ns in enumerate(names, 1):
                if ns == workspace_files.OUTGOING:
                    waiting = database.read_now(workspace_files.listing, ns)
                    folders.bring([folders.folder(ns) / path for path in waiting])
                else:
                    folders.sync(ns)
                progress("Bringing files", done, len(names))
    this = unfinished_moves.Move(
        token=secrets.token_hex(8), to=unfinished_moves.digest_of(new_url), leaves_file=not old_url
    )
    with unfinished_moves.going_on(home, this):
        with _source(home, old_url) as source:
            with _target(home, new_url, source) as target:
                counts = _copied(source, target, progress)
                moved = _move_files(home, source, target, progress) if shares_files else 0
                # Notes the move in the new database, with its rows.
                kinds = [("PostgreSQL" if url else "SQLite") for url in (old_url, new_url)]
                audit.record(target, now_ms(), who, "home.migrated", str(home), f"from {kinds[0]} to {kinds[1]}")
                meta.put(target, unfinished_moves.ARRIVING, this.token)
            if old_url:
                unfinished_moves.mark_moved(source, this.token, place(new_url, home))
        if not new_url:
            (home / unfinished_moves.BUILT).rename(home / "state.db")
            files.sync_folder(home)
        switch()
        shutil.rmtree(home / shared_folders.NOTES, ignore_errors=True)  # what they say is about the old database
        kept = None if old_url else unfinished_moves.put_aside(home)
    open_database(home, new_url).close()
    return MovedHome(counts=counts, files=moved, kept=kept)


def place(url: str, home: Path) -> str:
    """Returns where a database is, without a password."""
    return unfinished_moves.without_password(url) if url else f"{home / 'state.db'} on {socket.gethostname()}"


# --- the two sides -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _source(home: Path, url: str) -> Generator[Connection]:
    """Gives a transaction in which nobody else can write, to the end of the block."""
    if not url:
        with alone(home / "state.db") as conn:
            _require_current(conn)
            yield conn
        return
    with _on_server(url) as conn:
        _lock_server(conn, None)
        _refuse_while_used(conn)
        conn.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
        conn.exec_driver_sql(f"LOCK TABLE {', '.join(metadata.tables)} IN SHARE MODE")
        _require_current(conn)
        yield conn


def _require_current(conn: Connection) -> None:
    """Raises NewerSchema when the database has what this version does not know, and would not copy."""
    if not is_current(conn):
        raise NewerSchema("A newer hermes has used this database. Move it with that version.")


@contextlib.contextmanager
def _target(home: Path, url: str, source: Connection) -> Generator[Connection]:
    """Gives a transaction on an empty database of this version's schema. Raises Unusable when it is not empty."""
    if not url:
        path, built = home / "state.db", home / unfinished_moves.BUILT
        if path.exists() and not unfinished_moves.arriving_in(path):
            raise Unusable(f"{path} is there already, and the sessions would be written there. Move it away first.")
        for file in (path, built):
            unfinished_moves.remove(file)
        try:
            with filled(built) as conn:
                migrate(conn)
                yield conn
        except (sqlite3.Error, DBAPIError) as error:
            raise explain(error, built) from error
        return
    with _on_server(url) as conn:
        _lock_server(conn, source)
        migrate(conn)
        _require_current(conn)
        _refuse_while_used(conn)
        # What an earlier attempt has left is removed; anything else is not ours.
        marks = unfinished_moves.marks(conn)
        if unfinished_moves.ARRIVING not in marks:
            if unfinished_moves.MOVED in marks:
                raise Unusable(
                    f"{unfinished_moves.moved_away(marks[unfinished_moves.MOVED])} To move here, name an empty database."
                )
            for table in (*_TABLES, files_table):
                if table is not meta_table and conn.execute(select(text("1")).select_from(table).limit(1)).first():
                    raise Unusable(
                        f"The database at {place(str(conn.engine.url), Path())} is not empty: {table.name} has rows. Name an empty one (createdb)."
                    )
        names = [*metadata.tables, message_search.name, "observation_search"]
        conn.exec_driver_sql(f"TRUNCATE {', '.join(names)} RESTART IDENTITY")
        yield conn
        conn.exec_driver_sql(f"ANALYZE {', '.join(metadata.tables)}, {message_search.name}")


_NO_TIMEOUTS = """
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout', 'idle_session_timeout')
"""


@contextlib.contextmanager
def _on_server(url: str) -> Generator[Connection]:
    try:
        from psycopg import Error

        from sessions.db import postgres
    except ModuleNotFoundError as error:
        from sessions.packages import install_command

        raise Unusable(f"PostgreSQL needs its client library. Run: {install_command('postgres')}") from error
    engine = postgres.make_engine(url)
    try:
        with engine.connect() as conn, conn.begin():
            conn.exec_driver_sql(_NO_TIMEOUTS)
            yield conn
    except Exception as error:
        explained = postgres.explain(error)
        cause = getattr(error, "orig", error)
        if explained is error and isinstance(cause, Error):
            raise Unusable(f"PostgreSQL refuses it: {' '.join(str(cause).split())[:300]}") from error
        raise explained from error
    finally:
        engine.dispose()


def _lock_server(conn: Connection, source: Connection | None) -> None:
    """Locks the database against other moves. Raises Invalid when it is that of `source`."""
    if conn.scalar(text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": _LOCK}):
        return
    holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = :lock AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    if source is not None and source.dialect.name != "sqlite":
        pid = source.scalar(text("SELECT pg_backend_pid()"))
        if pid in conn.scalars(text(holder), {"lock": _LOCK}).all():
            raise Invalid("The sessions are in this very database already: nothing to move.")
    raise Busy("Another `hermes migrate` works on this database. Wait until it is done.")


_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = :name"


def _refuse_while_used(conn: Connection) -> None:
    """Raises Busy while a gateway runs on the database, or a chat or command has it open."""
    from sessions.db.postgres import APPLICATION_NAME

    if workers.any_ready(conn, now_ms()):
        names = ", ".join(f"{row.host} (process {row.pid})" for row in workers.everyone(conn) if not row.gone)
        raise Busy(f"A gateway runs on {place(str(conn.engine.url), Path())}: {names}. Stop it first.")
    until = time.monotonic() + ANYBODY_SECONDS
    while conn.scalar(text(_OTHERS), {"name": APPLICATION_NAME}):
        if time.monotonic() > until:
            raise Busy(
                f"Another hermes has {place(str(conn.engine.url), Path())} open. Leave every `hermes chat`, and try again."
            )
        time.sleep(0.1)
        conn.exec_driver_sql("SELECT pg_stat_clear_snapshot()")


# --- the rows ----------------------------------------------------------------------------------------------------------------


class _Sum:
    """The count of some rows, and a digest that does not depend on their order."""

    def __init__(self) -> None:
        self.count = self.total = 0

    def add(self, row_as_text: str) -> None:
        self.count += 1
        digest = blake2b(row_as_text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self.total += int.from_bytes(digest, "big")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sum) and (self.count, self.total % 2**128) == (other.count, other.total % 2**128)

    __hash__ = None  # type: ignore[assignment]


def _copied(source: Connection, target: Connection, progress: Progress) -> dict[str, int]:
    """Copies all tables, compares both sides, and fills the index. Returns the counts of the tables."""
    counts = {table.name: int(source.scalar(select(text("count(*)")).select_from(table)) or 0) for table in _TABLES}
    rows, of_rows = 0, sum(counts.values())
    sums: dict[str, _Sum] = {}
    for table in _TABLES:
        sums[table.name] = sum_ = _Sum()
        with _writing(target, table) as write:
            for some in _portable(source, table, sum_, moves_on=True):
                write(some)
                rows += len(some)
                progress("Copying rows", rows, of_rows)
    _copy_sequences(source, target)
    rows = 0
    for table in _TABLES:
        found = _Sum()
        for some in _portable(target, table, found, moves_on=False):
            rows += len(some)
            progress("Comparing rows", rows, of_rows)
        if found != sums[table.name]:
            raise NotTheSame(
                f"{table.name} is not the same on both sides ({sums[table.name].count} and {found.count} rows), so nothing was moved."
            )
    done, known = 0, target.scalar(message_index.COUNT_KNOWN) or 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress("Indexing messages", done, known)

    message_index.fill(target, advance)
    for row in target.execute(select(observations).order_by(observations.c.id)).mappings():
        note = Observation.from_row(row)
        note_index.add(target, note.id, note.ns, note.said, note.asked_as)
    return {name: sum_.count for name, sum_ in sums.items()}


def _value_of(column: Column[Any], table: Table, *, moves_on: bool) -> str:
    """Returns the SQL of what is copied of this column. What a process had claimed it has no more: the others wait for no one."""
    name = f'"{column.name}"'
    if moves_on and column.name == "lease_owner":
        return "NULL"
    if moves_on and column.name == "lease_until":
        # In the past and not NULL, as `outbox.release` leaves it: what was being sent is found by it.
        return f"CASE WHEN {name} IS NULL THEN NULL ELSE 0 END" if table.name == "outbox" else "NULL"
    return name


def _portable(conn: Connection, table: Table, sum_: _Sum, *, moves_on: bool) -> Iterator[list[Row]]:
    """Yields the rows of the table, some thousand at a time, in one shape for both kinds of databases: switches are 0 or 1, and no text has what
    PostgreSQL cannot store. Adds them to the sum.
    """
    columns = ", ".join(_value_of(column, table, moves_on=moves_on) for column in table.c)
    where = f" WHERE key NOT IN ({', '.join(map(repr, sorted(_PASSING)))})" if table is meta_table else ""
    switches = [place for place, column in enumerate(table.c) if isinstance(column.type, Boolean)]
    with contextlib.closing(_cursor(conn)) as cursor:
        cursor.execute(f'SELECT {columns} FROM "{table.name}"{where}')  # noqa: S608  # our own names
        while some := cursor.fetchmany(_ROWS):
            rows: list[Row] = []
            for row in some:
                if switches:
                    row = _with_numbers(row, switches)  # noqa: PLW2901
                as_text = repr(row)
                if "\\x00" in as_text or "\\ud" in as_text:  # or a text that spells it out, which stays as it is
                    row = tuple(storable(value) if isinstance(value, str) else value for value in row)  # noqa: PLW2901
                    as_text = repr(row)
                sum_.add(as_text)
                rows.append(row)
            yield rows


def _with_numbers(row: Row, switches: Sequence[int]) -> Row:
    values = list(row)
    for place_ in switches:
        if values[place_] is not None:
            values[place_] = int(values[place_])
    return tuple(values)


def _cursor(conn: Connection) -> Any:
    driver = cast(Any, conn.connection.driver_connection)
    return driver.cursor() if conn.dialect.name == "sqlite" else driver.cursor(name="hermes_move")


@contextlib.contextmanager
def _writing(conn: Connection, table: Table) -> Generator[Callable[[list[Row]], None]]:
    """Gives a function that writes rows as `_portable` yields them."""
    names = ", ".join(f'"{column.name}"' for column in table.c)
    driver = cast(Any, conn.connection.driver_connection)
    if conn.dialect.name == "sqlite":
        marks = ", ".join("?" for _ in table.c)
        yield lambda rows: driver.executemany(f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', rows)  # noqa: S608
        return
    with driver.cursor() as cursor, cursor.copy(f'COPY "{table.name}" ({names}) FROM STDIN') as copy:

        def write(rows: list[Row]) -> None:
            for row in rows:
                copy.write_row(row)  # PostgreSQL reads 0 and 1 as switches

        yield write


# --- the files ---------------------------------------------------------------------------------------------------------------


def _move_files(home: Path, source: Connection, target: Connection, progress: Progress) -> int:
    """Copies the files into the target's table, or compares those of the home with the source's. Returns how many. Raises NotTheSame."""
    expected: dict[tuple[str, str], str] = {}
    if source.dialect.name == "sqlite":
        found = list(shared_folders.everything(home))
        for done, (ns, path) in enumerate(found, 1):
            if (file := shared_folders.read_file(shared_folders.folder_of(home, ns), path)) is not None:
                workspace_files.add(target, ns, file)
                expected[ns, path] = file.sha256
            progress("Copying files", done, len(found))
    else:
        expected = workspace_files.digests(source)
        for done, (ns, path) in enumerate(expected if target.dialect.name != "sqlite" else (), 1):
            file = workspace_files.whole(source, ns, path)
            workspace_files.add(target, ns, file)
            progress("Copying files", done, len(expected))
    if target.dialect.name != "sqlite":
        there = workspace_files.digests(target, anew=True)
    else:
        there = {key: _digest_here(home, *key) for key in expected}
        # Lets stored messages name their files in this home; another one of the team may have stored them.
        homes = set[Path]()
        for column in (messages.c.attachments, inbox.c.body, outbox.c.body):
            written = type_coerce(column, Text)
            for body in target.scalars(select(written).where(written.contains('"path"', autoescape=True))):
                for place_ in map(json.loads, _PLACE.findall(body)):
                    here = shared_folders.local(home, place_)
                    if here != Path(place_):
                        homes.add(Path(place_.removesuffix(str(here.relative_to(home)))))
        for other in homes:
            restored.rename_home(target, other, home)
    if there != expected:
        differing = sorted(f"{ns}/{path}" for ns, path in expected if there.get((ns, path)) != expected[ns, path])
        raise NotTheSame(
            f"{len(differing)} files are not the same on both sides, such as {differing[:1]}: nothing was moved. Try again."
        )
    return len(expected)


def _digest_here(home: Path, ns: str, path: str) -> str:
    file = shared_folders.read_file(shared_folders.folder_of(home, ns), path)
    return "" if file is None else file.sha256


_PLACE = re.compile(r'"path": ?("(?:[^"\\]|\\.)*")')


_NUMBERED = [table.name for table in _TABLES if table.dialect_options["sqlite"].get("autoincrement")]


def _copy_sequences(source: Connection, target: Connection) -> None:
    """The next ids are those that would have been given over there, also when the newest rows are deleted: mirrors rely on it."""
    for name in _NUMBERED:
        if source.dialect.name == "sqlite":
            last = source.scalar(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": name}) or 0
        else:
            last = source.scalar(text(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {name}_id_seq")) or 0  # noqa: S608
        if not last:
            continue
        if target.dialect.name == "sqlite":
            target.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": name})
            target.execute(
                text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last)"), {"name": name, "last": last}
            )
        else:
            target.execute(text(f"SELECT setval('{name}_id_seq', :last)"), {"last": last})
