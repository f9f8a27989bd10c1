"""`hermes gateway status`: how the daemon is, from another terminal or another machine."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import click
from click.exceptions import Exit
from sqlalchemy import Connection

from adapters.registry import title_of
from gateway.cli.base import Cli, pass_cli
from gateway.cli.database_access import existing_database
from gateway.cli.output import as_called_here, as_json
from gateway.config.problems import BadConfig
from gateway.config.reading import load
from gateway.scheduler.reset_explanation import NextReset, next_resets
from gateway.texts import counted, format_duration, format_time, one_line
from sessions import gauges, jobs, workers
from sessions.clock import iso, now_ms
from sessions.gauges import Gauges
from sessions.jobs import Job
from sessions.runs import farewells
from sessions.workers import EngineState, LeaseRow, WorkerRow, WorkerState

NOT_RUNNING = 1
SHOWN = 3
_FULL_BYTES = 2**20


@click.command()
@click.option("--json", "wants_json", is_flag=True, help="Print one object.")
@pass_cli
def status(cli: Cli, wants_json: bool) -> None:
    """How the running gateway is. Ends with 1 when none runs."""
    try:
        rules = load(cli.home, cli.environ).config.session_reset.rules()
    except BadConfig:  # it is not usable; `hermes doctor` says why
        rules = None

    def read_state(conn: Connection, now: int) -> _HomeState:
        return _HomeState(
            workers=workers.everyone(conn),
            leases=workers.held_leases(conn, now),
            engine=workers.engine_state(conn),
            numbers=gauges.read_gauges(conn),
            jobs=jobs.upcoming(conn, limit=SHOWN),
            owed=len(farewells.owed(conn)),
            resets=() if rules is None else next_resets(conn, rules, now, limit=SHOWN),
        )

    with existing_database(cli) as database:
        now = now_ms() if database is None else database.clock()
        found = _HomeState() if database is None else database.read_now(read_state, now)
    if wants_json:
        click.echo(as_json(_facts(found, now)))
    else:
        click.echo("\n".join(_lines(cli, found, now)))
    if not found.is_running(now):
        raise Exit(NOT_RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HomeState:
    """`jobs`, `resets`: those that come next, the first in front."""

    workers: Sequence[WorkerRow] = ()
    leases: Sequence[LeaseRow] = ()
    engine: EngineState | None = None
    numbers: Gauges = field(default_factory=lambda: Gauges(runs={}, oldest_unread=None, outbox={}, oldest_due=None))

    jobs: Sequence[Job] = ()
    owed: int = 0
    resets: Sequence[NextReset] = ()

    def is_running(self, now: int) -> bool:
        return any(row.state_at(now) is WorkerState.READY for row in self.workers)


def _facts(found: _HomeState, now: int) -> dict[str, Any]:
    numbers = found.numbers
    return {
        "running": found.is_running(now),
        "workers": [
            {
                "name": row.name,
                "host": row.host,
                "pid": row.pid,
                "version": row.version,
                "role": row.role,
                "state": row.state_at(now),
                "started_at": iso(row.started_at),
                "last_seen": iso(row.last_seen),
                **row.report,
            }
            for row in found.workers
        ],
        "leases": [{"name": row.name, "owner": row.owner, "until": iso(row.until)} for row in found.leases],
        "engine": None if found.engine is None else asdict(found.engine),
        "queue": {
            "oldest_unread_seconds": _age(numbers.oldest_unread, now),
            "to_send": numbers.to_send,
            "oldest_due_seconds": _age(numbers.oldest_due, now),
            "undelivered": sum(numbers.undelivered.values()),
        },
        "jobs": [
            {"id": job.id, "name": job.name, "next_run_at": iso(job.next_run_at or 0), "last_status": job.last_status}
            for job in found.jobs
        ],
        "resets": [{"session_key": each.session_key, "at": iso(each.at)} for each in found.resets],
        "owed_farewells": found.owed,
        "runs": {
            "running": numbers.runs.get("running", 0),
            "waiting_on_human": numbers.runs.get("waiting_on_human", 0),
        },
    }


def _lines(cli: Cli, found: _HomeState, now: int) -> Iterator[str]:
    numbers = found.numbers
    if cli.home.is_dir() and (free := shutil.disk_usage(cli.home).free) < _FULL_BYTES:
        # A daemon that cannot write cannot report it either.
        yield f"The disk of {cli.home} is full ({free // 2**10} kB are free). Make room; what waits goes on by itself."
    if not found.workers:
        yield as_called_here(f"No gateway runs on {cli.home}. `hermes gateway run` starts one.")
    living = [row for row in found.workers if row.state_at(now) is WorkerState.READY]
    for row in found.workers:
        yield from _worker_lines(row, now)
        if row in living and (others := _configured_otherwise(row, living)):
            yield f"  {'Problem':<10} its configuration is not that of {others}: compare their config.yaml, also the machines' time zones"
        if held := [lease.name for lease in found.leases if lease.owner == row.owner]:
            yield f"  {'Holds':<10} {', '.join(held)}"
    waits = ""
    if numbers.oldest_unread is not None:
        waits = f", the oldest message waits for {format_duration((now - numbers.oldest_unread) / 1000)}"
    yield f"  {'Queue':<10} {counted(numbers.to_send, 'message')} to send{waits}"
    if (engine := found.engine) is not None:
        yield f"  {'Engine':<10} {counted(engine.at_work, 'job')} at work, {engine.waiting} waiting, {engine.stalled} stalled"
    running, waiting = numbers.runs.get("running", 0), numbers.runs.get("waiting_on_human", 0)
    yield f"  {'Runs':<10} {running} at work, {waiting} waiting for a person"
    for number, reset in enumerate(found.resets):
        yield f"  {'' if number else 'Resets':<10} in {format_duration((reset.at - now) / 1000)}  {one_line(reset.session_key, 60)}"
    for number, job in enumerate(found.jobs):
        following = format_time(job.next_run_at or now, job.timezone)
        yield f"  {'' if number else 'Jobs':<10} {following}  {one_line(job.name, 60)}"
    if found.owed:
        yield f"  {'Notes':<10} still to be made of {counted(found.owed, 'ended session')}, when the model can be reached"
    if undelivered := sum(numbers.undelivered.values()):
        yield f"  {'Problem':<10} {counted(undelivered, 'undelivered message')}: {as_called_here('hermes outbox list')}"


def _worker_lines(row: WorkerRow, now: int) -> Iterator[str]:
    report, state = row.report, row.state_at(now)
    if state is WorkerState.LOST:
        yield f"hermes {row.version} was killed or does not answer: process {row.pid} on {row.host}, last seen {format_duration((now - row.last_seen) / 1000)} ago."
        return
    yield f"hermes {row.version} has been running for {format_duration((now - row.started_at) / 1000)}, process {row.pid} on {row.host}"
    yield f"  {'Home':<10} {report.get('home', '')}"
    yield f"  {'Model':<10} {report.get('model', '')}"
    yield f"  {'API':<10} {report.get('url', '')}"
    for name, part in report.get("parts", {}).items():
        yield f"  {'Database' if name == 'database' else title_of(name):<10} {one_line(part.get('words') or part.get('state') or '')}"
    yield f"  {'Memory':<10} {report.get('memory_bytes', 0) / 2**20:.0f} MB"
    for name, server in report.get("mcp_servers", {}).items():
        if server["state"] == "down":
            yield f"  {'Problem':<10} the MCP server {name} is down: {one_line(server['why'])}"
    for alert in report.get("alerts", ()):
        yield as_called_here(f"  {'Problem':<10} {one_line(alert)}")
    config = report.get("config", {})
    if refused := config.get("refused"):
        problems = refused["problems"]
        ago = format_duration(max(0.0, now / 1000 - datetime.fromisoformat(refused["at"]).timestamp()))
        yield f"  {'Problem':<10} the changed configuration was refused {ago} ago; the last good one counts:"
        yield from (f"  {'':<10} {one_line(problem)}" for problem in problems[:5])
        yield as_called_here(f"  {'':<10} `hermes config check` shows what to write.")


def _configured_otherwise(row: WorkerRow, living: Sequence[WorkerRow]) -> str:
    """Returns the workers whose configuration differs from that of this one. Those of an older version do not tell."""
    ours = row.report.get("config", {}).get("digest")
    digests = {each.name: each.report.get("config", {}).get("digest") for each in living}
    return ", ".join(name for name, theirs in digests.items() if ours and theirs and theirs != ours)


def _age(since: int | None, now: int) -> float | None:
    return None if since is None else max(0.0, (now - since) / 1000)
