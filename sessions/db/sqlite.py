"""SQLite in the home: WAL, every commit on disk, one writer thread, readers in threads, checkpoints out of the way."""

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, dialects
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, PoolProxiedConnection, QueuePool

from sessions import files
from sessions.clock import now_ms
from sessions.db.engine import EVERY_TOPIC, GroupCommit, Listener, QueuedWrite, resolve_futures
from sessions.db.schema import APPLICATION_ID
from sessions.errors import Busy, DatabaseUnavailable, ForeignHome, ReadOnly, Unusable
from sessions.topics import Touch

_BUSY_MS = 120_000
_COMMITS = 64
"""Between two checkpoints. With more of them a commit waits longer for the disk: 190 ms at 1,000, 62 at 250, 40 at 64."""
_PAGES = 500
"""Given back to the disk in one transaction, so that others can write in between."""
_WAL_TOO_LONG = 64 * 2**20


class BeginningDialect(SQLiteDialect_pysqlite):
    """Begins each transaction with the statement that the engine was made with. A listener for the engine's event `begin` would do the same, and
    make every statement dearer by a quarter: with any listener, SQLAlchemy looks for all of them at each statement."""

    supports_statement_cache = True

    def __init__(self, begin: str = "BEGIN", **options: Any) -> None:  # SQLAlchemy finds no names after a star
        super().__init__(**options)
        self._begin = begin

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        cast(sqlite3.Connection, dbapi_connection.driver_connection).execute(self._begin)


dialects.registry.register("sqlite.hermes", __name__, BeginningDialect.__name__)


def _connect(path: Path, *, writes: bool = True) -> sqlite3.Connection:
    conn = sqlite3.connect(
        # No implicit transactions by the driver: `begin` of the engine says which kind it is.
        path,
        timeout=_BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
    )
    # An acknowledged message survives a power cut; NORMAL would lose the last commits of a WAL.
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("PRAGMA secure_delete = ON")
    # `_Checkpoints` does it in a thread: SQLite itself would do it inside of some commit.
    conn.execute("PRAGMA wal_autocheckpoint = 0")
    # A reader throws its pages away whenever somebody else has committed, so a large cache would only cost memory.
    conn.execute(f"PRAGMA cache_size = {-4_000 if writes else -1_000}")
    # A temporary file would hold texts outside of the home.
    conn.execute("PRAGMA temp_store = MEMORY")
    if not writes:
        conn.execute("PRAGMA query_only = ON")
    return conn


def _engine(
    path: Path, begin: str, *, writes: bool = True, pragmas: Mapping[str, object] = MappingProxyType({}), **options: int
) -> Engine:
    def connect() -> sqlite3.Connection:
        conn = _connect(path, writes=writes)
        for name, value in pragmas.items():
            conn.execute(f"PRAGMA {name} = {value}")
        return conn

    return create_engine(
        "sqlite+hermes://",
        creator=connect,
        begin=begin,
        poolclass=QueuePool,
        hide_parameters=True,  # messages' texts are among them
        **options,
    )


ALONE_MS = 3_000
"""How long `alone` waits for others to close the file: a command may be at its end."""
_FILLING = {"journal_mode": "OFF", "synchronous": "OFF", "cache_size": -100_000}


@contextlib.contextmanager
def alone(path: Path) -> Generator[Connection]:
    """Gives a connection that has the file to itself: nobody else reads or writes it while the block lasts. Its log is empty before and after.
    Raises Busy when another process has it open.
    """
    with contextlib.closing(_connect(path)) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    engine = _engine(path, "BEGIN EXCLUSIVE", pragmas={"busy_timeout": ALONE_MS, "locking_mode": "EXCLUSIVE"})
    with contextlib.ExitStack() as stack:
        stack.callback(engine.dispose)
        try:
            conn = stack.enter_context(engine.connect())
            stack.enter_context(conn.begin())
        except (DBAPIError, sqlite3.Error) as error:
            if "locked" not in str(error):
                raise explain(error, path) from error
            raise Busy(
                f"Another process has {path} open. Leave every `hermes chat` of this home, and try again."
            ) from error
        yield conn


