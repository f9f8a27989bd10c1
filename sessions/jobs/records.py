"""Rows of jobs and of their slots."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import Connection, RowMapping, and_, func, or_, select

from sessions import store
from sessions.db.schema import JOB_DUE, JOB_FAILED_OFTEN, JOB_FAILING, job_slots, jobs, messages, runs
from sessions.db.sql import param
from sessions.errors import Invalid, NotFound
from sessions.records import Role, Route
from sessions.schedules import Moments, Schedule, ScheduleKind, display

LOCAL = "local"
LONGEST_REST_MS = 3_600_000
"""After failures no job rests for longer."""
ID_LENGTH = 12
UNREADABLE = "The stored schedule of this job makes no sense. Delete it, and make it again."


class JobState(StrEnum):
    SCHEDULED = "scheduled"
    PAUSED = "paused"
    COMPLETED = "completed"  # no slot will come any more


class SlotOutcome(StrEnum):
    """How a slot was fired."""

    RAN = "ran"
    MADE_UP = "made_up"
    MISSED = "missed"
    MANUAL = "manual"  # a person wanted it now


class SlotStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    MISSED = "missed"


OPEN = (SlotStatus.QUEUED, SlotStatus.RUNNING)
KEPT_SLOTS = 1_500
"""So many of each job's slots are kept, a day of those that come every minute. By them a slot is known after the clock was set back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`ns`: whose memory its session has. `route`: where it was made; `deliver`: where its answers go. `run_soon_at`: a person wants it
    to run. `not_before`: after failures it rests until then."""

    id: str
    name: str
    prompt: str
    schedule: Schedule
    timezone: str
    repeat_times: int | None
    completed: int
    enabled: bool
    state: JobState
    created_at: int
    next_run_at: int | None
    last_run_at: int | None
    last_status: str | None
    last_error: str | None
    failures: int
    not_before: int | None
    run_soon_at: int | None
    told: bool
    deliver: str
    route: Route | None
    session_key: str
    ns: str | None
    deployment: str | None
    thread_id: str | None
    made_by: str | None

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        """Returns the job. One whose row makes no sense is paused and says so: it can be seen and deleted, and hides no other."""
        values: dict[str, Any] = {each.name: row[each.name] for each in fields(cls)}
        values["enabled"], values["told"] = bool(row["enabled"]), bool(row["told"])
        try:
            values["schedule"] = Schedule.from_json(row["schedule"])
            values["state"] = JobState(row["state"])
            values["route"] = Route.from_json(row["route"]) if row["route"] else None
            job = cls(**values)
            job.moments.after(job.created_at)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, Invalid):
            never = Schedule(kind=ScheduleKind.ONCE, run_at=0)
            values |= {"schedule": never, "state": JobState.PAUSED, "route": None, "timezone": "UTC", "enabled": False}
            values |= {"next_run_at": None, "run_soon_at": None, "last_error": UNREADABLE}
            return cls(**values)
        return job

    @property
    def moments(self) -> Moments:
        return Moments(schedule=self.schedule, timezone=self.timezone, since=self.created_at)

    @property
    def schedule_display(self) -> str:
        return display(self.schedule, self.timezone)

    def dedup_key(self, slot: int) -> str:
        return f"job:{self.id}:{slot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    id: int
    job_id: str
    slot: int
    dedup_key: str
    outcome: SlotOutcome
    status: SlotStatus
    run_id: str | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    error: str | None

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        values: dict[str, Any] = {each.name: row[each.name] for each in fields(cls)}
        values["outcome"], values["status"] = SlotOutcome(row["outcome"]), SlotStatus(row["status"])
        return cls(**values)


_GET = select(jobs).where(jobs.c.id == param("job"))


def get(conn: Connection, job_id: str) -> Job:
    """Returns the job. Raises NotFound."""
    row = conn.execute(_GET, {"job": job_id}).mappings().first()
    if row is None:
        raise NotFound(f"There is no job {job_id}. `hermes jobs list` shows them.")
    return Job.from_row(row)


def find(conn: Connection, job_id: str) -> Job | None:
    row = conn.execute(_GET, {"job": job_id}).mappings().first()
    return Job.from_row(row) if row else None


def listing(
    conn: Connection, *, include_disabled: bool = True, ns: str | None = None, limit: int | None = None
) -> list[Job]:
    """Returns jobs, the oldest first. `ns`: those that were made in this namespace."""
    query = select(jobs).order_by(jobs.c.created_at, jobs.c.id).limit(limit)
    if not include_disabled:
        query = query.where(jobs.c.enabled)
    if ns is not None:
        query = query.where(jobs.c.origin == ns)
    return [Job.from_row(row) for row in conn.execute(query).mappings()]


# Jobs that rest are left out here and not after reading: their slots are the oldest, and would fill the limit.
# One that rests for longer than any failure makes it rest was put off by a clock that was set back since.
_RESTED = or_(
    jobs.c.not_before.is_(None), jobs.c.not_before <= param("now"), jobs.c.not_before > param("now") + LONGEST_REST_MS
)
_DUE = (
    select(jobs)
    .where(JOB_DUE, or_(and_(jobs.c.next_run_at <= param("now"), _RESTED), jobs.c.run_soon_at.is_not(None)))
    .order_by(jobs.c.next_run_at)
    .limit(param("most"))
)


def due(conn: Connection, now: int, limit: int) -> list[Job]:
    """Returns jobs whose slot has come, or that somebody wants to run now; not those that rest after a failure."""
    found = [Job.from_row(row) for row in conn.execute(_DUE, {"now": now, "most": limit}).mappings()]
    return [job for job in found if job.next_run_at is not None or job.run_soon_at is not None]


def upcoming(conn: Connection, *, limit: int | None = None) -> list[Job]:
    """Returns jobs with a run to come, the next first."""
    query = select(jobs).where(JOB_DUE, jobs.c.next_run_at.is_not(None)).order_by(jobs.c.next_run_at).limit(limit)
    return [Job.from_row(row) for row in conn.execute(query).mappings()]


def failing(conn: Connection, *, told: bool = False) -> list[Job]:
    """Returns jobs that have failed three times in a row. `told`: also those of which somebody was told."""
    wanted = and_(JOB_FAILED_OFTEN, jobs.c.enabled) if told else JOB_FAILING
    return [Job.from_row(row) for row in conn.execute(select(jobs).where(wanted)).mappings()]


def slots_with_output(conn: Connection, job_id: str, *, limit: int = 100) -> list[tuple[Slot, str | None]]:
    """Returns the slots of this job, the newest first, each with the answer of its run."""
    return [
        (slot, None if slot.run_id is None else store.last_text_of_run(conn, slot.run_id, Role.ASSISTANT))
        for slot in slots(conn, job_id, limit=limit)
    ]


def slots(conn: Connection, job_id: str, *, limit: int = 100) -> list[Slot]:
    """Returns the slots of this job, the newest first."""
    query = select(job_slots).where(job_slots.c.job_id == job_id).order_by(job_slots.c.id.desc()).limit(limit)
    return [Slot.from_row(row) for row in conn.execute(query).mappings()]


def latest_slots(conn: Connection, limit: int) -> list[tuple[str, Slot]]:
    """Returns the newest slots of all jobs, each with the name of its job."""
    query = select(job_slots, jobs.c.name).join(jobs, jobs.c.id == job_slots.c.job_id).order_by(job_slots.c.id.desc())
    return [(row["name"], Slot.from_row(row)) for row in conn.execute(query.limit(limit)).mappings()]


_NEWEST_SLOTS = 50


def local_results(conn: Connection, ns: str, after: int) -> list[tuple[str, str, int]]:
    """Returns name, last words and end of each run of a job of this namespace that ended after this moment and is delivered nowhere."""
    newest = select(job_slots).order_by(job_slots.c.id.desc()).limit(_NEWEST_SLOTS).subquery()
    of_run = (
        messages.c.session_id == runs.c.session_id,
        messages.c.run_id == runs.c.id,
        messages.c.role == Role.ASSISTANT,
    )
    said = select(func.max(messages.c.id)).where(*of_run).correlate(runs).scalar_subquery()
    query = (
        select(jobs.c.name, messages.c.content, newest.c.finished_at)
        .join(newest, newest.c.job_id == jobs.c.id)
        .join(runs, runs.c.id == newest.c.run_id)
        .join(messages, messages.c.id == said)
        .where(jobs.c.origin == ns, jobs.c.deliver == LOCAL, newest.c.finished_at > after)
        .order_by(newest.c.finished_at)
    )
    return [(row.name, row.content or "", row.finished_at) for row in conn.execute(query)]
