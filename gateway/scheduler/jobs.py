"""The tick of jobs: decides for each job that is due whether its slot runs, is made up or missed.

Every second it reads what is due, and fires it in the transaction of `sessions/jobs/firing.py`.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from gateway.agent.prompts import load_prompt
from gateway.context import App, every
from gateway.observe.logging import get_logger
from gateway.texts import format_short_time, say
from sessions import deployments, jobs, outbox
from sessions.errors import NotFound
from sessions.jobs import Job, SlotOutcome
from sessions.jobs.delivery import owner_route, target_of
from sessions.jobs.firing import Fired
from sessions.messages import Content
from sessions.records import CallOptions, Route

log = get_logger(__name__)

EVERY_SECONDS = 1.0
TOGETHER = 100
ON_TIME_MS = 60_000
"""A slot that is fired this late is not called late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobPlan:
    """What is decided about a due job before the transaction. `following`: its next slot; None: there is none."""

    job: Job
    slot: int
    outcome: SlotOutcome
    following: int | None
    notice: str


class Jobs:
    """Fires due jobs. Several processes may call `tick` at the same time: each slot is fired once, by the first that inserts its row."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._ticked_at: int | None = None

    @every(EVERY_SECONDS, "jobs")
    async def tick(self) -> None:
        now = self.app.clock()
        if self._ticked_at is None or now < self._ticked_at:
            await self._bring_forward(now)
        self._ticked_at = now
        # Again while a batch is full. A job that was fired is due no more, so this ends.
        while found := await self.app.database.read(jobs.due, now, TOGETHER):
            await asyncio.gather(*(self._fire(_plan(job, now), now) for job in found))  # they share a commit
            if len(found) < TOGETHER:
                break
        for job in await self.app.database.read(jobs.failing):
            await self.app.database.write(_notify_owner, job, self.app.config.platforms.in_use(), now)

    async def _bring_forward(self, now: int) -> None:
        """Finds the jobs whose next slot was computed while the clock was ahead: there is an earlier one."""
        waiting = await self.app.database.read(jobs.upcoming)
        for job, following in await asyncio.to_thread(_too_late, waiting, now):
            if await self.app.database.write(jobs.bring_forward, job, following):
                log.warning("job.brought_forward", job_id=job.id, session_key=job.session_key)

    async def _fire(self, plan: _JobPlan, now: int) -> None:
        fired = await self.app.database.write(_fire, plan, now)
        if fired is None:
            return
        event = "job.missed" if fired.outcome is SlotOutcome.MISSED else "job.fired"
        log.info(
            event, job_id=plan.job.id, session_key=plan.job.session_key, slot=fired.slot, outcome=fired.outcome.value
        )
        if fired.outcome is not SlotOutcome.MANUAL:
            self.app.metrics.job_slot(fired.outcome.value)


def _too_late(waiting: Sequence[Job], now: int) -> list[tuple[Job, int]]:
    following = [(job, job.moments.after(now)) for job in waiting]
    return [(job, slot) for job, slot in following if slot is not None and slot < (job.next_run_at or 0)]


def _plan(job: Job, now: int) -> _JobPlan:
    if job.run_soon_at is not None or job.next_run_at is None:
        return _JobPlan(job=job, slot=now, outcome=SlotOutcome.MANUAL, following=job.next_run_at, notice="")
    moments = job.moments
    # The last one that is due: of the slots that were slept through only this one can be made up.
    slot = moments.last(now, job.next_run_at)
    if now - slot <= ON_TIME_MS:
        outcome = SlotOutcome.RAN
    else:
        outcome = SlotOutcome.MADE_UP if moments.may_make_up(slot, now) else SlotOutcome.MISSED
    missed = say("job.missed", name=job.name, when=format_short_time(slot, now, job.timezone))
    return _JobPlan(job=job, slot=slot, outcome=outcome, following=moments.after(max(slot, now)), notice=missed)


def _fire(conn: Connection, plan: _JobPlan, now: int) -> Fired | None:
    job, route = plan.job, target_of(conn, plan.job)
    fired = jobs.fire(
        conn, job, plan.slot, plan.outcome, now, following=plan.following, route=route, options=_options(conn, job)
    )
    if fired is not None and fired.outcome is SlotOutcome.MISSED and fired.error is None and route is not None:
        _put(conn, job, route, plan.notice, now, f"missed:{plan.slot}")
    return fired


def _options(conn: Connection, job: Job) -> CallOptions:
    """Returns the options of the run: that it is a job, and the agent of its deployment."""
    layered = (load_prompt("job"),)
    try:  # it may be deleted since; then the job runs as the main agent
        found = deployments.get(conn, job.deployment) if job.deployment is not None else None
    except NotFound:
        found = None
    if found is None:
        return CallOptions(layered=layered)
    return CallOptions(layered=layered, system_prompt=found.system_prompt, model=found.model)


def _notify_owner(conn: Connection, job: Job, platforms: Collection[str], now: int) -> None:
    """Sends the owner one line after the third failure in a row, and no more until it has worked again."""
    route = owner_route(conn, platforms)
    if jobs.mark_owner_notified(conn, job.id) and route is not None:
        error = (job.last_error or "unknown").rstrip(".")
        _put(conn, job, route, say("job.failed_thrice", name=job.name, error=error), now, f"failed:{now}")


def _put(conn: Connection, job: Job, route: Route, text: str, now: int, what: str) -> None:
    key = f"job:{job.id}:{what}"
    outbox.put(conn, route, Content(text=text), now, dedup_key=key, session_key=job.session_key)
