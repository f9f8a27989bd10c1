"""Jobs that the agent creates for the person: prompts that run when their time has come."""

from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import Connection

from gateway.agent.tools.registry import Arguments, Tool, ToolContext, ToolError
from gateway.texts import format_time
from sessions import deployments, jobs, runs
from sessions.errors import Invalid, NotFound
from sessions.jobs import Job, JobAction, NewJob
from sessions.jobs.delivery import deliver_to, destination
from sessions.keys import SessionKey

LISTED = 50


class ScheduleArguments(Arguments):
    action: Literal["create", "list", "show", "pause", "resume", "run", "delete"]
    name: Annotated[str | None, Field(max_length=200, description="create: a short name")] = None
    schedule: Annotated[
        str | None,
        Field(
            description="create: five cron fields such as 0 9 * * 1-5, or every 30m, 30m (once), 2030-01-31T09:00 (once)"
        ),
    ] = None
    prompt: Annotated[
        str | None, Field(max_length=20_000, description="create: what to do then, complete in itself")
    ] = None
    timezone: Annotated[str | None, Field(description="create: such as Europe/London; default: the person's")] = None
    repeat: Annotated[int | None, Field(ge=1, description="create: how often; none: for ever")] = None
    id: Annotated[str | None, Field(description="of the job, for the other actions")] = None


async def schedule(place: ToolContext, arguments: ScheduleArguments) -> str:
    """Do something later or again and again: reminders, reports, checks. At its time the prompt is run without anybody there, and the answer
    is sent to this chat. Tell the person when it runs next."""
    try:
        if arguments.action == "create":
            return await _create(place, arguments)
        if arguments.action == "list":
            found = await place.database.read(jobs.listing, ns=place.session.ns)
            return "\n".join(line_of(job) for job in found[:LISTED]) or "There are no jobs here."
        return await place.database.write(_act, place, arguments.action, arguments.id or "")
    except (Invalid, NotFound) as error:
        raise ToolError(str(error)) from error


async def _create(place: ToolContext, arguments: ScheduleArguments) -> str:
    new = jobs.new_job(
        name=arguments.name or "",
        schedule=arguments.schedule or "",
        prompt=arguments.prompt or "",
        timezone=arguments.timezone or place.timezone,
        repeat=arguments.repeat,
        now=place.clock(),
        origin=place.session.ns,
        **await place.database.read(_where, place),
    )
    job = await place.database.write(_create_once, new, place)
    return f"Created. {line_of(job)}\nNext: {upcoming(job, place.clock())}\nIts answers are {destination(job)}."


def _create_once(conn: Connection, new: NewJob, place: ToolContext) -> Job:
    """Creates the job, or returns the one that the same call created before a crash."""
    made = next((job for job in jobs.listing(conn, ns=new.origin) if job.made_by == place.idem_key), None)
    return made or jobs.create(conn, new, who=place.who, made_by=place.idem_key, limits=place.job_limits)


def _where(conn: Connection, place: ToolContext) -> dict[str, Any]:
    """Returns the columns that say where the answer goes: to the thread of this session, or to the chat of this run."""
    key = SessionKey.parse(place.session.session_key)
    if key.scope == "thread":
        deployment = deployments.MAIN if key.agent == "main" else key.agent
        return {"session_key": str(key), "deployment": deployment, "thread_id": key.chat_id}
    route = runs.get(conn, place.run_id).route
    if route is None:  # in no chat: the answers stay in the job's own session
        return {}
    deliver, to = deliver_to(route)
    return {"deliver": deliver, "route": to}


def _act(conn: Connection, place: ToolContext, action: str, job_id: str) -> str:
    # A job of another namespace is as unknown as one that does not exist.
    mine = {job.id for job in jobs.listing(conn, ns=place.session.ns)}
    if job_id not in mine:
        raise NotFound(f"There is no job {job_id!r} here. The action list shows them.")
    if action not in _DONE:
        job = jobs.get(conn, job_id)
        return f"Prompt: {job.prompt} {line_of(job)}"
    job = jobs.act(conn, job_id, JobAction(action), place.clock(), place.who)
    return f"{_DONE[action]} {line_of(job)}"


_DONE = {"pause": "Paused.", "resume": "It goes on.", "run": "It runs in a moment.", "delete": "Deleted."}


def line_of(job: Job) -> str:
    """Returns one line about a job, for the agent and for people. Its times are those of its own time zone."""
    following = f"next {format_time(job.next_run_at, job.timezone)}" if job.next_run_at is not None else job.state.value
    last = f", last {job.last_status}" if job.last_status else ""
    return f"{job.id} “{job.name}”: {job.schedule_display} ({job.timezone}), {following}{last}"


def upcoming(job: Job, now: int) -> str:
    return ", ".join(format_time(each, job.timezone) for each in job.moments.upcoming(now))


TOOL = Tool(
    name="schedule",
    arguments=ScheduleArguments,
    function=schedule,
    idempotent=True,
    harmless=frozenset({"create", "list", "show"}),
    folder="",
)
