"""`hermes jobs`: lists, adds, pauses, runs and deletes jobs."""

import json
from textwrap import indent
from typing import Any

import click

from gateway.cli.base import Cli, operator, pass_cli
from gateway.cli.database_access import completing, existing_database, job_ids, opened
from gateway.cli.output import as_json, tell
from gateway.texts import clean, one_line
from sessions import jobs as store
from sessions.clock import iso, now_ms
from sessions.db import Database
from sessions.jobs import Job
from sessions.jobs.delivery import destination

_SHOWN = 10
NOTHING = "No jobs. hermes jobs add NAME SCHEDULE PROMPT makes one."


@click.group()
def jobs() -> None:
    """List, add, pause, run and delete scheduled jobs."""


@jobs.command("list")
@click.option("--json", "wants_json", is_flag=True, help="Print one array.")
@pass_cli
def list_(cli: Cli, wants_json: bool) -> None:
    """List the jobs, finished and paused ones too."""
    with existing_database(cli) as database:
        found = database.read_now(store.listing) if database else []
    if wants_json:
        click.echo(as_json([_facts(job) for job in found]))
        return
    if not found:
        tell(NOTHING)
    for job in found:
        click.echo(_line(job))


@jobs.command()
@click.argument("job_id", metavar="ID", shell_complete=completing(job_ids))
@click.option("--json", "wants_json", is_flag=True, help="Print one object.")
@pass_cli
def show(cli: Cli, job_id: str, wants_json: bool) -> None:
    """Print one job, its next three times, how its last runs went, and what they said."""
    with opened(cli) as database:
        job = _find(database, job_id)
        runs = database.read_now(store.slots_with_output, job.id, limit=_SHOWN)
    following = job.moments.upcoming(now_ms()) if job.next_run_at is not None else []
    if wants_json:
        slots = [
            {"scheduled_at": iso(s.slot), "outcome": s.outcome, "status": s.status, "error": s.error, "output": said}
            for s, said in runs
        ]
        click.echo(as_json({**_facts(job), "next_runs": [iso(each) for each in following], "runs": slots}))
        return
    click.echo(f"{_line(job)}\n\n{clean(job.prompt)}\n")
    click.echo(f"answers      {one_line(destination(job), 200)}\nruns in      {one_line(job.session_key)}")
    for number, moment in enumerate(following):
        click.echo(f"{'' if number else 'next':<13}{_moment(moment, job)}")
    if job.repeat_times is not None:
        click.echo(f"repeats      {job.completed} of {job.repeat_times} times")
    if job.last_error:
        click.echo(f"last error   {one_line(job.last_error, 100)}")
    for slot, said in runs:
        click.echo(f"  {_moment(slot.slot, job)}  {slot.status}{' (made up)' if slot.outcome == 'made_up' else ''}")
        if said:
            click.echo(indent(clean(said.strip()), "      "))


@jobs.command()
@click.argument("name")
@click.argument("schedule")
@click.argument("prompt")
@click.option("--timezone", metavar="ZONE", help="Such as Europe/London. Default: as configured.")
@click.option("--repeat", type=click.IntRange(1), help="How often it runs. Default: for ever.")
@click.option(
    "--deliver", help="local, or a platform such as telegram[:CHAT]. Default: your own chat, where there is one."
)
@pass_cli
def add(
    cli: Cli, name: str, schedule: str, prompt: str, timezone: str | None, repeat: int | None, deliver: str | None
) -> None:
    """Run PROMPT at the times of SCHEDULE: five cron fields, @daily, "every 30m", 30m, or 2030-01-31T09:00."""
    # Imported here: the other commands of this group need no configuration, and it loads pydantic.
    from gateway.config.reading import load
    from sessions.jobs.delivery import owner_route, require_target

    config = load(cli.home, cli.environ).config
    platforms = config.platforms.in_use()
    if deliver is None:
        with opened(cli) as database:
            own = database.read_now(owner_route, platforms)
        deliver = own.address.platform if own else store.LOCAL
    new = store.new_job(
        name=name,
        schedule=schedule,
        prompt=prompt,
        timezone=timezone or config.session_reset.zone,
        repeat=repeat,
        deliver=require_target(deliver, platforms),
        now=now_ms(),
    )
    with opened(cli) as database:
        job = database.write_now(store.create, new, who=operator(), limits=store.JobLimits(total=config.limits.jobs))
    click.echo(_line(job))
    for moment in job.moments.upcoming(now_ms()):
        click.echo(f"  {_moment(moment, job)}")
    click.echo(f"Its answers are {one_line(destination(job), 200)}.")


def _changing(name: str, about: str, said: str) -> None:
    @jobs.command(name, help=about)
    @click.argument("job_id", metavar="ID", shell_complete=completing(job_ids))
    @pass_cli
    def command(cli: Cli, job_id: str) -> None:
        with opened(cli) as database:
            job = _find(database, job_id)
            database.write_now(store.act, job.id, store.JobAction(name), now_ms(), operator())
        click.echo(said.format(name=one_line(job.name)))

    _ = command


_changing("pause", "Run it no more until it is resumed.", "“{name}” is paused.")
_changing("resume", "Run it again from now on.", "“{name}” goes on.")
_changing("run", "Run it now, besides its schedule.", "“{name}” runs as soon as the gateway does.")
_changing("delete", "Delete it. Its session stays.", "“{name}” is deleted.")


def _find(database: Database, prefix: str) -> Job:
    """Returns the job of this id, beginning of an id, or name. Raises NotFound or Ambiguous."""
    from sessions.errors import Ambiguous

    found = [job for job in database.read_now(store.listing) if job.id.startswith(prefix) or job.name == prefix]
    if len(found) > 1:
        raise Ambiguous(f"{prefix!r} fits several jobs: {', '.join(job.id for job in found[:5])}.")
    return found[0] if found else database.read_now(store.get, prefix)


def _line(job: Job) -> str:
    following = f"next {_moment(job.next_run_at, job)}" if job.next_run_at is not None else job.state.value
    last = f"  last {job.last_status}" if job.last_status else ""
    return f"{job.id}  {one_line(job.name, 40)}  {job.schedule_display} ({job.timezone})  {following}{last}"


def _moment(ms: int, job: Job) -> str:
    from gateway.texts import format_time

    return format_time(ms, job.timezone)


def _facts(job: Job) -> dict[str, Any]:
    schedule = json.loads(job.schedule.to_json())
    if "run_at" in schedule:
        schedule["run_at"] = iso(schedule["run_at"])
    return {
        "id": job.id,
        "name": job.name,
        "prompt": job.prompt,
        "schedule": schedule,
        "schedule_display": job.schedule_display,
        "timezone": job.timezone,
        "repeat": {"times": job.repeat_times, "completed": job.completed},
        "enabled": job.enabled,
        "state": job.state.value,
        "created_at": iso(job.created_at),
        "next_run_at": iso(job.next_run_at) if job.next_run_at is not None else None,
        "last_run_at": iso(job.last_run_at) if job.last_run_at is not None else None,
        "last_status": job.last_status,
        "last_error": job.last_error,
        "deliver": job.deliver,
        "session_key": job.session_key,
    }
