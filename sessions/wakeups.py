"""Jobs of procrastinate: each says that a session key may have work, so that several processes share the runs of one PostgreSQL.

A job is a wake-up, no more: it may be lost or doubled. What is to do stands in the inbox and in the runs; whether a write counts, in the fence. Its
lock is the session key, so one process at a time works on a key; whose heartbeat has stopped loses its jobs, see `rescue`. All of it is done through
procrastinate's `JobManager`, on our own connections and in our own transactions. This file and the migration are its only importers.
"""

import hashlib
from collections.abc import Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from psycopg.types.json import Jsonb
from sqlalchemy import Connection, text

from sessions.db.engine import touch
from sessions.keys import group_of, is_of_terminal
from sessions.lease_owners import STALLED_SECONDS
from sessions.topics import FarewellBegun, Topic, Touch, ids_of

T = TypeVar("T")

RUNS, REST = "runs", "rest"
"""The queues of everybody: a group that has many jobs puts more of them into the second one, of which every process leaves a quarter of its places free."""
_OF_WORKER = "worker:"
FAREWELL = "farewell"
_LATER = -1
"""The priority of farewells: nobody waits for them."""
_FORGOTTEN_SECONDS = 24 * 3600.0
_GROUP_CHARACTERS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Wakeup:
    """A job that this process holds. `farewell`: the run of that farewell; None: it is for the key's own run."""

    job: int
    session_key: str
    group: str
    farewell: str | None


class _OnConnection(BaseAsyncConnector):
    """Runs procrastinate's queries in the transaction of a connection of ours. It never waits, so nobody needs an event loop."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def _run(self, query: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        # Through SQLAlchemy, whose errors tell a cut connection and transactions that met.
        done = self._conn.exec_driver_sql(query, {name: _adapted(value) for name, value in arguments.items()})
        return [dict(row) for row in done.mappings()] if done.returns_rows else []

    async def execute_query_async(self, query: str, **arguments: Any) -> None:
        self._run(query, arguments)

    async def execute_query_one_async(self, query: str, **arguments: Any) -> dict[str, Any]:
        return self._run(query, arguments)[0]

    async def execute_query_all_async(self, query: str, **arguments: Any) -> list[dict[str, Any]]:
        return self._run(query, arguments)


def _adapted(value: Any) -> Any:
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, (list, tuple)):
        parts = [_adapted(part) for part in cast(Sequence[Any], value)]
        return tuple(parts) if isinstance(value, tuple) else parts  # a tuple is a composite value
    return value


def _jobs(conn: Connection) -> JobManager:
    return JobManager(_OnConnection(conn))


def _done(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise AssertionError("a query on our own connection waits for nothing")


# --- what is to do ----------------------------------------------------------------------------------------------------------


def defer_touched(conn: Connection, touched: frozenset[Touch], in_runs: int, worker: int | None) -> None:
    """Defers a job for each key that has work after this transaction. Called just before its commit, and undone with it. `in_runs`, `worker`: as
    for `defer`.
    """
    keys = [(key, None) for key in sorted(ids_of(Topic.INBOX, touched))]
    farewells = [(each.session_key, each.id) for each in touched if isinstance(each, FarewellBegun)]
    if keys or farewells:
        defer(conn, [*keys, *farewells], in_runs, worker)


def defer(conn: Connection, wanted: Iterable[tuple[str, str | None]], in_runs: int, worker: int | None = None) -> None:
    """`wanted`: session keys, each with the farewell that it is about, or None. `in_runs`: how many jobs a group has in the first queue at most.
    `worker`: who works on them before others do, because it has places; not on a key that others have a job of: they would not tell when it is free.
    """
    queued: dict[str, int] = {}
    jobs: list[Job] = []
    for key, farewell in wanted:
        group = (FAREWELL if farewell is not None else group_of(key))[:_GROUP_CHARACTERS]
        if is_of_terminal(key):
            queue = queue_of(key)
        elif farewell is not None:
            queue = REST
        elif worker is not None and not conn.scalar(_AT_OTHERS, {"key": key, "me": worker, "own": own_queue(worker)}):
            queue = own_queue(worker)
        else:
            if group not in queued:
                queued[group] = conn.scalar(_QUEUED, {"group": group, "most": in_runs}) or 0
            queue = RUNS if queued[group] < in_runs else REST
            queued[group] += 1
        named = {"farewell": farewell} if farewell is not None else {}
        jobs.append(
            Job(
                queue=queue,
                lock=key if farewell is None else f"{FAREWELL}:{farewell}",
                queueing_lock=None,
                task_name=group,
                task_kwargs={"key": key, **named},
                priority=0 if farewell is None else _LATER,
            )
        )
    if jobs:
        _done(_jobs(conn).batch_defer_jobs_async(jobs))


_AT_OTHERS = text(
    "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = :key AND status IN ('todo', 'doing')"
    " AND queue_name <> :own AND worker_id IS DISTINCT FROM :me)"
)
_QUEUED = text("SELECT count(*) FROM (SELECT FROM procrastinate_jobs WHERE task_name = :group LIMIT :most) AS few")


def queue_of(session_key: str) -> str:
    """Returns the queue of a terminal's key, on which only the process of that terminal works."""
    return f"cli:{hashlib.blake2b(session_key.encode(), digest_size=16).hexdigest()}"