@contextlib.contextmanager
def filled(path: Path) -> Generator[Connection]:
    """Creates the file and yields a transaction in it. After the block the file is on disk. A process that is killed meanwhile leaves a file that cannot be used."""
    prepare_file(path)
    engine = _engine(path, "BEGIN", pragmas=_FILLING)
    try:
        with engine.connect() as conn, conn.begin():
            yield conn
    finally:
        engine.dispose()
    prepare_file(path)  # with a log again
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock file of the home, across processes. Waits. Raises Unusable when the folder does not allow it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.locked(path))
        except OSError as error:
            reason = f"{path.parent} cannot be written to: {error.strerror}."
            raise _kind_of(error)(
                f"{reason} Check that it exists, who owns it, its permissions and free space."
            ) from error
        yield


def _kind_of(error: OSError) -> type[Unusable]:
    return DatabaseUnavailable if error.errno == errno.ENOSPC else Unusable


def explain(error: Exception, path: Path) -> Exception:
    """Our own words for what a person can mend; anything else stays as it is."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, sqlite3.Error):
        return error
    message = str(cause)
    match message:
        case _ if "disk is full" in message or "disk I/O" in message:
            return DatabaseUnavailable(
                f"The disk that holds {path} is full or fails ({message}). Nothing was harmed; make room and try again."
            )
        case _ if "malformed" in message or "not a database" in message:
            text = (
                f"{path} is damaged ({message}). Stop hermes, put {path.name}, {path.name}-wal and the folder sessions aside together,"
                " and restore a backup or start afresh."
            )
        case _ if "readonly" in message or "unable to open" in message:
            text = f"{path} cannot be opened for writing ({message}). Check who owns the folder and its permissions."
        case _ if "locked" in message:
            return DatabaseUnavailable(
                f"{path} is held by another program for more than {_BUSY_MS // 60_000} minutes. Close it and try again."
            )
        case _:
            return error
    return Unusable(text)


def is_ours(conn: sqlite3.Connection, path: Path) -> bool:
    """False for a file that is empty still. Raises ForeignHome for one of another program."""
    owner = conn.execute("PRAGMA application_id").fetchone()[0]
    tables = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner != APPLICATION_ID and tables:
        raise ForeignHome(
            f"{path} was made by another program (maybe Hermes Agent, which uses the same folder)."
            f" Choose another home: hermes --home DIR, or HERMES_HOME=DIR."
        )
    return owner == APPLICATION_ID


def prepare_file(path: Path) -> None:
    """Create the file if need be, as ours and in WAL mode; refuse one that belongs to another program."""
    try:
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with contextlib.closing(_connect(path)) as conn:
            if not is_ours(conn, path):
                conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
                conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            if conn.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                conn.execute("PRAGMA journal_mode = WAL")
    except OSError as error:
        raise _kind_of(error)(
            f"{path} cannot be created: {error.strerror}. Check the folder's permissions and free space."
        ) from error
    except sqlite3.Error as error:
        explained = explain(error, path)
        raise (explained if explained is not error else Unusable(f"{path} cannot be used: {error}")) from error


class Sqlite:
    name = "sqlite"
    bus = None
    clock = staticmethod(now_ms)

    def __init__(self, path: Path, listeners: list[Listener]) -> None:
        self._path = path
        self.engine = _engine(path, "BEGIN IMMEDIATE", writes=True, pool_size=1, max_overflow=2)
        self._reading = _engine(path, "BEGIN", writes=False, pool_size=4, max_overflow=8)
        self._checkpoints = _Checkpoints(path)
        listeners.append((self._checkpoints.consider, EVERY_TOPIC, False))
        self._writer = GroupCommit(self.engine, self.explain, listeners)
        self.submit = self._writer.submit

    def may_read_again(self, _: Exception) -> bool:
        return False

    def explain(self, error: Exception) -> Exception:
        return explain(error, self._path)

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        with self._reading.connect() as conn, conn.begin():
            yield conn

    def shrink(self) -> None:
        with contextlib.closing(_connect(self._path)) as conn:
            while conn.execute("PRAGMA freelist_count").fetchone()[0]:
                # Each step of this pragma frees one page, and `execute` steps once; a script is stepped to its end.
                conn.executescript(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({_PAGES}); COMMIT")

    def checkpoint(self) -> None:
        self._reading.dispose()  # an idle reader may hold an old state
        with contextlib.closing(_connect(self._path)) as conn:
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        self._writer.close()
        self._checkpoints.close()
        self._reading.dispose()
        self.engine.dispose()


class _Checkpoints:
    """Moves the log into the database in a thread of its own, so that no commit waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._due = threading.Event()
        self._commits = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="db-checkpoint", daemon=True)
        self._thread.start()

    def consider(self, _: frozenset[Touch]) -> None:
        self._commits += 1
        if self._commits >= _COMMITS:
            self._commits = 0
            self._due.set()

    def close(self) -> None:
        self._closed = True
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(_connect(self._path)) as conn:
            while self._due.wait() and not self._closed:
                self._due.clear()
                with contextlib.suppress(sqlite3.Error, OSError):  # later commits ask again
                    mode = "TRUNCATE" if self._wal.stat().st_size > _WAL_TOO_LONG else "PASSIVE"
                    conn.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()


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
        raise explain(error, path) from error
    except sqlite3.DatabaseError as error:
        raise explain(error, path) from error
    if found != "ok":
        damage = sqlite3.DatabaseError(f"malformed: {' '.join(str(found).split())[:200]}")
        raise explain(damage, path)
    return True


