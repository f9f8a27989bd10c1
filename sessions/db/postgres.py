"""PostgreSQL for teams: the same functions in a small thread pool on psycopg."""

import contextlib
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from sessions.clock import now_ms
from sessions.db import unfinished_moves
from sessions.db.bus import Bus, notify
from sessions.db.engine import Listener, Outcome, QueuedWrite, notify_listeners, resolve_futures, take_touched
from sessions.db.schema import message_search, metadata
from sessions.db.sql import LOCKED
from sessions.errors import DatabaseUnavailable, Unusable
from sessions.topics import Topic, Touch

_TRIES = 5
_MET = {"40001", "40P01", "23505"}
"""Two transactions met: serialization failure, deadlock, a row that both wanted to insert. The loser runs again, and sees the winner's."""
_AWAY = {"53100", "53200", "53300", "57P01", "57P02", "57P03", "57P05"}
"""Disk full, out of memory, too many connections; shutting down, crashed, starting up, session ended by the server."""
APPLICATION_NAME = "hermes-gateway"
_CONNECTING = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
    "application_name": APPLICATION_NAME,
}
"""A server whose machine has vanished is noticed, instead of being waited for by the kernel's rules, for hours."""
# The bytes of “HERMES”: a number that no other program takes by chance.
_LOCK = 0x4845524D4553


IDLE_SECONDS = 5.0
"""The server ends a transaction in which it hears nothing for so long: its process stands still, and others wait for its locks to take over its work."""


def make_engine(url: str, connections: int = 5, *, idle_seconds: float = 0.0) -> Engine:
    """`idle_seconds`: after how long the server ends a transaction of which it hears nothing; 0: never."""
    try:
        parsed = make_url(url)
        engine = create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_size=2 * connections - 1,
            # None is closed because there are enough: a new one costs both sides as much as several messages, and all its plans are made again. The
            # last used one is taken first, so that few are busy and warm, and the others are opened only when they are needed.
            max_overflow=0,
            pool_use_lifo=True,
            connect_args={name: value for name, value in _CONNECTING.items() if name not in parsed.query},
            hide_parameters=True,  # messages' texts are among them
        )
    except (ArgumentError, NoSuchModuleError) as error:
        raise Unusable(
            "database.url is no PostgreSQL address; one looks like postgresql://user:password@host/name."
        ) from error
    event.listen(engine, "connect", _refuse_unless_unicode, insert=True)  # before SQLAlchemy asks for anything

    def limit_idle_time(connection: Any, _: Any) -> None:
        # Not with the options of the connection, which poolers refuse.
        connection.execute(f"SET idle_in_transaction_session_timeout = {round(idle_seconds * 1000)}")
        connection.commit()

    if idle_seconds:
        event.listen(engine, "connect", limit_idle_time)
    return engine


def _refuse_unless_unicode(connection: Any, _: Any) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        connection.close()
        raise Unusable(
            f"The encoding of this database is {encoding}, which cannot keep every text. Make another one with"
            " `createdb --encoding UTF8 --template template0`, and let database.url name it."
        )


def explain(error: Exception) -> Exception:
    if isinstance(error, DBAPIError) and _sqlstate(error) == unfinished_moves.REFUSED:
        return Unusable("The sessions of this database have moved to another one meanwhile. Start this program again.")
    if not isinstance(error, DBAPIError) or not _is_away(error):
        return error
    why = next(iter(str(error.orig).splitlines()), "connection lost").rstrip(".")
    return DatabaseUnavailable(
        f"The database cannot be reached: {why}. Check that its server runs, and that database.url is right."
    )


def _is_away(error: DBAPIError) -> bool:
    if error.connection_invalidated or _sqlstate(error)[:2] == "08" or _sqlstate(error) in _AWAY:
        return True
    return isinstance(error, OperationalError) and error.statement is None  # while connecting