def own_queue(worker: int) -> str:
    """Returns the queue of what this worker's own commits bring, which nobody else fetches from: who waits for the answer is connected with it."""
    return f"{_OF_WORKER}{worker}"


_OFFERED = text(
    "DELETE FROM procrastinate_jobs WHERE (queue_name = :own OR id = ANY(:jobs)) AND status = 'todo' RETURNING id, args"
)


def offer(conn: Connection, worker: int | None, jobs: Collection[int], in_runs: int) -> None:
    """Defers anew, for everybody, what waits in the queue of this worker, and these jobs as far as they still wait."""
    own = None if worker is None else own_queue(worker)
    found = conn.execute(_OFFERED, {"own": own, "jobs": list(jobs)}).all()
    if found:
        args = [row.args for row in sorted(found, key=lambda row: row.id)]
        defer(conn, [(each["key"], each.get("farewell")) for each in args], in_runs)
        touch(conn, Topic.WORK, "")


_LEFT = text(
    "SELECT id FROM procrastinate_jobs WHERE status = 'todo'"
    " AND queue_name = ANY(ARRAY(SELECT :prefix || id FROM procrastinate_workers WHERE id <> :me))"
)


def in_queues_of_others(conn: Connection, worker: int) -> set[int]:
    """Returns the jobs that wait in the queues of other workers. One that lies there for long has nobody who takes it."""
    return set(conn.scalars(_LEFT, {"prefix": _OF_WORKER, "me": worker}))


# --- who does it ------------------------------------------------------------------------------------------------------------


def register(conn: Connection, in_runs: int) -> int:
    """Returns the number of a new worker; its heartbeats are given by the bus. Forgets those that have been silent for a day."""
    for forgotten in _done(_jobs(conn).prune_stalled_workers(_FORGOTTEN_SECONDS)):
        offer(conn, forgotten, (), in_runs)
    return _done(_jobs(conn).register_worker())


def unregister(conn: Connection, worker: int, in_runs: int) -> None:
    """Ends the worker. What it has is free for `rescue` at once, and what waits for it is everybody's."""
    offer(conn, worker, (), in_runs)
    _done(_jobs(conn).unregister_worker(worker))


def fetch(conn: Connection, worker: int, queues: Sequence[str]) -> Wakeup | None:
    """Takes the next job whose key nobody works on; None: there is none."""
    job = _done(_jobs(conn).fetch_job(list(queues), worker))
    return None if job is None else _wakeup(job)


