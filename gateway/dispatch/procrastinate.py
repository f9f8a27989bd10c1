"""Distributes runs over the processes on one PostgreSQL.

A commit that makes work defers a job in its own transaction, and whoever has a place fetches it. The jobs are in `sessions/wakeups.py`.

A process that has places to spare works itself on what its commits bring: who waits for the answer is connected with it, so that neither the
words nor the end of the run have to be told to another one. What it has no place for, or leaves lying, is everybody's.

Who lives is told by heartbeats, which the bus gives: one row for each process, none for each run.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy import Connection

from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import lease_owners, runs, wakeups
from sessions.db.bus import Bus
from sessions.db.engine import record_touch, touch
from sessions.errors import DatabaseUnavailable, StateError
from sessions.records import Run, RunKind
from sessions.runs import farewells
from sessions.topics import FarewellBegun, Topic, Touch
from sessions.wakeups import Wakeup

log = get_logger(__name__)

FULL_SECONDS = 0.1
"""How long to wait for a place; calls without a session give theirs back without telling."""
SOON_MS = 60_000
"""A run that waits for a time no further away is looked at again then; what is later is found by `poll`."""
FAREWELLS = 64
"""How many farewells one poll finds; the next poll finds more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    """A job that was fetched, and the run that it led to. None: there was nothing to do, before `again_at` at least."""

    wakeup: Wakeup
    run: Run | None
    again_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A run that this process works on, and the job that led to it."""

    wakeup: Wakeup
    fence: int


class ProcrastinateDispatch:
    """`serves`: it works on all keys but those of terminals; else only on those that are added."""

    poll_seconds = 2.0
    keep_alive_seconds = 2.0

    def __init__(self, app: App, bus: Bus, worker: int, *, serves: bool) -> None:
        self.app = app
        self.worker = worker
        self._bus = bus
        self._serves = serves
        self._queues: list[str] = []  # of terminals
        self._held: dict[str, _Held] = {}  # by the run's id
        self._ended: list[int] = []  # jobs that the next fetch ends
        self._wake = asyncio.Event()
        self._wake.set()
        self._fetching = asyncio.Lock()
        self._claims = False
        self._takes = False  # from the first claim until it is drained
        self._has_own = False  # something may wait in the queue of this worker alone
        self._seen: set[int] = set()  # in the queues of other workers, at the last poll
        self._beside: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._stops = [
            app.database.listen(self._on_own_commit, Topic.INBOX, Topic.FAREWELL, only_own=True),
            app.database.listen(self._on_call, Topic.WORK, Topic.LOOK),
        ]

    @classmethod
    async def open(cls, app: App, bus: Bus, *, serves: bool) -> Self:
        """Registers this process as a worker, which owns its leases from now on."""
        bus.in_runs = max(1, app.places.total * 3 // 4)
        worker = await app.database.write(wakeups.register, bus.in_runs)
        app.owner = lease_owners.of_worker(worker)
        bus.workers.add(worker)
        bus.takes_work = bus.takes_work or serves
        bus.open()
        opened = cls(app, bus, worker, serves=serves)
        if serves:
            bus.first_worker = opened._first_worker
        return opened

    def stop_listening(self) -> None:
        for stop in self._stops:
            stop()
        for task in self._beside:
            task.cancel()

    async def close(self) -> None:
        self.stop_listening()
        self._bus.workers.discard(self.worker)
        self._takes = False
        with contextlib.suppress(StateError):  # whoever is gone without a word counts as stalled soon
            await self.app.database.write(wakeups.unregister, self.worker, self._bus.in_runs)

    def add_key(self, session_key: str) -> None:
        self._queues.append(wakeups.queue_of(session_key))
        self._wake.set()

    # --- news ---

    @property
    def _has_places(self) -> bool:
        """Whether there are more than the quarter that is kept for the first queue."""
        return self.app.places.free > self.app.places.total // 4

    def _first_worker(self) -> int | None:
        if not self._takes or not self._has_places or self._bus.steady_since is None:
            return None
        self._has_own = True
        return self.worker

    def _on_own_commit(self, _: frozenset[Touch]) -> None:
        if self._serves and not (self._takes and self._has_places):
            self._call_others()
        self._on_call(_)

    def _call_others(self) -> None:
        """Others take what this process has no place for. While it has, nobody else is made to look: each look costs a transaction."""
        self._bus.publish(frozenset({Touch(Topic.WORK, "")}))

    def _on_call(self, _: frozenset[Touch]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake.set)

    def notify(self, session_key: str) -> None:
        self._run_beside(self.app.database.write(touch, Topic.INBOX, session_key))

    def _run_beside(self, work: Awaitable[None]) -> None:
        async def quietly() -> None:
            with contextlib.suppress(StateError):  # `poll` finds it
                await work

        task = asyncio.create_task(quietly())
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def poll(self) -> None:
        """Takes the jobs of processes that are gone, finds work that has no job (what was put aside until now, what was lost), and runs of this
        process that others have stopped or taken over without a word.
        """
        now, claimed = self.app.clock(), {run_id: held.fence for run_id, held in self._held.items()}
        stalled, without, seen, gone = await self.app.database.read(self._look, now, claimed)
        if gone:
            self._bus.hear(frozenset(Touch(topic, run_id) for run_id in gone for topic in (Topic.STOPPED, Topic.RUN)))
        left, self._seen = seen & self._seen, seen  # nobody has taken them in all this time
        if not self._bus.is_steady:  # those that have ended in order are free at once
            stalled = await self.app.database.read(wakeups.ended, stalled) if stalled else []
        async with self._fetching:  # or a fetch that is under way would be taken for a lost one
            known = [*self._ended, *(each.wakeup.job for each in self._held.values())]
            lost = await self.app.database.read(wakeups.lost, self.worker, known)
            if lost:
                await self.app.database.write(wakeups.rescue, lost, self._bus.in_runs, me=self.worker)
        if stalled:
            rescued = await self.app.database.write(wakeups.rescue, stalled, self._bus.in_runs)
            log.warning("work.rescued", jobs=rescued)
        if without:
            await self.app.database.write(wakeups.defer, without, self._bus.in_runs)
        if left:
            await self.app.database.write(wakeups.offer, None, left, self._bus.in_runs)
        if lost or stalled or without or left or self._bus.is_alone:  # else the bus says so as often
            self._wake.set()  # there may be jobs of which no word has come

    def _look(
        self, conn: Connection, now: int, claimed: dict[str, int]
    ) -> tuple[list[Wakeup], list[tuple[str, str | None]], set[int], list[str]]:
        due = farewells.due(conn, now, FAREWELLS)
        without = wakeups.without_job(conn, runs.in_flight_now(conn, now), due)
        gone = runs.lost(conn, claimed) if claimed else []
        return wakeups.stalled(conn), without, wakeups.in_queues_of_others(conn, self.worker), gone

    # --- claims ---

    async def claim(self) -> Run:
        self._claims = self._takes = True
        try:
            while True:
                self._wake.clear()
                # While it gives no heartbeats, what it takes would be taken away from it.
                may_fetch = self._bus.steady_since is not None and (self._serves or self._queues)
                fetched = await self._fetch() if may_fetch else None
                if fetched is None:
                    await self._wake.wait()
                elif fetched.run is not None:
                    return fetched.run
                elif fetched.again_at is not None:
                    pause = (fetched.again_at - self.app.clock()) / 1000
                    self._loop.call_later(max(0.0, pause), self.notify, fetched.wakeup.session_key)
        except asyncio.CancelledError:
            self._claims = self._takes = False
            await self._finish_ended()
            if self._has_own:
                with contextlib.suppress(StateError):  # others find it
                    await self.app.database.write(wakeups.offer, self.worker, (), self._bus.in_runs)
            raise
        finally:
            self._claims = False

    async def _fetch(self) -> _Fetched | None:
        while self.app.places.free <= 0:  # noqa: ASYNC110  # of places that calls without a session give back nobody tells
            await asyncio.sleep(FULL_SECONDS)
        async with self._fetching:
            queues = list(self._queues)
            if self._serves:
                queues += [wakeups.own_queue(self.worker), wakeups.RUNS]
            if self._serves and self._has_places:
                queues.append(wakeups.REST)
            offers = self._has_own and not self._has_places
            self._has_own = self._has_own and not offers
            ended, self._ended = self._ended, []
            # Shielded: a transaction that is under way commits even when this task is cancelled, and its run must not be lost.
            taking = asyncio.ensure_future(self.app.database.write(self._fetch_and_claim, queues, ended, offers=offers))
            try:
                fetched = await asyncio.shield(taking)
            except asyncio.CancelledError:
                # First, since nobody fetches any more, which would finish the jobs of runs that end meanwhile.
                self._claims = self._takes = False
                await self._return_fetched(taking, ended)
                raise
            except BaseException:
                self._ended += ended
                self._wake.set()
                raise
            if fetched is not None and fetched.run is not None:
                self._held[fetched.run.id] = _Held(wakeup=fetched.wakeup, fence=fetched.run.fence)
                self.app.places.enter(fetched.wakeup.group)
            return fetched

    async def _return_fetched(self, taking: "asyncio.Future[_Fetched | None]", ended: list[int]) -> None:
        """Returns what was fetched while the caller was cancelled."""
        try:
            fetched = await taking
        except (StateError, DatabaseUnavailable):  # the caller must see its cancellation, not this
            self._ended += ended
            return
        if fetched is not None and fetched.run is not None:
            await self.app.database.write(wakeups.finish, self.worker, [fetched.wakeup.job])
            await self.give_back(fetched.run)

    def _fetch_and_claim(
        self, conn: Connection, queues: Sequence[str], ended: Sequence[int], *, offers: bool
    ) -> _Fetched | None:
        wakeups.finish(conn, self.worker, ended)
        if offers:
            wakeups.offer(conn, self.worker, (), self._bus.in_runs)
        found = wakeups.fetch(conn, self.worker, queues) if queues else None
        if found is None:
            return None
        now, owner = self.app.clock(), self.app.owner
        if found.farewell is not None:
            run = runs.claim_farewell(conn, found.farewell, owner, now, lease_ms=None)
        else:
            opening = self.app.resets.opening(found.session_key)
            run = runs.claim(conn, found.session_key, owner, opening, now, lease_ms=None)
            if run is not None:  # in the same transaction, so that the run begins with all that is there
                runs.take_in_new_messages(conn, run, now, claimed_now=True)
        if run is not None:
            return _Fetched(wakeup=found, run=run)
        wakeups.finish(conn, self.worker, [found.job])
        waiting = runs.active(conn, found.session_key) if found.farewell is None else None
        again_at = None if waiting is None or waiting.away_since is not None else waiting.wake_at
        is_soon = again_at is not None and now < again_at <= now + SOON_MS
        return _Fetched(wakeup=found, run=None, again_at=again_at if is_soon else None)

    async def keep_alive(self, run_ids: Sequence[str]) -> None:  # noqa: ARG002  # one heartbeat is for all of them
        self._bus.sign_of_life()

    async def release(self, run: Run) -> None:
        held = self._held.pop(run.id, None)
        if held is None:
            return
        self.app.places.leave(held.wakeup.group)
        self._ended.append(held.wakeup.job)
        self._wake.set()
        if not self._claims:  # nobody fetches any more
            await self._finish_ended()

    async def _finish_ended(self) -> None:
        ended, self._ended = self._ended, []
        if not ended:
            return
        try:
            await self.app.database.write(wakeups.finish, self.worker, ended)
        except StateError as error:  # found by `poll`, here or elsewhere
            log.debug("work.not_finished", error=str(error))

    async def give_back(self, run: Run) -> None:
        """Returns an unfinished run, so that the next process continues at once."""
        await self.app.database.write(_give_back, run)
        self._call_others()


def _give_back(conn: Connection, run: Run) -> None:
    runs.give_back(conn, run.id, run.fence)
    if run.kind is RunKind.FAREWELL:
        record_touch(conn, FarewellBegun.by(run.id, run.session_key))
    else:
        touch(conn, Topic.INBOX, run.session_key)
