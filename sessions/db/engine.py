"""One way to the database: plain functions of a Connection, run off the event loop.

A function given to `write` is one transaction. It must be pure but for its SQL, because it may run more than once: waiting
functions share one commit, and when one of them fails the others are run again without it.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, repeat
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, Engine

from sessions.clock import Clock
from sessions.errors import DatabaseUnavailable
from sessions.topics import Topic, Touch

if TYPE_CHECKING:
    from sessions.db.bus import Bus

_log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")
Work = Callable[Concatenate[Connection, P], T]
OnCommit = Callable[[frozenset[Touch]], None]
Listener = tuple[OnCommit, frozenset[Topic], bool]
"""What is called, for which topics, and whether also after commits of other processes."""
EVERY_TOPIC = frozenset(Topic)

_BATCH = 128
_READERS = 4


def touch(conn: Connection, topic: Topic, id: str) -> None:  # noqa: A002  # as in Touch
    """Notes a change, of which listeners hear after the commit."""
    record_touch(conn, Touch(topic, id))


def record_touch(conn: Connection, what: Touch) -> None:
    """Notes a change that says more than its topic and id."""
    # `info` belongs to the DBAPI connection: what a transaction noted is there for whoever commits it.
    conn.info.setdefault("touched", set()).add(what)


def take_touched(conn: Connection) -> frozenset[Touch]:
    return frozenset(conn.info.pop("touched", ()))


class QueuedWrite(Generic[T]):
    """A waiting function and the future of its result, on an event loop or for a thread."""

    __slots__ = ("future", "loop", "run")

    def __init__(self, run: Callable[[Connection], T], loop: asyncio.AbstractEventLoop | None) -> None:
        self.run = run
        self.loop = loop
        self.future: Any = Future() if loop is None else loop.create_future()

    def resolve(self, result: T | None, error: BaseException | None) -> None:
        if self.future.done():  # the waiting task was cancelled; the transaction counts all the same
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


Outcome = tuple[QueuedWrite[Any], Any, BaseException | None]


def _resolve_all(outcomes: list[Outcome]) -> None:
    for job, result, error in outcomes:
        job.resolve(result, error)


def resolve_futures(outcomes: list[Outcome]) -> None:
    """Resolves the futures of one commit. Wakes each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].loop, []).append(outcome)
    for loop, some in by_loop.items():
        if loop is None:
            _resolve_all(some)
            continue
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve_all, some)


def notify_listeners(listeners: list[Listener], touched: frozenset[Touch], *, elsewhere: bool = False) -> None:
    """Calls those who listen to what was touched, here or in another process."""
    topics = {what.topic for what in touched}
    # A copy: a listener may remove itself.
    for on_commit, wanted, hears_others in tuple(listeners):
        if wanted.isdisjoint(topics) or (elsewhere and not hears_others):
            continue
        try:
            on_commit(touched)
        except Exception:  # noqa: BLE001  # its fault must not stop the only writer
            _log.exception("db.listener_failed")


class Backend(Protocol):
    """What differs between the databases."""

    name: str
    engine: Engine
    clock: Clock

    @property
    def bus(self) -> "Bus | None": ...

    def explain(self, error: Exception, /) -> Exception:
        """Returns one of our own errors when the error is about the state of the database, else the same error."""
        ...

    def read(self) -> "contextlib.AbstractContextManager[Connection]": ...

    def may_read_again(self, error: Exception, /) -> bool:
        """Returns whether a read that failed so may succeed at once, over another connection."""
        ...

    def submit(self, job: "QueuedWrite[Any]") -> None: ...

    def shrink(self) -> None: ...

    def checkpoint(self) -> None: ...

    def close(self) -> None: ...


class ReadsAndWrites(Protocol):
    """The part of `Database` that most callers need."""

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the function in one transaction. Returns its result once it is on disk."""
        ...

    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function that must not write. It sees one consistent state."""
        ...


