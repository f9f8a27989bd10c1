"""Endpoints for jobs: prompts that run at the times of a schedule."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints
from sqlalchemy import Connection

from gateway.api.http.callers import LOCAL_KEY, Scope
from gateway.api.http.endpoint import (
    PARAMETERS,
    ApiCall,
    EndpointAnswer,
    NoFields,
    RequestModel,
    ResponseModel,
    endpoint,
)
from gateway.api.http.errors import ApiError, invalid, not_found
from gateway.api.http.idempotency import IDEMPOTENCY_HEADERS, run_once
from gateway.api.http.parsing import as_integer
from gateway.api.openai.agent_calls import HEADER, session_id
from gateway.api.threads.deployments import deployment_named
from gateway.api.threads.schemas import DeploymentId, ThreadId, Time
from sessions import audit, deployments, jobs
from sessions.clock import iso
from sessions.errors import Invalid, NotFound
from sessions.jobs import Job, JobAction, Slot
from sessions.jobs.delivery import destination, require_target
from sessions.jobs.making import MAX_NAME, MAX_PROMPT, require_repeat
from sessions.keys import InvalidKey, SessionKey
from sessions.records import Source
from sessions.schedules import Schedule, ScheduleKind, parse_schedule, require_zone

_NEXT_RUNS = 3
_WITHOUT_JOBS = frozenset({Source.CLI.value, "response"})

JobId = Annotated[str, Field(pattern=PARAMETERS["job_id"])]
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"\S")]
Prompt = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROMPT, pattern=r"\S")]
ScheduleText = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Zone = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Repeat = Annotated[int, Field(ge=1, le=1_000_000_000), BeforeValidator(as_integer)]
Target = Annotated[str, StringConstraints(min_length=1, max_length=400)]
SessionId = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class NewJobBody(RequestModel):
    name: Name
    schedule: ScheduleText
    prompt: Prompt
    timezone: Zone | None = None
    repeat: Repeat | None = None
    deliver: Target | None = None
    session_id: SessionId | None = None
    deployment_id: DeploymentId | None = None
    thread_id: ThreadId | None = None


class JobChange(RequestModel):
    name: Name | None = None
    schedule: ScheduleText | None = None
    prompt: Prompt | None = None
    timezone: Zone | None = None
    repeat: Repeat | None = None
    deliver: Target | None = None
    enabled: bool | None = None


class JobsQuery(RequestModel):
    include_disabled: bool = False


class ScheduleBody(ResponseModel):
    kind: ScheduleKind
    expr: str | None = None
    minutes: int | None = None
    run_at: Time | None = None

    @classmethod
    def of(cls, schedule: Schedule) -> "ScheduleBody":
        match schedule.kind:
            case ScheduleKind.CRON:
                return cls(kind=schedule.kind, expr=schedule.expr)
            case ScheduleKind.INTERVAL:
                return cls(kind=schedule.kind, minutes=schedule.minutes)
            case ScheduleKind.ONCE:
                return cls(kind=schedule.kind, run_at=iso(schedule.run_at))


class RepeatBody(ResponseModel):
    times: int | None
    completed: int


class JobBody(ResponseModel):
    id: JobId
    name: str
    prompt: str
    schedule: ScheduleBody
    schedule_display: str
    timezone: str
    repeat: RepeatBody
    enabled: bool
    state: Literal["scheduled", "paused", "completed"]
    created_at: Time
    next_run_at: Time | None
    next_runs: list[Time]
    last_run_at: Time | None
    last_status: str | None
    last_error: str | None
    deliver: str
    destination: str
    session_key: str
    deployment_id: str | None
    thread_id: str | None

    @classmethod
    def of(cls, job: Job) -> "JobBody":
        following = (
            [] if job.next_run_at is None else [job.next_run_at, *job.moments.upcoming(job.next_run_at, _NEXT_RUNS - 1)]
        )
        left = None if job.repeat_times is None else max(0, job.repeat_times - job.completed)
        return cls(
            id=job.id,
            name=job.name,
            prompt=job.prompt,
            schedule=ScheduleBody.of(job.schedule),
            schedule_display=job.schedule_display,
            timezone=job.timezone,
            repeat=RepeatBody(times=job.repeat_times, completed=job.completed),
            enabled=job.enabled,
            state=job.state.value,
            created_at=iso(job.created_at),
            next_run_at=_iso(job.next_run_at),
            next_runs=[iso(moment) for moment in following[:left]],
            last_run_at=_iso(job.last_run_at),
            last_status=job.last_status,
            last_error=job.last_error,
            deliver=job.deliver,
            destination=f"Its answers are {destination(job)}. GET /api/jobs/{job.id}/runs lists its runs with them.",
            session_key=job.session_key,
            deployment_id=job.deployment,
            thread_id=job.thread_id,
        )


def _iso(moment: int | None) -> str | None:
    return None if moment is None else iso(moment)


class JobAnswer(ResponseModel):
    job: JobBody


class JobList(ResponseModel):
    jobs: list[JobBody]


class SlotBody(ResponseModel):
    scheduled_at: Time
    outcome: str
    status: str
    run_id: str | None
    started_at: Time | None
    finished_at: Time | None
    error: str | None
    output: str | None

    @classmethod
    def of(cls, slot: Slot, output: str | None) -> "SlotBody":
        return cls(
            scheduled_at=iso(slot.slot),
            outcome=slot.outcome.value,
            status=slot.status.value,
            run_id=slot.run_id,
            started_at=_iso(slot.started_at),
            finished_at=_iso(slot.finished_at),
            error=slot.error,
            output=output,
        )


class SlotList(ResponseModel):
    runs: list[SlotBody]


# --- the calls ------------------------------------------------------------------------------------------------------


@endpoint(
    "POST",
    "/api/jobs",
    "A new job",
    tag="Jobs",
    scopes=(Scope.ADMIN,),
    responses={200: JobAnswer},
    refusals=(404, 409, 413, 422),
    headers={HEADER: "The session in which it runs, as session_id names it", **IDEMPOTENCY_HEADERS},
)
async def create_job(call: ApiCall[NewJobBody, NoFields]) -> EndpointAnswer:
    sent, app = call.body, call.server.app
    try:
        new = jobs.new_job(
            name=sent.name,
            schedule=sent.schedule,
            prompt=sent.prompt,
            timezone=sent.timezone or app.timezone,
            repeat=sent.repeat,
            deliver=require_target(sent.deliver or "local", call.server.app.config.platforms.in_use()),
            now=app.clock(),
            **await _where(call, sent),
        )
    except Invalid as error:
        raise invalid(str(error), code="bad_job") from None
    limits = app.job_limits()
    try:
        return await _change_once(call, lambda conn, _: jobs.create(conn, new, who=call.key.account, limits=limits).id)
    except Invalid as error:
        raise ApiError(409, str(error), code="too_many_jobs") from None


async def _change_once(call: ApiCall[Any, Any], change: Callable[[Connection, int], str]) -> EndpointAnswer:
    """Changes a job once, however often the request is repeated, and returns the job."""
    return _answer(await call.server.app.database.read(jobs.get, await run_once(call, change)))


async def _act_once(call: ApiCall[Any, Any], job: Job, action: JobAction) -> EndpointAnswer:
    return await _change_once(call, lambda conn, now: jobs.act(conn, job.id, action, now, call.key.account).id)


async def _where(call: ApiCall[NewJobBody, NoFields], sent: NewJobBody) -> dict[str, Any]:
    """Returns the columns that name the session in which the job runs, and its deployment."""
    named = {each for each in (sent.session_id, session_id(call)) if each is not None}
    if len(named) > 1 or (named and (sent.deployment_id or sent.thread_id)):
        message = f"Name one place: session_id, the header {HEADER}, or deployment_id and thread_id."
        raise ApiError(409, message, code="two_places", param="session_id")
    if sent.deployment_id or sent.thread_id:
        found = await deployment_named(call, sent.deployment_id or deployments.MAIN)
        if sent.thread_id is None:
            return {"deployment": found.id, "origin": f"agent:{found.agent}"}
        return await _thread(call, deployments.key_of(found.id, sent.thread_id))
    if not named:
        return {}
    name = named.pop()
    try:
        key = SessionKey.parse(name)
    except InvalidKey:
        if not name.isprintable() or len(name) > 256:
            message = "session_id has 1 to 256 printable characters, or is a session key."
            raise invalid(message, code="bad_session_id") from None
        key = SessionKey.api(call.key.name, name)
    if key.scope in _WITHOUT_JOBS:
        raise invalid("A job cannot run in a session of the terminal.", code="bad_session_id", param="session_id")
    if key.scope == "api" and key.api_key != call.key.name and call.key.name != LOCAL_KEY:
        raise ApiError(403, "This session belongs to another API key.", code="not_yours", param="session_id")
    if key.scope != "thread":
        return {"session_key": str(key)}
    try:
        return await _thread(call, key)
    except NotFound as error:
        raise invalid(str(error), code="bad_session_id", param="session_id") from None


async def _thread(call: ApiCall[Any, Any], key: SessionKey) -> dict[str, Any]:
    """Returns the columns of a job in this thread. Raises NotFound."""
    deployment = deployments.MAIN if key.agent == "main" else key.agent
    await call.server.app.database.read(deployments.thread, deployment, key.chat_id or "")
    return {"session_key": str(key), "deployment": deployment, "thread_id": key.chat_id}


@endpoint("GET", "/api/jobs", "The jobs", tag="Jobs", scopes=(Scope.ADMIN,), responses={200: JobList})
async def list_jobs(call: ApiCall[NoFields, JobsQuery]) -> EndpointAnswer:
    def listed(conn: Connection) -> JobList:  # in the reader's thread: three times to come of each take a while
        found = jobs.listing(conn, include_disabled=call.query.include_disabled)
        return JobList(jobs=[JobBody.of(job) for job in found])

    return EndpointAnswer(body=await call.server.app.database.read(listed))


def _answer(job: Job) -> EndpointAnswer:
    return EndpointAnswer(body=JobAnswer(job=JobBody.of(job)))


async def _job(call: ApiCall[Any, Any]) -> Job:
    try:
        return await call.server.app.database.read(jobs.get, call.path["job_id"])
    except NotFound:
        raise not_found("job") from None


@endpoint("GET", "/api/jobs/{job_id}", "One job", tag="Jobs", scopes=(Scope.ADMIN,), responses={200: JobAnswer})
async def get_job(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    return _answer(await _job(call))


@endpoint(
    "PATCH",
    "/api/jobs/{job_id}",
    "Change it",
    tag="Jobs",
    scopes=(Scope.ADMIN,),
    responses={200: JobAnswer},
    refusals=(413,),
)
async def change_job(call: ApiCall[JobChange, NoFields]) -> EndpointAnswer:
    job, app = await _job(call), call.server.app
    sent, now = call.body.model_dump(exclude_unset=True), app.clock()
    values: dict[str, Any] = {name: sent[name].strip() for name in ("name", "prompt") if sent.get(name)}

    def change(conn: Connection) -> Job:
        """Changes the columns, then resumes or pauses the job. All of it happens or nothing."""
        changed, who = jobs.change(conn, job.id, values, now), call.key.account
        if values:
            audit.record(conn, now, who, "job.changed", f"job:{job.id}", ", ".join(sorted(values)))
        if sent.get("enabled") is None:
            return changed
        return jobs.act(conn, job.id, JobAction.RESUME if sent["enabled"] else JobAction.PAUSE, now, who)

    try:
        zone, schedule = require_zone(sent.get("timezone") or job.timezone), job.schedule
        if sent.get("timezone"):
            values["timezone"] = zone
        if sent.get("schedule"):
            schedule = values["schedule"] = parse_schedule(sent["schedule"], zone, now)
        if "repeat" in sent or sent.get("schedule"):
            values["repeat_times"] = require_repeat(sent.get("repeat", job.repeat_times), schedule)
        if sent.get("deliver"):
            values["deliver"] = require_target(sent["deliver"], app.config.platforms.in_use())
        return _answer(await app.database.write(change))
    except Invalid as error:
        raise invalid(str(error), code="bad_job") from None


@endpoint(
    "DELETE",
    "/api/jobs/{job_id}",
    "Delete it; its session stays",
    tag="Jobs",
    scopes=(Scope.ADMIN,),
    responses={200: JobAnswer},
)
async def delete_job(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    job = await _job(call)
    app, who = call.server.app, call.key.account
    return _answer(await app.database.write(jobs.act, job.id, JobAction.DELETE, app.clock(), who))


@endpoint(
    "POST",
    "/api/jobs/{job_id}/pause",
    "Run it no more until it is resumed",
    tag="Jobs",
    scopes=(Scope.ADMIN,),
    responses={200: JobAnswer},
    refusals=(422,),
    headers=IDEMPOTENCY_HEADERS,
)
async def pause_job(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    job = await _job(call)
    return await _act_once(call, job, JobAction.PAUSE)


@endpoint(
    "POST",
    "/api/jobs/{job_id}/resume",
    "Run it again from now on",
    tag="Jobs",
    scopes=(Scope.ADMIN,),
    responses={200: JobAnswer},
    refusals=(409, 422),
    headers=IDEMPOTENCY_HEADERS,
)
async def resume_job(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    job = await _job(call)
    try:
        return await _act_once(call, job, JobAction.RESUME)
    except Invalid as error:
        raise ApiError(409, str(error), code="nothing_to_come") from None


@endpoint(
    "POST",
    "/api/jobs/{job_id}/run",
    "Run it now, besides its schedule",
    tag="Jobs",
    scopes=(Scope.ADMIN,),
    responses={200: JobAnswer},
    refusals=(422,),
    headers=IDEMPOTENCY_HEADERS,
)
async def run_job(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    job = await _job(call)
    return await _act_once(call, job, JobAction.RUN)


@endpoint(
    "GET",
    "/api/jobs/{job_id}/runs",
    "How its runs went, newest first",
    tag="Jobs",
    scopes=(Scope.ADMIN,),
    responses={200: SlotList},
)
async def list_slots(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    job = await _job(call)
    found = await call.server.app.database.read(jobs.slots_with_output, job.id)
    return EndpointAnswer(body=SlotList(runs=[SlotBody.of(slot, said) for slot, said in found]))
