"""Creates, changes and deletes jobs. What people write is checked before the transaction."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, update

from sessions import audit
from sessions.db.schema import inbox, job_slots, jobs
from sessions.db.sql import lock
from sessions.errors import Invalid
from sessions.jobs.records import ID_LENGTH, LOCAL, Job, JobState, get
from sessions.keys import OWNER_NAMESPACE, SessionKey
from sessions.records import Route
from sessions.schedules import Moments, Schedule, ScheduleKind, parse_schedule, require_zone

MAX_NAME, MAX_PROMPT = 200, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """`session_key` None: a session of its own. `origin`: the namespace in which it was made, whose memory its own session has."""

    id: str
    name: str
    prompt: str
    schedule: Schedule
    timezone: str
    repeat_times: int | None
    deliver: str
    route: Route | None
    session_key: str | None
    origin: str
    deployment: str | None
    thread_id: str | None
    created_at: int


def new_job(
    *,
    name: str,
    schedule: str,
    prompt: str,
    timezone: str,
    now: int,
    repeat: int | None = None,
    deliver: str = LOCAL,
    route: Route | None = None,
    session_key: str | None = None,
    origin: str = OWNER_NAMESPACE,
    deployment: str | None = None,
    thread_id: str | None = None,
) -> NewJob:
    """Returns the checked job. Raises Invalid with a sentence that says what to write instead."""
    name, prompt = name.strip(), prompt.strip()
    if not name or len(name) > MAX_NAME:
        raise Invalid(f"A job's name has 1 to {MAX_NAME} characters; this one has {len(name)}.")
    if not prompt or len(prompt) > MAX_PROMPT:
        raise Invalid(f"A job's prompt has 1 to {MAX_PROMPT:,} characters; this one has {len(prompt):,}.")
    parsed = parse_schedule(schedule, require_zone(timezone), now)
    return NewJob(
        id=secrets.token_hex(ID_LENGTH // 2),
        name=name,
        prompt=prompt,
        schedule=parsed,
        timezone=timezone,
        repeat_times=require_repeat(repeat, parsed),
        deliver=deliver,
        route=route,
        session_key=session_key,
        origin=origin,
        deployment=deployment,
        thread_id=thread_id,
        created_at=now,
    )


def require_repeat(repeat: int | None, schedule: Schedule) -> int | None:
    """Returns how often the job runs; a one-shot runs once, whatever is said."""
    if repeat is not None and repeat < 1:
        raise Invalid("repeat says how often the job runs: 1 or more; without it, for ever.")
    return 1 if schedule.kind is ScheduleKind.ONCE else repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """How many jobs there may be that still run: of one creator, by way of the model, and in all."""

    per_creator: int = 50
    total: int = 10_000


def create(
    conn: Connection, new: NewJob, *, who: str = "", made_by: str | None = None, limits: JobLimits | None = None
) -> Job:
    """Inserts the job and returns it. Raises Invalid when there are too many. `who`: for the audit. `made_by`: the call of the model that makes
    it, by which a repeated call is recognised; without it an operator makes it, who is held by the limit of all jobs only.
    """
    _require_room(conn, new.origin, limits or JobLimits(), by_model=made_by is not None)
    own_key = str(SessionKey.job(new.id))
    moments = Moments(schedule=new.schedule, timezone=new.timezone, since=new.created_at)
    values = {
        "id": new.id,
        "name": new.name,
        "prompt": new.prompt,
        "schedule": new.schedule.to_json(),
        "timezone": new.timezone,
        "repeat_times": new.repeat_times,
        "enabled": True,
        "state": JobState.SCHEDULED,
        "created_at": new.created_at,
        "next_run_at": moments.after(new.created_at),
        "deliver": new.deliver,
        "route": new.route.to_json() if new.route else None,
        "session_key": new.session_key or own_key,
        "ns": None if new.session_key else new.origin,  # somebody's session has its own memory already
        "origin": new.origin,
        "deployment": new.deployment,
        "thread_id": new.thread_id,
        "made_by": made_by,
        "told": False,
    }
    conn.execute(insert(jobs), values)
    audit.record(conn, new.created_at, who, "job.created", f"job:{new.id}")
    return get(conn, new.id)


class JobAction(StrEnum):
    """What people do with a job that is there."""

    PAUSE = "pause"
    RESUME = "resume"
    RUN = "run"
    DELETE = "delete"


def act(conn: Connection, job_id: str, action: JobAction, now: int, who: str) -> Job:
    """Does this with the job, and records who wanted it. Returns the job as it is then. Raises NotFound, and Invalid where a schedule has nothing to
    come."""
    match action:
        case JobAction.PAUSE:
            job, done = pause(conn, job_id), "paused"
        case JobAction.RESUME:
            job, done = resume(conn, job_id, now), "resumed"
        case JobAction.RUN:
            job, done = run_soon(conn, job_id, now), "run"
        case JobAction.DELETE:
            job, done = remove(conn, job_id), "deleted"
    audit.record(conn, now, who, f"job.{done}", f"job:{job_id}")
    return job


def _require_room(conn: Connection, origin: str, limits: JobLimits, *, by_model: bool) -> None:
    lock(conn, "jobs")  # two that count at the same time would both find room
    is_over = jobs.c.state == JobState.COMPLETED
    count = select(func.count()).select_from(jobs)
    if (excess := (conn.scalar(count) or 0) + 1 - limits.total) > 0:
        oldest = conn.scalars(select(jobs.c.id).where(is_over).order_by(jobs.c.created_at).limit(excess)).all()
        if len(oldest) < excess:
            raise Invalid(f"There are {limits.total:,} jobs already (limits.jobs). Delete one first.")
        for each in oldest:  # one that is over makes room for one to come
            remove(conn, each)
    if not by_model:
        return
    made = count.where(_made_by_the_same(origin), jobs.c.made_by.is_not(None), ~is_over)
    if (conn.scalar(made) or 0) >= limits.per_creator:
        raise Invalid(
            f"There are {limits.per_creator} jobs from here already (limits.jobs_per_creator). Delete one first."
        )


def _made_by_the_same(origin: str) -> ColumnElement[bool]:
    """Returns the condition for jobs of the same creator: a namespace; of an API key, all its sessions together."""
    match origin.split(":", 4):
        case ["agent", agent, "api" | "response", key, _]:
            own = [f"agent:{agent}:{scope}:{key}:" for scope in ("api", "response")]
            return or_(*(jobs.c.origin.startswith(each, autoescape=True) for each in own))
        case _:
            return jobs.c.origin == origin


def change(conn: Connection, job_id: str, values: Mapping[str, Any], now: int) -> Job:
    """Changes columns of the job. Another schedule or time zone gives it another next slot, and a finished job goes on."""
    job = get(conn, job_id)
    changed = dict(values)
    if "schedule" in changed or "timezone" in changed:
        schedule = changed.get("schedule", job.schedule)
        moments = Moments(schedule=schedule, timezone=changed.get("timezone", job.timezone), since=job.created_at)
        following = moments.after(now)
        if job.state is not JobState.PAUSED:  # only `resume` ends a pause
            state = JobState.SCHEDULED if following is not None else JobState.COMPLETED
            changed |= {"next_run_at": following, "state": state, "enabled": following is not None}
        changed["schedule"] = schedule.to_json()
    if changed:
        conn.execute(update(jobs).where(jobs.c.id == job_id).values(changed))
    return get(conn, job_id)


def pause(conn: Connection, job_id: str) -> Job:
    get(conn, job_id)
    changed = {"enabled": False, "state": JobState.PAUSED, "next_run_at": None}
    paused = update(jobs).where(jobs.c.id == job_id, jobs.c.state == JobState.SCHEDULED)
    conn.execute(paused.values(changed))
    return get(conn, job_id)


def resume(conn: Connection, job_id: str, now: int) -> Job:
    """Resumes a paused job; what came while it was paused is not made up. Raises Invalid for a job with no slot to come."""
    job = get(conn, job_id)
    if job.state is JobState.SCHEDULED:
        return job
    following = job.moments.after(now)
    is_used_up = job.repeat_times is not None and job.completed >= job.repeat_times
    if following is None or is_used_up:
        raise Invalid(f"“{job.name}” has no run to come. Give it another schedule, or run it now.")
    # Whoever resumes a job has mended it: it starts without its failures.
    changed = {
        "enabled": True,
        "state": JobState.SCHEDULED,
        "next_run_at": following,
        "failures": 0,
        "not_before": None,
    }
    conn.execute(update(jobs).where(jobs.c.id == job_id).values(**changed, told=False))
    return get(conn, job_id)


def run_soon(conn: Connection, job_id: str, now: int) -> Job:
    """Lets the next tick run it, also a job that is paused or finished."""
    get(conn, job_id)
    conn.execute(update(jobs).where(jobs.c.id == job_id).values(run_soon_at=now))
    return replace(get(conn, job_id), run_soon_at=now)


def remove(conn: Connection, job_id: str) -> Job:
    """Deletes the job; its session stays. What waits for its run is withdrawn; a run at work ends as it would. Raises NotFound."""
    job = get(conn, job_id)
    keys = select(job_slots.c.dedup_key).where(job_slots.c.job_id == job_id)
    conn.execute(delete(inbox).where(inbox.c.dedup_key.in_(keys), inbox.c.outcome.is_(None), inbox.c.run_id.is_(None)))
    conn.execute(delete(job_slots).where(job_slots.c.job_id == job_id))
    conn.execute(delete(jobs).where(jobs.c.id == job_id))
    return job
