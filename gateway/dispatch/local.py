"""Distributes runs inside one process: commits name the keys to look at, and a slow poll finds what other processes added."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from sqlalchemy import Connection

from gateway.context import App
from sessions import runs
from sessions.errors import StateError
from sessions.keys import group_of, is_of_terminal
from sessions.records import Run, RunKind
from sessions.runs import farewells
from sessions.topics import FarewellBegun, Topic, Touch, ids_of

LEASE_MS = 30_000
FAREWELLS = 64
"""How many farewells one poll finds; the next poll finds more."""


class LocalDispatch:
    """Dispatches runs of this process. `serves`: it works on all keys but those of terminals; else only on those that are added."""

    poll_seconds = 1.0
    keep_alive_seconds = 10.0

    def __init__(self, app: App, *, serves: bool = True) -> None:
        self.app = app
        self._serves = serves
        self._with_place: set[WorkItem] = set()
        self._ready: asyncio.Queue[WorkItem] = asyncio.Queue()
        self._known: set[WorkItem] = set()
        self._changed_meanwhile: set[WorkItem] = set()
        self._added_keys: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._stop = app.database.listen(self._on_commit, Topic.INBOX, Topic.FAREWELL)

    async def close(self) -> None:
        self._stop()

    def add_key(self, session_key: str) -> None:
        self._added_keys.add(session_key)

    def _on_commit(self, touched: frozenset[Touch]) -> None:
        items = [WorkItem(session_key) for session_key in ids_of(Topic.INBOX, touched)]
        items += [WorkItem(each.session_key, each.id) for each in touched if isinstance(each, FarewellBegun)]
        self._loop.call_soon_threadsafe(self._notify, *items)  # one wake-up of the loop for a commit of many

    def notify(self, session_key: str) -> None:
        self._notify(WorkItem(session_key))

    def _notify(self, *items: "WorkItem") -> None:
        for item in items:
            # Whoever works on the key now may have read before this commit, so it is looked at once more after its release.
            if item in self._known:
                self._changed_meanwhile.add(item)
            elif item.session_key in self._added_keys or (self._serves and not is_of_terminal(item.session_key)):
                self._known.add(item)
                self.app.places.queue(item.group, partial(self._make_ready, item))

    def _make_ready(self, item: "WorkItem") -> None:
        self._with_place.add(item)
        self._ready.put_nowait(item)

    async def poll(self) -> None:
        """Finds runs that a crash left behind, and what other processes added."""
        now = self.app.clock()
        keys, due = await self.app.database.read(
            lambda conn: (runs.in_flight_now(conn, now), farewells.due(conn, now, FAREWELLS))
        )
        self._notify(*map(WorkItem, keys), *(WorkItem(key, run) for run, key in due))

    async def claim(self) -> Run:
        while True:
            item = await self._ready.get()
            # Shielded: a transaction that is under way commits even when this task is cancelled, and its run must not be lost.
            taking = asyncio.ensure_future(self.app.database.write(self._claim_item, item))
            try:
                run = await asyncio.shield(taking)
            except asyncio.CancelledError:
                await self._return_claim(taking, item)
                raise
            except BaseException:  # whatever it is: an item that stays known would never be worked on again
                self._finish(item)
                raise
            if run is not None:
                return run
            self._finish(item)

    async def _return_claim(self, taking: "asyncio.Future[Run | None]", item: "WorkItem") -> None:
        """Returns a run that was claimed while the caller was cancelled; its lease would have to run out otherwise."""
        try:
            run = await taking
        except StateError:  # nothing was claimed; the caller must see its cancellation, not this
            run = None
        if run is None:
            self._finish(item)
        else:
            await self.give_back(run)

    def _claim_item(self, conn: Connection, item: "WorkItem") -> Run | None:
        now = self.app.clock()
        if item.farewell is not None:
            return runs.claim_farewell(conn, item.farewell, self.app.owner, now, lease_ms=LEASE_MS)
        opening = self.app.resets.opening(item.session_key)
        run = runs.claim(conn, item.session_key, self.app.owner, opening, now, lease_ms=LEASE_MS)
        if run is not None:  # in the same transaction, so that the run begins with all that is there
            runs.take_in_new_messages(conn, run, now, claimed_now=True)
        return run

    async def keep_alive(self, run_ids: Sequence[str]) -> None:
        if run_ids:
            await self.app.database.write(runs.keep_alive, run_ids, self.app.owner, self.app.clock(), lease_ms=LEASE_MS)

    async def release(self, run: Run) -> None:
        self._finish(WorkItem.of(run))

    async def give_back(self, run: Run) -> None:
        """Returns an unfinished run, so that the next process continues at once."""
        await self.app.database.write(runs.give_back, run.id, run.fence)
        self._finish(WorkItem.of(run))

    def _finish(self, item: "WorkItem") -> None:
        self._known.discard(item)
        # An item that waits for its place has none to give back.
        if item in self._with_place:
            self._with_place.discard(item)
            self.app.places.leave(item.group)
        if item in self._changed_meanwhile:
            self._changed_meanwhile.discard(item)
            self._notify(item)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A session key that may have work, or (`farewell`: the run's id) the farewell of one of its sessions, which goes on beside it."""

    session_key: str
    farewell: str | None = None

    @classmethod
    def of(cls, run: Run) -> Self:
        return cls(run.session_key, run.id if run.kind is RunKind.FAREWELL else None)

    @property
    def group(self) -> str:
        """Returns the group of the key. Farewells have one of their own, so that they never take the places of people who wait."""
        return group_of(self.session_key) if self.farewell is None else "farewell"
