"""Claims runs and drives them, many at once and one for each session, until it is drained."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from gateway.agent.models.interface import (
    REFUSED,
    TOO_LONG,
    ContextOverflow,
    InputTooLong,
    ModelRefused,
    ModelUnreachable,
)
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.runs.farewell import OWED_MS, SECONDS
from gateway.runs.live import LiveEvent
from gateway.runs.loop import LoopEnd, advance
from gateway.runs.outages import GIVE_UP_MINUTES
from gateway.runs.run import ActiveRun
from gateway.texts import say
from sessions import jobs, runs
from sessions.errors import DatabaseUnavailable, LeaseLost, StateError
from sessions.records import Run, RunKind
from sessions.topics import Topic, Touch, ids_of

log = get_logger(__name__)

RETRY_SECONDS = 1.0
DRAIN_SECONDS = 10


class Worker:
    """Drives the runs that it claims. `run` can be cancelled, which is the same as a crash: call `drain` first."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._active: dict[str, tuple[Run, asyncio.Task[None]]] = {}
        self._draining = False
        self._taking: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def active(self) -> int:
        return len(self._active)

    async def run(self) -> None:
        """Takes runs and drives them, renews their leases, and looks for work that no commit has told of. Ends when drained."""
        database = self.app.database
        unlisten = database.listen(self._on_commit, Topic.STOPPED)
        uncount = database.listen(self._count_stopped, Topic.STOPPED, only_own=True)
        try:
            async with asyncio.TaskGroup() as group:
                beside = (self._keep_alive(), self._poll(), self.app.standstills.run())
                extras = [group.create_task(work) for work in beside]
                self._taking = asyncio.current_task()
                try:
                    while not self._draining:
                        run = await self._claim()
                        task = group.create_task(self._drive(run), name=f"run {run.id}")
                        self._active[run.id] = (run, task)
                except asyncio.CancelledError:
                    # `drain` cancels this task to end the wait for a claim; any other cancellation is the daemon's end.
                    if not self._draining:
                        raise
                    if (task := asyncio.current_task()) is not None:
                        task.uncancel()
                for extra in extras:
                    extra.cancel()
        finally:
            unlisten()
            uncount()

    async def _claim(self) -> Run:
        while True:
            try:
                return await self.app.dispatch.claim()
            except DatabaseUnavailable:  # whoever watches the database tells of it; the message is still there
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001  # nor does any other failure end the worker
                log.warning("run.not_claimed", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Takes nothing more, lets each run reach the end of its step, then gives it back. May be called again."""
        if self._taking is not None and not self._draining:
            self._taking.cancel()
        self._draining = True
        tasks = [task for _, task in self._active.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _drive(self, run: Run) -> None:
        work = ActiveRun(self.app, run, draining=lambda: self._draining)
        unfinished = False
        self.app.live.publish(LiveEvent(run.id, "begun", run=run))
        log.debug("run.started" if run.fence == 1 else "run.resumed", run_id=run.id, session_key=run.session_key)
        try:
            unfinished = await self._advance(run, work) is LoopEnd.DRAINED
        except LeaseLost:
            # By /stop, or by another worker. In either case nothing more may be written but the text so far.
            log.debug("run.lost", run_id=run.id)
            await self._logged("run.words_not_kept", work.keep_stopped)
        except asyncio.CancelledError:  # by /stop, by the end of `drain`, or by that of the daemon
            unfinished = self._draining
            if await self._was_stopped(run):
                await self._logged("run.words_not_kept", work.keep_stopped)
            elif not self._draining:
                raise
        except Exception as error:  # noqa: BLE001  # not even its end could be written; it is found again in a moment
            log.warning("run.put_off", run_id=run.id, error=str(error))
        finally:
            self._active.pop(run.id, None)
            self.app.live.publish(LiveEvent(run.id, "ended"))
            # Released before it is given back: the notification of that commit must find the key free.
            await self.app.dispatch.release(run)
            if unfinished:
                await self._logged("run.not_given_back", lambda: self.app.dispatch.give_back(run))

    async def _was_stopped(self, run: Run) -> bool:
        """Returns whether the run was stopped or taken over. Returns False where that cannot be known: its session is deleted, or the
        database is away.
        """
        try:
            current = await self.app.database.read(runs.get, run.id)
        except StateError:  # raised from here it would end the worker's task group, and with it every other run
            return False
        return current.fence != run.fence

    async def _advance(self, run: Run, work: ActiveRun) -> LoopEnd:
        """Advances the run as far as it goes now. Ends it with a line in its chat where an error does not allow to go on."""
        if run.kind is RunKind.FAREWELL:
            return await self._say_farewell(run, work)
        if run.attempts > runs.MAX_TAKEOVERS:  # whatever it does kills the process again and again
            return await self._fail(
                run,
                work,
                f"given up after {run.attempts} interruptions without progress",
                say("run.failed"),
                is_given_up=True,
            )
        try:
            with self.app.side_work.held_back():
                ended = await advance(work)
        except ModelUnreachable as error:
            return await self._wait_for_model(run, work, str(error))
        except (InputTooLong, ContextOverflow) as error:
            return await self._fail(run, work, str(error), say("model.too_long"), code=TOO_LONG)
        except ModelRefused as error:
            about_call = error.about_transcript or error.status in {400, 422}
            notice = say("model.refused", reason=str(error))
            return await self._fail(run, work, str(error), notice, code=REFUSED if about_call else None)
        except (LeaseLost, asyncio.CancelledError):
            raise
        except Exception as error:  # one bad transcript or tool must stay that session's problem
            log.exception("run.failed", run_id=run.id, session_key=run.session_key)
            shown = f"Something went wrong inside ({type(error).__name__}). The gateway's log says what."  # its words may name our files
            return await self._fail(run, work, shown, say("run.failed"))
        if ended in {LoopEnd.FINISHED, LoopEnd.OVER_BUDGET, LoopEnd.HANDED_OVER}:
            self.app.metrics.run_ended("budget" if ended is LoopEnd.OVER_BUDGET or work.cut_off else "done")
            log.info("run.finished", run_id=run.id, session_key=run.session_key, ended=ended.value, **work.log_fields())
        elif ended is LoopEnd.PARKED:
            log.debug("run.parked", run_id=run.id, session_key=run.session_key)
        return ended

    async def _say_farewell(self, run: Run, work: ActiveRun) -> LoopEnd:
        """Gives the farewell, or puts it off: it is owed, for a day where something else than the model's absence is in the way."""
        attempts, is_away = 0, False
        try:
            if run.attempts > runs.MAX_TAKEOVERS:
                attempts = runs.MAX_TAKEOVERS  # one try more next time
                why = f"{run.attempts} interruptions without progress"
            else:
                async with asyncio.timeout(SECONDS):
                    return await advance(work)
        except (ModelUnreachable, TimeoutError) as error:
            is_away, why = True, str(error) or f"not done within {SECONDS} s"
        except ModelRefused as error:
            is_away, why = not error.about_transcript and error.status not in {400, 422}, str(error)
        except (LeaseLost, asyncio.CancelledError):
            raise
        except Exception as error:  # one bad transcript or tool must stay that session's problem
            if run.away_since is None:
                log.exception("run.failed", run_id=run.id, session_key=run.session_key)
            why = f"{type(error).__name__} in the farewell. The log says what."
        if not is_away and self.app.clock() - run.created_at > OWED_MS:
            return await self._fail(run, work, why, "")
        await work.put_off(attempts=attempts)
        log.info("session.farewell_put_off", run_id=run.id, session_key=run.session_key, error=why)
        return LoopEnd.ASLEEP

    async def _wait_for_model(self, run: Run, work: ActiveRun, error: str) -> LoopEnd:
        """Puts the run to sleep as a row. Ends it in error where somebody waits for the call's answer, or after half an hour."""
        if not work.may_sleep:
            return await self._fail(run, work, error, say("model.unreachable_now"))
        wake_at = await work.sleep()
        if wake_at is None:
            return await self._fail(run, work, error, say("model.given_up", minutes=GIVE_UP_MINUTES), is_given_up=True)
        log.warning("model.unreachable", run_id=run.id, session_key=run.session_key, error=error)
        return LoopEnd.ASLEEP

    async def _fail(
        self, run: Run, work: ActiveRun, error: str, notice: str, code: str | None = None, *, is_given_up: bool = False
    ) -> LoopEnd:
        event = "job.failed" if run.kind is RunKind.JOB else "run.failed"
        log.warning(event, run_id=run.id, session_key=run.session_key, error=error)
        if run.kind is RunKind.JOB and is_given_up and run.route is not None:
            job = await self.app.database.read(jobs.of_run, run.id)
            told = say("job.given_up", name=job.name if job else "", error=error.rstrip("."))
        else:
            told = notice if run.kind is RunKind.CHAT else None
        await work.fail(error, told, code)
        self.app.metrics.run_ended("error")
        return LoopEnd.FINISHED

    # --- beside the runs ---

    def _on_commit(self, touched: frozenset[Touch]) -> None:
        self._loop.call_soon_threadsafe(self._interrupt, ids_of(Topic.STOPPED, touched))

    def _count_stopped(self, touched: frozenset[Touch]) -> None:
        for _ in ids_of(Topic.STOPPED, touched):
            self.app.metrics.run_ended("cancelled")

    def _interrupt(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            if run_id in self._active:
                self._active[run_id][1].cancel()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self.app.dispatch.keep_alive_seconds)
            await self._logged("lease.not_renewed", lambda: self.app.dispatch.keep_alive(list(self._active)))

    async def _poll(self) -> None:
        while True:
            await self._logged("inbox.not_looked_at", self.app.dispatch.poll)
            await asyncio.sleep(self.app.dispatch.poll_seconds)

    async def _logged(self, failure: str, work: Callable[[], Awaitable[None]]) -> None:
        """Does the work. Logs `failure` when that fails, and raises nothing."""
        try:
            await work()
        except DatabaseUnavailable:  # whoever watches the database tells of it
            pass
        except Exception as error:  # noqa: BLE001  # what goes on beside the runs must not end them
            log.warning(failure, error=str(error))


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncGenerator[None]:
    """Drives runs while the block lasts, then drains."""
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        await worker.drain()
        await task