def ended_uncleanly(path: Path) -> bool:
    """Whether the log holds something. Whoever closes the database last moves all of it into the file."""
    log = path.with_name(path.name + "-wal")
    return path.exists() and log.exists() and log.stat().st_size > 0


_ELSEWHERE = "Copy the home to a place that can be written, and name the copy with --home DIR."


class SqliteUnwritable:
    """Raises Unusable, ForeignHome."""

    name = "sqlite"
    bus = None
    clock = staticmethod(now_ms)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._address = f"file:{quote(str(path))}?{_access(path)}"
        self.engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool, hide_parameters=True)
        try:
            with contextlib.closing(self._connect()) as conn:
                is_ours(conn, path)
        except sqlite3.Error as error:
            raise self.explain(error) from error

    def _connect(self) -> sqlite3.Connection:
        conn = sqlite3.connect(self._address, uri=True, isolation_level=None, check_same_thread=False)
        conn.execute("PRAGMA temp_store = MEMORY")
        return conn

    def may_read_again(self, _: Exception) -> bool:
        return False

    def explain(self, error: Exception) -> Exception:
        return explain(error, self._path)

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        with self.engine.connect() as conn:
            conn.exec_driver_sql("BEGIN")
            yield conn

    def submit(self, job: QueuedWrite[Any]) -> None:
        resolve_futures([(job, None, ReadOnly(f"{self._path} cannot be written here. {_ELSEWHERE}"))])

    def shrink(self) -> None:
        """Nothing can be deleted here."""

    def checkpoint(self) -> None:
        """There is no log of ours."""

    def close(self) -> None:
        self.engine.dispose()


def _access(path: Path) -> str:
    """A log that somebody left needs its index, which cannot be made here; without a log nothing is missing."""
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if log.exists() and index.exists():
        return "mode=ro"
    if log.exists() and log.stat().st_size:
        raise Unusable(
            f"{log} holds what is not in {path.name} yet, and can only be read with it where one may write. {_ELSEWHERE}"
        )
    return "mode=ro&immutable=1"
