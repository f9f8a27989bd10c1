"""Dispatch inside one process: commits tell which keys to look at; a slow poll finds what other processes added."""

import asyncio
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from gateway.dispatch.fair_queue import FairPlaces, group_of
from sessions import runs
from sessions.clock import Clock, now_ms
from sessions.db.engine import Database
from sessions.keys import SessionKey
from sessions.leases import this_owner
from sessions.records import Run
from sessions.runs import Opening
from sessions.topics import Topic, Touch, ids_of

LEASE_MS = 30_000
PLACES = 32

OwnsKey = Callable[[str], bool]


def not_of_a_terminal(session_key: str) -> bool:
    """True for keys that the daemon works on; `hermes chat` works on its own sessions itself."""
    return ":cli:" not in session_key[: len("agent:") + 80] or SessionKey.parse(session_key).scope != "cli"


class LocalDispatch:
    """`mine` tells which keys this process works on, `places` how many at once. `opening` says how a session of a key is opened when none is active."""

    def __init__(
        self,
        database: Database,
        *,
        mine: OwnsKey = not_of_a_terminal,
        opening: Callable[[str], Opening] = lambda _: Opening(),
        clock: Clock = now_ms,
        places: FairPlaces | None = None,
    ) -> None:
        self._places = places or FairPlaces(PLACES)
        self._placed: set[str] = set()
        self._database = database
        self._mine = mine
        self._opening = opening
        self._clock = clock
        self._owner = this_owner()
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._taken: set[str] = set()
        self._again: set[str] = set()
        self._extra: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._stop = database.listen(self._hear)

    def close(self) -> None:
        self._stop()

    def also(self, session_key: str) -> None:
        """Works on this key too, whatever `mine` says."""
        self._extra.add(session_key)

    def _hear(self, touched: frozenset[Touch]) -> None:
        if keys := ids_of(Topic.INBOX, touched):  # one wake-up of the loop for a commit of many
            self._loop.call_soon_threadsafe(self._notify_all, keys)

    def _notify_all(self, session_keys: Sequence[str]) -> None:
        for session_key in session_keys:
            self.notify(session_key)

    def notify(self, session_key: str) -> None:
        if session_key in self._taken:
            self._again.add(session_key)
        elif session_key in self._extra or self._mine(session_key):
            self._taken.add(session_key)
            self._places.queue(group_of(session_key), lambda: self._place_for(session_key))

    def _place_for(self, session_key: str) -> None:
        self._placed.add(session_key)
        self._ready.put_nowait(session_key)

    async def look_around(self) -> None:
        """Finds runs that a crash left behind, and what other processes added."""
        for session_key in await self._database.read(runs.in_flight_now, self._clock()):
            self.notify(session_key)

    async def claim(self) -> Run:
        while True:
            session_key = await self._ready.get()
            taking = asyncio.ensure_future(self._database.write(self._take, session_key))
            try:
                run = await asyncio.shield(taking)
            except asyncio.CancelledError:
                await self._take_back(taking, session_key)
                raise
            except BaseException:
                self._let_go(session_key)
                raise
            if run is not None:
                return run
            self._let_go(session_key)

    async def _take_back(self, taking: "asyncio.Future[Run | None]", session_key: str) -> None:
        """Returns a run that was claimed while the caller was cancelled. Without this it would have to be taken
        over later."""
        run = await taking
        if run is None:
            self._let_go(session_key)
        else:
            await self.give_back(run)

    def _take(self, conn: Connection, session_key: str) -> Run | None:
        now = self._clock()
        run = runs.claim(conn, session_key, self._owner, self._opening(session_key), now, lease_ms=LEASE_MS)
        if run is not None:
            runs.fold(conn, run, now)
        return run

    async def keep_alive(self, run_ids: Sequence[str]) -> None:
        if run_ids:
            await self._database.write(runs.keep_alive, run_ids, self._owner, self._clock(), lease_ms=LEASE_MS)

    async def release(self, run: Run) -> None:
        self._let_go(run.session_key)

    async def give_back(self, run: Run) -> None:
        """Returns an unfinished run, so that the next process continues at once."""
        await self._database.write(runs.release, run.id, run.fence)
        self._let_go(run.session_key)

    def _let_go(self, session_key: str) -> None:
        self._taken.discard(session_key)
        if session_key in self._placed:
            self._placed.discard(session_key)
            self._places.leave(group_of(session_key))
        if session_key in self._again:
            self._again.discard(session_key)
            self.notify(session_key)
