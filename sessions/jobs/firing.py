"""The transaction that fires a job: one slot becomes one inbox row. The tick that calls it is `gateway/scheduler/jobs.py`."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, exists, or_, select, update

from sessions import inbox
from sessions.db.engine import touch
from sessions.db.schema import inbox as inbox_table
from sessions.db.schema import job_slots, jobs, runs
from sessions.db.sql import insert_once, param
from sessions.jobs.records import KEPT_SLOTS, LONGEST_REST_MS, OPEN, Job, JobState, SlotOutcome, SlotStatus, find
from sessions.records import CallOptions, InboxKind, InboxMode, InboxRow, Message, Route, Run, RunStatus, StopReason
from sessions.topics import Topic

BACKOFF_MS = (60_000, 5 * 60_000, 15 * 60_000, LONGEST_REST_MS)
"""How long a job rests after its first, second … failure in a row."""
STILL_AT_WORK = "the run before was still at work"


_SLOT = select(job_slots.c.id).where(job_slots.c.dedup_key == param("dedup"))
_OLDEST_KEPT = (
    select(job_slots.c.id)
    .where(job_slots.c.job_id == param("job"))
    .order_by(job_slots.c.id.desc())
    .limit(1)
    .offset(KEPT_SLOTS - 1)
)
_FORGET = delete(job_slots).where(
    job_slots.c.job_id == param("job"), job_slots.c.id < _OLDEST_KEPT.scalar_subquery(), job_slots.c.status.not_in(OPEN)
)
_LOCK = select(jobs.c.id).where(jobs.c.id == param("job")).with_for_update()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What became of a slot."""

    slot: int
    outcome: SlotOutcome
    error: str | None = None


def fire(
    conn: Connection,
    job: Job,
    slot: int,
    outcome: SlotOutcome,
    now: int,
    *,
    following: int | None,
    route: Route | None,
    options: CallOptions,
) -> Fired | None:
    """Takes this slot of a job that was read before, and moves the job to the `following` one. Returns None when somebody else has taken
    it.
    """
    # Locked before it is read whether a run is pending: another process may fire the same job by hand at this moment.
    conn.execute(_LOCK, {"job": job.id})
    # Fired before, if the clock was set back since: then it only moves on.
    is_done = conn.scalar(_SLOT, {"dedup": job.dedup_key(slot)}) is not None
    is_busy = outcome is not SlotOutcome.MISSED and is_pending(conn, job.id)
    runs_now = outcome is not SlotOutcome.MISSED and not is_busy and not is_done
    if not _take(conn, job, following, by_hand=outcome is SlotOutcome.MANUAL, runs_now=runs_now) or is_done:
        return None
    error = STILL_AT_WORK if is_busy else None
    outcome = SlotOutcome.MISSED if is_busy else outcome
    values = {
        "job_id": job.id,
        "slot": slot,
        "dedup_key": job.dedup_key(slot),
        "outcome": outcome,
        "status": SlotStatus.QUEUED if runs_now else SlotStatus.MISSED,
        "created_at": now,
        "error": error,
    }
    if insert_once(conn, job_slots, values) is None:
        return None
    conn.execute(_FORGET, {"job": job.id})
    if runs_now:
        row = InboxRow(
            dedup_key=job.dedup_key(slot),
            session_key=job.session_key,
            messages=(Message(content=job.prompt),),
            kind=InboxKind.JOB,
            mode=InboxMode.QUEUE,
            route=route,
            options=options,
        )
        inbox.put(conn, row, now)
        touch(conn, Topic.INBOX, job.session_key)
    else:
        missed = {"last_status": SlotStatus.MISSED, "last_error": error}
        conn.execute(update(jobs).where(jobs.c.id == job.id).values(missed))
    return Fired(slot=slot, outcome=outcome, error=error)