def _wakeup(job: Job) -> Wakeup:
    key, farewell = str(job.task_kwargs["key"]), job.task_kwargs.get("farewell")
    farewell = None if farewell is None else str(farewell)
    return Wakeup(job=job.id or 0, session_key=key, group=job.task_name, farewell=farewell)


_FINISH = text("DELETE FROM procrastinate_jobs WHERE id = ANY(:jobs) AND worker_id = :worker")


def finish(conn: Connection, worker: int, jobs: Sequence[int]) -> None:
    """Ends these jobs, as far as this worker still has them. procrastinate's own `finish_job` does not look who finishes."""
    if jobs:
        conn.execute(_FINISH, {"jobs": list(jobs), "worker": worker})


_HELD = text("SELECT id FROM procrastinate_jobs WHERE worker_id = :worker AND status = 'doing'")


def held(conn: Connection, worker: int) -> list[int]:
    return list(conn.scalars(_HELD, {"worker": worker}))


def stalled(conn: Connection) -> list[Wakeup]:
    """Returns the jobs of workers that have ended, or whose heartbeat has stopped."""
    return list(map(_wakeup, _done(_jobs(conn).get_stalled_jobs(seconds_since_heartbeat=STALLED_SECONDS))))


_ENDED = text("SELECT id FROM procrastinate_jobs WHERE id = ANY(:jobs) AND worker_id IS NULL")


def ended(conn: Connection, jobs: Sequence[Wakeup]) -> list[Wakeup]:
    """Returns those of these jobs whose worker has ended in order."""
    ids = set(conn.scalars(_ENDED, {"jobs": [each.job for each in jobs]}))
    return [each for each in jobs if each.job in ids]


_TAKE_AWAY = text(
    "DELETE FROM procrastinate_jobs WHERE id = ANY(:jobs) AND status = 'doing' AND (worker_id IS NULL OR worker_id = :me OR worker_id IN"
    " (SELECT id FROM procrastinate_workers WHERE last_heartbeat < clock_timestamp() - make_interval(secs => :seconds)))"
    " RETURNING id"
)


def rescue(conn: Connection, jobs: Sequence[Wakeup], in_runs: int, *, me: int = 0) -> int:
    """Takes these jobs away from workers that are stalled (and from `me`), and defers each anew, under another id: of several that try it one
    succeeds, and whoever had the job can end it no more. Returns how many.
    """
    ids = [each.job for each in jobs]
    gone = set(conn.scalars(_TAKE_AWAY, {"jobs": ids, "seconds": STALLED_SECONDS, "me": me}))
    defer(conn, [(each.session_key, each.farewell) for each in jobs if each.job in gone], in_runs)
    return len(gone)


def lost(conn: Connection, worker: int, known: Iterable[int]) -> list[Wakeup]:
    """Returns the jobs that this worker has and knows nothing of: their fetch was committed, and its connection broke before it said so."""
    ids = set(held(conn, worker)) - set(known)
    found = [job for number in sorted(ids) for job in _done(_jobs(conn).list_jobs_async(id=number))]
    return [_wakeup(job) for job in found]


_LOCKS = text("SELECT DISTINCT lock FROM procrastinate_jobs WHERE lock = ANY(:locks)")


def without_job(
    conn: Connection, keys: Sequence[str], farewells: Sequence[tuple[str, str]]
) -> list[tuple[str, str | None]]:
    """Returns those of these keys, and of these farewells (run and key), for which there is no job, as `defer` wants them."""
    by_lock: dict[str, tuple[str, str | None]] = {key: (key, None) for key in keys}
    by_lock |= {f"{FAREWELL}:{run}": (key, run) for run, key in farewells}
    if not by_lock:
        return []
    there = set(conn.scalars(_LOCKS, {"locks": list(by_lock)}))
    return [item for lock, item in by_lock.items() if lock not in there]
