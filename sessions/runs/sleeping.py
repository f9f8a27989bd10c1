"""Puts a run to sleep whose model cannot be reached, and wakes it: a row with a time, without a task and without a lease."""

from sqlalchemy import Connection, and_, update

from sessions import inbox, outbox
from sessions.db.engine import touch
from sessions.db.schema import RUN_RUNNING, runs
from sessions.db.sql import param
from sessions.outbox_body import OutboxBody
from sessions.records import Run, RunKind, RunStatus
from sessions.runs import farewells
from sessions.runs.journal import check_fence
from sessions.runs.queries import LONGEST_SLEEP_MS, get, is_time
from sessions.topics import Topic


def is_asleep(run: Run, now: int) -> bool:
    """Returns whether the run waits for its model, and nobody works on it."""
    return run.status is RunStatus.RUNNING and run.away_since is not None and not is_time(run.wake_at, now)


_SLEEP = update(runs).where(runs.c.id == param("run"))


def sleep(
    conn: Connection,
    run: Run,
    now: int,
    *,
    wake_at: int,
    model: str | None,
    notice: OutboxBody | None = None,
    attempts: int = 0,
) -> None:
    """Puts the run to sleep until this model (None: the configured one) can be reached. The chat gets `notice` the first time only, until
    the model has answered again. `attempts`: a run that waits for its model takes no process down, so interruptions are counted anew.
    """
    inbox.serialize(conn, run.session_key)
    check_fence(conn, run, now)
    current = get(conn, run.id)
    since = now if current.away_since is None else current.away_since
    # Not for longer, whatever the endpoint asks for: `is_time` takes a later time for a clock that was set back.
    changed = {
        "wake_at": min(wake_at, now + LONGEST_SLEEP_MS),
        "away_since": since,
        "away_model": model,
        "attempts": attempts,
    }
    conn.execute(_SLEEP.values(**changed, lease_owner=None, lease_until=None), {"run": run.id})
    # The person's next message must not wait for a model that is away.
    if run.kind is RunKind.FAREWELL:
        farewells.release(conn, run)
    if current.away_since is None and notice is not None and current.route is not None:
        # One notice for each absence, also when this transaction is repeated.
        key = f"{run.id}:away:{since}"
        outbox.put(conn, current.route, notice, now, dedup_key=key, session_key=run.session_key, run_id=run.id)


def wake(conn: Connection, run: Run, now: int) -> bool:
    """Lets the run try its model at once, because a person wants it; the chat is told again if that fails. Returns False when it does not
    sleep.
    """
    if not is_asleep(run, now):
        return False
    conn.execute(_SLEEP.values(wake_at=None, away_since=None, away_model=None), {"run": run.id})
    touch(conn, Topic.INBOX, run.session_key)
    return True


def wake_all(conn: Connection, model: str | None) -> int:
    """Wakes all runs that sleep because of this model, which has answered. Returns how many."""
    is_it = runs.c.away_model.is_(None) if model is None else runs.c.away_model == model
    asleep = and_(RUN_RUNNING, runs.c.away_since.is_not(None), runs.c.wake_at.is_not(None), is_it)
    return conn.execute(update(runs).where(asleep).values(wake_at=None)).rowcount
