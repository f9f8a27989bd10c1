"""Calls functions again and again, by APScheduler, of which this is the one importer.

What was found by trying it: a tick that comes late is dropped after a second unless `misfire_grace_time` is None, and its shutdown cancels
coroutines that are at work. So here every tick is a task of ours, which ends before the clock is gone.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from gateway.context import App, Every
from gateway.observe.logging import get_logger
from sessions.errors import DatabaseUnavailable
from sessions.leases import HOUSE

log = get_logger(__name__)

Tick = Callable[[], Awaitable[object]]
STOP_SECONDS = 5.0
CLOCK_SECONDS = 1.0


class _Ticking:
    """Calls one function. A tick during which the one before still goes on is left out."""

    def __init__(self, name: str, tick: Tick, app: App) -> None:
        self._name = name
        self._tick = tick
        self._app = app
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        if (self.task is None or self.task.done()) and self._app.holders.is_held(HOUSE):
            self.task = asyncio.create_task(self._run_and_log(), name=f"tick {self._name}")
            await asyncio.shield(self.task)  # from APScheduler, which cancels what goes on when it is shut down

    async def _run_and_log(self) -> None:
        try:
            await self._tick()
        except DatabaseUnavailable:  # whoever watches the database tells of it; the next tick finds the same
            pass
        except Exception:  # one tick that fails must not stop the clock
            log.exception("scheduler.tick_failed", tick=self._name)


async def _follow_clock(scheduler: Any) -> None:
    """Lets every tick come at once after the clock was set back: APScheduler would wait until it has caught up, for a day if need be."""
    seen = datetime.now(UTC)
    while True:
        await asyncio.sleep(CLOCK_SECONDS)
        now = datetime.now(UTC)
        if now < seen:
            log.warning("clock.set_back", seconds=round((seen - now).total_seconds()))
            for job in scheduler.get_jobs():
                job.modify(next_run_time=now)
        seen = now


@contextlib.asynccontextmanager
async def ticking(app: App, *owners: object) -> AsyncGenerator[None]:
    """Calls every method of these objects that is marked with `every`, as often as its mark says, while the block lasts and this process keeps
    the house; what goes on at its end is finished.
    """
    from apscheduler.executors.asyncio import AsyncIOExecutor
    from apscheduler.jobstores.memory import MemoryJobStore
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)  # it tells of every tick
    scheduler: Any = AsyncIOScheduler(  # it has no types
        jobstores={"default": MemoryJobStore()},
        executors={"default": AsyncIOExecutor()},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
    )
    works: list[_Ticking] = []
    for owner in owners:
        for name, method in vars(type(owner)).items():
            mark = getattr(method, "every", None)
            if isinstance(mark, Every):
                works.append(_Ticking(mark.name, getattr(owner, name), app))
                at_once = datetime.now(UTC)
                scheduler.add_job(works[-1].run, "interval", seconds=mark.seconds, id=mark.name, next_run_time=at_once)
    scheduler.start()
    following = asyncio.create_task(_follow_clock(scheduler))
    try:
        yield
    finally:
        following.cancel()
        scheduler.pause()  # no new ticks while the last ones end
        under_way = [work.task for work in works if work.task is not None and not work.task.done()]
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
        scheduler.shutdown(wait=False)