def _sqlstate(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def lock(conn: Connection) -> None:
    """One at a time over all processes, until the end of the transaction."""
    conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


SERVER_TIME = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
_LONGEST_TRIP_MS = 500


class ServerClock:
    """The server's time in milliseconds, without asking it each time: it was asked once, and since then a clock has run that nobody sets. Asked
    again now and then, it follows the server.
    """

    def __init__(self) -> None:
        self._ahead = now_ms() - _running_ms()

    def __call__(self) -> int:
        return self._ahead + _running_ms()

    def sync(self, ask: Callable[[], int]) -> None:
        """`ask` returns the server's time."""
        began = _running_ms()
        server = ask()
        ended = _running_ms()
        if ended - began < _LONGEST_TRIP_MS:  # after a slow answer nobody knows when it was given
            self._ahead = server - (began + ended) // 2


def _running_ms() -> int:
    # Goes on while the machine sleeps, where the system has such a clock.
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


_WORK = frozenset({Topic.INBOX, Topic.FAREWELL})
_OWN_TOPICS = _WORK | {Topic.STEP, Topic.SENT}
"""Of which other processes are not told. Of work they learn by its jobs."""


class Postgres:
    name = "postgresql"

    def __init__(self, engine: Engine, listeners: list[Listener], writers: int) -> None:
        self.engine = engine
        self.clock = ServerClock()
        self.bus = Bus(self._connect, self._heard, self.clock.sync)
        self._listeners = listeners
        self._pool = ThreadPoolExecutor(writers, thread_name_prefix="db-write")

    def explain(self, error: Exception) -> Exception:
        return explain(error)

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        with (
            self.engine.connect().execution_options(
                # As SQLite reads: several statements of one function see the same state.
                isolation_level="REPEATABLE READ",
                postgresql_readonly=True,
            ) as conn,
            conn.begin(),
        ):
            conn.info.pop(LOCKED, None)
            yield conn

    def may_read_again(self, error: Exception) -> bool:
        # Connections are not tried out before each use, which would cost a trip to the server. One that was cut meanwhile is noticed by its
        # first statement, and the pool replaces all of them.
        return isinstance(error, DBAPIError) and error.connection_invalidated

    def submit(self, job: QueuedWrite[Any]) -> None:
        self._pool.submit(self._run, job)

    def _run(self, job: QueuedWrite[Any]) -> None:
        try:
            outcome, touched = self._transaction(job)
        except Exception as error:  # noqa: BLE001  # whoever waits must hear of it
            resolve_futures([(job, None, self.explain(error))])
            return
        notify_listeners(self._listeners, touched)
        told = frozenset(touch for touch in touched if touch.topic not in _OWN_TOPICS)
        if not self.bus.takes_work and any(touch.topic in _WORK for touch in touched):
            told |= {Touch(Topic.WORK, "")}
        self.bus.publish(told)
        resolve_futures([outcome])

    def _heard(self, touched: frozenset[Touch]) -> None:
        notify_listeners(self._listeners, touched, elsewhere=True)

    def _connect(self) -> Any:
        """Returns a connection of the driver, of no pool and with autocommit."""
        positional, named = self.engine.dialect.create_connect_args(self.engine.url)
        wanted = {name: value for name, value in _CONNECTING.items() if name not in self.engine.url.query}
        return self.engine.dialect.connect(*positional, **{**named, **wanted, "autocommit": True})

    def _transaction(self, job: QueuedWrite[Any]) -> tuple[Outcome, frozenset[Touch]]:
        for tries in range(1, _TRIES + 1):
            try:
                with self.engine.connect() as conn:
                    conn.info.pop("touched", None)
                    conn.info.pop(LOCKED, None)
                    with conn.begin():
                        result = job.run(conn)
                        touched = take_touched(conn)
                        if any(touch.topic in _WORK for touch in touched):
                            from sessions.wakeups import defer_touched  # most commands make no work

                            defer_touched(conn, touched, self.bus.in_runs, self.bus.first_worker())
                    return (job, result, None), touched
            except DBAPIError as error:
                # A commit whose confirmation was lost may count: every write may run twice, see the head of `engine.py`.
                again = _sqlstate(error) in _MET or error.connection_invalidated
                if not again or tries == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def shrink(self) -> None:
        """Left to its own vacuum."""

    def checkpoint(self) -> None:
        """PostgreSQL looks after its own log; what was deleted leaves its tables and indexes now, not some day."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            for table in [*metadata.tables, message_search.name]:
                conn.exec_driver_sql(f"VACUUM {table}")

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self.bus.close()
        with contextlib.suppress(DBAPIError):  # of a command that never opened the bus
            if told := self.bus.take_waiting():
                with self.engine.begin() as conn:
                    notify(conn, told)
        self.engine.dispose()
