"""What only one process of a team does: be connected with a platform, and keep the house (jobs, resets, upkeep, alerts).

A lease of 8 seconds is renewed every two. Whoever could not renew it for five stops by itself, before anybody else may begin. On SQLite there
is one process, and it does everything.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import leases
from sessions.errors import StateError
from sessions.leases import HOUSE
from sessions.topics import Topic, Touch

log = get_logger(__name__)

RENEW_SECONDS = 2.0
LOST_SECONDS = 5.0


@dataclass(slots=True)
class _Lease:
    """`until`: on the clock of the event loop, which goes on while the process stands still. `task`: what is done while it is held."""

    until: float = 0.0
    held: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.TimerHandle | None = None
    task: "asyncio.Task[None] | None" = None

    def renew(self, until: float, loop: asyncio.AbstractEventLoop) -> None:
        self.until = until
        if self.end is not None:
            self.end.cancel()
        # By the loop itself and not by a task: after a standstill nothing else may come first.
        self.end = loop.call_at(until, self.lose)
        self.held.set()

    def lose(self) -> None:
        self.until = 0.0
        self.held.clear()
        if self.end is not None:
            self.end.cancel()
        if self.task is not None:
            self.task.cancel()


class Holders:
    """The leases of this process. Until `taking` begins, and on SQLite, it holds everything."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._wanted: dict[str, _Lease] | None = None
        self._wake = asyncio.Event()
        self._ending = False
        self._platforms = True

    @property
    def is_shared(self) -> bool:
        """Whether other processes may hold what this one does not."""
        return self._wanted is not None

    def is_held(self, name: str) -> bool:
        if self._wanted is None:
            return True
        lease = self._wanted.get(name)
        return lease is not None and asyncio.get_running_loop().time() < lease.until

    @contextlib.asynccontextmanager
    async def taking(self, *, platforms: bool = True) -> AsyncGenerator[None]:
        """Shares the leases with other processes while the block lasts, where there may be any; then gives up what is left. `platforms` False: it
        is connected with none.
        """
        self._platforms = platforms
        if self.app.database.bus is None:
            yield
            return
        self._wanted = {HOUSE: _Lease()}
        loop = asyncio.get_running_loop()
        stop = self.app.database.listen(lambda _: self._look(loop, _), Topic.HOLDER)
        task = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            stop()
            self._ending = True  # not cancelled: what it is just taking would stay taken
            self._wake.set()
            await asyncio.gather(task, return_exceptions=True)
            await self._give_up(HOUSE)

    def _look(self, loop: asyncio.AbstractEventLoop, _: frozenset[Touch]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._wake.set)

    async def _renew(self) -> None:
        wanted, loop = self._wanted or {}, asyncio.get_running_loop()
        while not self._ending:
            self._wake.clear()
            began, names = loop.time(), list(wanted)
            with contextlib.suppress(StateError):  # nothing is renewed, and after some seconds nothing is held
                mine = await self.app.database.write(leases.take, names, self.app.owner, self.app.clock())
                for name in names:
                    if (lease := wanted.get(name)) is None:
                        continue
                    if name not in mine:
                        lease.lose()
                        continue
                    if not lease.held.is_set():
                        log.info("lease.taken", lease=name)
                    # From before the question was asked: the database counts from when it answered.
                    lease.renew(began + LOST_SECONDS, loop)
                if given_up := mine - set(wanted):  # meanwhile
                    await self._give_up(*given_up)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), RENEW_SECONDS)

    async def hold(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Waits until the lease is held, and does the work. Returns when the lease is lost: the work is cancelled then, and has ended. What it
        raises is raised here.
        """
        if self._wanted is None:
            await work()
            return
        if not self._platforms:
            await asyncio.Event().wait()
        lease = self._wanted.setdefault(name, _Lease())
        self._wake.set()
        try:
            await lease.held.wait()
            task = lease.task = asyncio.ensure_future(_as_task(work))
            await asyncio.wait([task])
        finally:
            self._wanted.pop(name, None)
            if lease.task is not None and not lease.task.done():
                lease.task.cancel()
                await asyncio.wait([lease.task])
            if lease.end is not None:
                lease.end.cancel()
            # Only now, when everything is closed that another process opens.
            await self._give_up(name)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        log.warning("lease.lost", lease=name)

    async def _give_up(self, *names: str) -> None:
        with contextlib.suppress(StateError):  # it runs out
            await self.app.database.write(leases.give_up, names, self.app.owner)


async def _as_task(work: Callable[[], Awaitable[None]]) -> None:
    await work()