class Database(ReadsAndWrites):
    def __init__(self, backend: Backend, listeners: list[Listener]) -> None:
        self._backend = backend
        self._listeners = listeners
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="db-read")
        self.failure: str | None = None
        """Why it could not be used when that was last tried, in words for the operator. Only a write that succeeds takes it back."""

    @property
    def dialect(self) -> str:
        return self._backend.name

    @property
    def clock(self) -> Clock:
        """The time by which leases and due times of this database are judged: on PostgreSQL the server's, the same for every process."""
        return self._backend.clock

    def listen(self, on_commit: OnCommit, *topics: Topic, only_own: bool = False) -> Callable[[], None]:
        """Calls `on_commit` after each commit that touched one of the topics, or anything where none is named, in the committing thread; it must
        be quick and must not raise. Returns a function that stops it. On PostgreSQL commits of other processes are heard, too, unless
        `only_own`.
        """
        listener = on_commit, frozenset(topics) or EVERY_TOPIC, not only_own
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def bus(self) -> "Bus | None":
        """What tells other processes on this database of commits and live events; None on SQLite."""
        return self._backend.bus

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the function in one transaction. Returns its result once it is on disk."""
        job = QueuedWrite(lambda conn: work(conn, *args, **kwargs), asyncio.get_running_loop())
        # Given to the writer before the first await, so writes keep the order in which they were called.
        self._backend.submit(job)
        with self._noting_failure():
            result = await job.future
        self.failure = None
        return result

    def write_now(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `write`, for a thread that may block."""
        job = QueuedWrite(lambda conn: work(conn, *args, **kwargs), None)
        self._backend.submit(job)
        with self._noting_failure():
            result = job.future.result()
        self.failure = None
        return result

    @contextlib.contextmanager
    def _noting_failure(self) -> Generator[None]:
        try:
            yield
        except DatabaseUnavailable as error:
            self.failure = str(error)
            raise

    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function that must not write. It sees one consistent state."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, lambda: self.read_now(work, *args, **kwargs))

    def read_now(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._noting_failure():
            for again in (True, False):
                try:
                    with self._backend.read() as conn:
                        return work(conn, *args, **kwargs)
                except Exception as error:
                    if again and self._backend.may_read_again(error):
                        continue
                    explained = self._backend.explain(error)
                    if explained is error:
                        raise
                    raise explained from error
        raise AssertionError("unreachable")

    def shrink(self) -> None:
        """Returns the pages that deletes have freed to the disk. Blocks, in short transactions."""
        self._backend.shrink()

    def checkpoint(self) -> None:
        """Moves everything into the main file, so that no old version of a page stays in a log. Blocks."""
        self._backend.checkpoint()

    def close(self) -> None:
        """Finishes what waits, then closes every file and connection."""
        # Readers first: SQLite keeps its log file as long as anybody has it open.
        self._readers.shutdown(wait=True)
        self._backend.close()


class GroupCommit:
    """Runs all waiting functions in one thread, and commits once for all of them."""

    def __init__(self, engine: Engine, explain: Callable[[Exception], Exception], listeners: list[Listener]) -> None:
        self._engine = engine
        self._explain = explain
        self._listeners = listeners
        self._queue: SimpleQueue[QueuedWrite[Any] | None] = SimpleQueue()
        self._kept: Connection | None = None
        self._open = True
        self._queue_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="db-write", daemon=True)
        self._thread.start()

    def submit(self, job: QueuedWrite[Any]) -> None:
        # Under the lock: a job behind the end mark would never be taken, and its caller would wait for ever.
        with self._queue_lock:
            if not self._open:
                raise RuntimeError("the database is closed")
            self._queue.put(job)

    def close(self) -> None:
        with self._queue_lock:
            if self._open:
                self._queue.put(None)
            self._open = False
        self._thread.join()

    def _run(self) -> None:
        for batch in self._batches():
            try:
                outcomes, touched = self._commit(batch)
            except BaseException as error:  # noqa: BLE001  # whatever it is, those who wait must hear of it and the writer must go on
                self._disconnect()
                explained = self._explain(error) if isinstance(error, Exception) else error
                resolve_futures([(job, None, explained) for job in batch])
            else:
                # Listeners first: a caller that goes on after its write finds everybody told.
                notify_listeners(self._listeners, touched)
                resolve_futures(outcomes)
        self._disconnect()

    def _disconnect(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            with contextlib.suppress(Exception):  # it is being thrown away because something failed
                kept.close()

    def _batches(self) -> Iterator[list[QueuedWrite[Any]]]:
        while (job := self._queue.get()) is not None:
            batch = [job]
            while len(batch) < _BATCH and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    yield batch
                    return
                batch.append(more)
            yield batch

    def _commit(self, batch: list[QueuedWrite[Any]]) -> tuple[list[Outcome], frozenset[Touch]]:
        """Runs the functions without savepoints, since nearly always nothing fails; if one fails, again with a savepoint for each."""
        # The connection, which is kept until something fails.
        if self._kept is None:
            self._kept = self._engine.connect()
        conn = self._kept
        try:
            return self._transaction(conn, lambda: [(job, job.run(conn), None) for job in batch])
        except Exception:
            if len(batch) == 1:
                raise
            return self._transaction(conn, lambda: [self._alone(conn, job) for job in batch])

    def _transaction(
        self, conn: Connection, work: Callable[[], list[Outcome]]
    ) -> tuple[list[Outcome], frozenset[Touch]]:
        try:
            with conn.begin():
                outcomes = work()
            return outcomes, take_touched(conn)
        finally:
            take_touched(conn)  # what was rolled back has changed nothing

    def _alone(self, conn: Connection, job: QueuedWrite[Any]) -> Outcome:
        before = frozenset[Touch](conn.info.get("touched", ()))
        savepoint = conn.begin_nested()
        try:
            result = job.run(conn)
        except Exception as error:  # it fails alone
            if not getattr(conn.connection.dbapi_connection, "in_transaction", True):
                raise  # a full disk rolls back everything, savepoints included: the whole batch has failed
            savepoint.rollback()
            conn.info["touched"] = set(before)
            return job, None, self._explain(error)
        savepoint.commit()
        return job, result, None


_PAUSES = (0.5, 1, 2, 5)
_LONGEST_PAUSE = 10


class WaitingDatabase(ReadsAndWrites):
    """Repeats what raises Unavailable until it does not, without a limit. Any other error goes to the caller.

    A write may have been committed before its connection broke, so everything that is written must be idempotent.
    """

    def __init__(self, database: ReadsAndWrites, waits: Callable[[DatabaseUnavailable, float], None]) -> None:
        """`waits` is told of each failure, and how many seconds later the next try is."""
        self._database = database
        self._waits = waits

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.until_available(lambda: self._database.write(work, *args, **kwargs))

    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.until_available(lambda: self._database.read(work, *args, **kwargs))

    async def until_available(self, call: Callable[[], Awaitable[T]]) -> T:
        """The same for anything that may be repeated."""
        for pause in chain(_PAUSES, repeat(_LONGEST_PAUSE)):
            try:
                return await call()
            except DatabaseUnavailable as error:
                self._waits(error, pause)
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")
