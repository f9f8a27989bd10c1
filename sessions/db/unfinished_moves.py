"""Settles a move to another database that was killed, by what it has left: a file in the home while it goes on, and marks in the databases.

Until `config.yaml` names the new database, the old one is in force. Whoever opens a database after a move that was killed brings the home to one of the two
sides: the one that the configuration names.
"""

import contextlib
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import Connection, delete, make_url, select

from sessions import files
from sessions.db.schema import meta, metadata
from sessions.errors import Busy, Unusable

ARRIVING = "arriving"
"""In `meta` of a database that a move has filled and nobody has opened: the move's token. The next move may replace it."""
MOVED = "moved"
"""In `meta` of a database on a server whose content has moved: the move's token, the day, and where to. Nobody opens or changes it."""
MARKS = (ARRIVING, MOVED)
BUILT = "state.moving.db"
"""The SQLite file while it is filled."""
KEPT = "state.before-move-*.db"
"""The SQLite file after its content has moved. `drop_copies` deletes it with the copies of upgrades."""
REFUSED = "HM001"
"""The SQLSTATE with which a database that was moved refuses every change."""
_FILE = "state.moving"
WAIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """`to`: a digest of the new `database.url`. `leaves_file`: the old database is the SQLite file of the home."""

    token: str
    to: str
    leaves_file: bool


def without_password(url: str) -> str:
    parsed = make_url(url)
    query = {name: value for name, value in parsed.query.items() if "password" not in name}
    return unquote(parsed._replace(password=None).set(query=query).render_as_string())


def digest_of(url: str) -> str:
    return sha256(url.encode()).hexdigest()[:32]


@contextlib.contextmanager
def going_on(home: Path, move: Move) -> Generator[None]:
    """Notes the move in the home while the block lasts. An error leaves the note, as being killed does: whoever opens a database next settles it."""
    with _locked(home / _FILE, seconds=0) as descriptor:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(move)).encode(), 0)
        os.fsync(descriptor)
        files.sync_folder(home)
        yield
        (home / _FILE).unlink()


@contextlib.contextmanager
def settled(home: Path, url: str) -> Generator[str]:
    """Brings to an end what a killed move has left, for the side whose `database.url` this is. Gives the token of a move away from this
    database that came to nothing, else "". Raises Busy while a move goes on.
    """
    path = home / _FILE
    if not path.exists():
        yield ""
        return
    with _locked(path, seconds=WAIT_SECONDS) as descriptor:
        move = _read(descriptor)
        if move is None:  # killed before it had begun, or settled while this waited
            yield ""
        elif move.to == digest_of(url):
            if move.leaves_file:
                put_aside(home)
            yield ""
        else:
            remove(home / BUILT)
            if url and arriving_in(home / "state.db") == move.token:
                remove(home / "state.db")
            yield move.token
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path, *, seconds: float) -> Generator[int]:
    """Opens the file under a lock that ends with this process. Raises Busy when it is not free for so long."""
    until = time.monotonic() + seconds
    while (descriptor := _try_to_lock(path)) is None:
        if time.monotonic() >= until:
            raise Busy(f"`hermes migrate` is moving {path.parent} to another database. Try again when it is done.")
        time.sleep(0.05)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_to_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if files.is_still(descriptor, path):  # else it was removed after it was opened
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None


def _read(descriptor: int) -> Move | None:
    try:
        return Move(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return None


def put_aside(home: Path) -> Path | None:
    """Gives the SQLite file the name under which it is kept. Returns its path; None when it has it already."""
    path = home / "state.db"
    if not path.exists():
        return None
    kept = home / KEPT.replace("*", f"{datetime.now(UTC):%Y%m%d-%H%M%S}")
    os.utime(path)  # the days for which it is kept count from now
    path.rename(kept)
    for end in ("-wal", "-shm"):  # empty: who had the file to itself has moved everything into it
        path.with_name(path.name + end).unlink(missing_ok=True)
    files.sync_folder(home)
    return kept


def remove(path: Path) -> None:
    """Deletes a SQLite file with its logs, which a new file of this name would take for its own."""
    for end in ("-journal", "-wal", "-shm", ""):
        path.with_name(path.name + end).unlink(missing_ok=True)


def refuse_if_put_aside(home: Path) -> None:
    """Raises Unusable where the home has no database because it has moved: an empty one in its place would hide that `database.url` is missing."""
    if kept := sorted(home.glob(KEPT)):
        raise Unusable(
            f"The sessions of {home} have moved to a server, and database.url does not name it. Set it again. To go back to what was here before the"
            f" move: mv {kept[-1]} {home / 'state.db'}. To begin with nothing, move {kept[-1].name} away."
        )


def arriving_in(path: Path) -> str:
    """Returns the token of the move that has filled this SQLite file; "" when it was opened since, or is something else."""
    if not path.exists():
        return ""
    with contextlib.closing(sqlite3.connect(path)) as conn:
        try:
            row = conn.execute("SELECT value FROM meta WHERE key = ?", (ARRIVING,)).fetchone()
        except sqlite3.Error:
            return ""
    return str(row[0]) if row else ""


def marks(conn: Connection) -> dict[str, str]:
    return {row.key: row.value for row in conn.execute(select(meta).where(meta.c.key.in_(MARKS)))}


def take_into_use(conn: Connection, came_to_nothing: str) -> None:
    """Removes the mark of a move to this database, and that of the move away from it with this token. Raises Unusable when its content has moved."""
    found = marks(conn)
    if MOVED in found:
        if not came_to_nothing or not found[MOVED].startswith(came_to_nothing):
            raise Unusable(moved_away(found[MOVED]))
        conn.exec_driver_sql("DROP FUNCTION IF EXISTS hermes_moved() CASCADE")
    if found:
        conn.execute(delete(meta).where(meta.c.key.in_(MARKS)))


def moved_away(mark: str) -> str:
    _, day, to = mark.split(" ", 2)
    return (
        f"The sessions of this database have moved to {to} on {day}, and it is kept as it was. Let database.url name the new one."
        " The guide on moving says how to use this one again as it was."
    )


_FENCE = f"""
CREATE OR REPLACE FUNCTION hermes_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF EXISTS (SELECT FROM meta WHERE key = '{MOVED}') THEN
        RAISE EXCEPTION 'the sessions of this database have moved' USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $$
"""  # our own words


def mark_moved(conn: Connection, token: str, to: str) -> None:
    """Marks a database on a server. From the end of the transaction on, also programs that have it open cannot change it."""
    conn.execute(meta.insert(), {"key": MOVED, "value": f"{token} {datetime.now(UTC):%Y-%m-%d} {to}"})
    conn.exec_driver_sql(_FENCE)
    for name in sorted(set(metadata.tables) - {meta.name}):
        conn.exec_driver_sql(
            f"CREATE OR REPLACE TRIGGER hermes_moved BEFORE INSERT OR UPDATE OR DELETE ON {name} EXECUTE FUNCTION hermes_moved()"
        )