def _take(conn: Connection, job: Job, following: int | None, *, by_hand: bool, runs_now: bool) -> bool:
    """Moves the job on if it is still at the slot at which it was read (compare and set). Returns whether it was."""
    if by_hand:  # beside the schedule, which stays as it is
        wanted = jobs.c.id == job.id, jobs.c.run_soon_at == job.run_soon_at
        return conn.execute(update(jobs).where(*wanted).values(run_soon_at=None)).rowcount == 1
    done = job.completed + runs_now  # a slot without a run is none of the repeats that were asked for
    is_over = following is None or (job.repeat_times is not None and done >= job.repeat_times)
    changed: dict[str, Any] = {"completed": done, "next_run_at": None if is_over else following}
    if is_over:
        changed |= {"enabled": False, "state": JobState.COMPLETED}
    wanted = jobs.c.id == job.id, jobs.c.next_run_at == job.next_run_at, jobs.c.enabled
    return conn.execute(update(jobs).where(*wanted).values(changed)).rowcount == 1


def bring_forward(conn: Connection, job: Job, following: int) -> bool:
    """Moves the job to an earlier slot than the one at which it was read. Returns False when somebody else has moved it."""
    wanted = jobs.c.id == job.id, jobs.c.next_run_at == job.next_run_at, jobs.c.enabled
    return conn.execute(update(jobs).where(*wanted).values(next_run_at=following)).rowcount == 1


def is_pending(conn: Connection, job_id: str) -> bool:
    """Returns whether a slot of this job waits for its run, or its run is not over."""
    waits = exists().where(inbox_table.c.dedup_key == job_slots.c.dedup_key, inbox_table.c.outcome.is_(None))
    # The run is read and not the slot alone: a slot whose session was deleted would stay open for ever.
    works = exists().where(runs.c.id == job_slots.c.run_id, runs.c.status.in_((RunStatus.RUNNING, RunStatus.WAITING)))
    mine = job_slots.c.job_id == job_id, job_slots.c.status.in_(OPEN), or_(waits, works)
    return conn.scalar(select(job_slots.c.id).where(*mine).limit(1)) is not None


_OF_ROW = select(job_slots.c.job_id).where(job_slots.c.dedup_key == param("dedup"))


def job_of_row(conn: Connection, dedup_key: str) -> Job | None:
    """Returns the job that an inbox row belongs to; None: it was deleted."""
    job_id = conn.scalar(_OF_ROW, {"dedup": dedup_key})
    return None if job_id is None else find(conn, job_id)


def of_run(conn: Connection, run_id: str) -> Job | None:
    """Returns the job for which this run works; None: it was deleted."""
    job_id = conn.scalar(select(job_slots.c.job_id).where(job_slots.c.run_id == run_id))
    return None if job_id is None else find(conn, job_id)


def mark_started(conn: Connection, dedup_key: str, run_id: str, now: int) -> None:
    """Notes that the slot's run has started."""
    started = update(job_slots).where(job_slots.c.dedup_key == dedup_key)
    conn.execute(started.values(status=SlotStatus.RUNNING, run_id=run_id, started_at=now))


def mark_owner_notified(conn: Connection, job_id: str) -> bool:
    """Notes that the owner is told of the failures. Returns False when that was done before."""
    # Compare and set: of several processes one tells the owner.
    return conn.execute(update(jobs).where(jobs.c.id == job_id, ~jobs.c.told).values(told=True)).rowcount == 1


def mark_ended(
    conn: Connection, run: Run, status: RunStatus, now: int, *, reason: StopReason | None, error: str | None
) -> None:
    """Notes that the slot's run is over. After failures in a row the job rests, longer each time."""
    # A cancelled run says nothing about the job: it neither counts as a failure nor ends a row of them.
    is_cancelled = reason is StopReason.CANCELLED
    became = SlotStatus.CANCELLED if is_cancelled else SlotStatus.OK
    became = SlotStatus.ERROR if status is RunStatus.ERROR else became
    finished = update(job_slots).where(job_slots.c.run_id == run.id)
    job_id = conn.scalar(finished.values(status=became, finished_at=now, error=error).returning(job_slots.c.job_id))
    job = None if job_id is None else find(conn, job_id)
    if job is None:
        return
    changed: dict[str, Any] = {"last_run_at": now, "last_status": became, "last_error": error}
    if became is SlotStatus.ERROR:
        rest = BACKOFF_MS[min(job.failures, len(BACKOFF_MS) - 1)]
        changed |= {"failures": job.failures + 1, "not_before": now + rest}
    elif became is SlotStatus.OK:
        changed |= {"failures": 0, "not_before": None, "told": False}
    conn.execute(update(jobs).where(jobs.c.id == job.id).values(changed))
