"""The chat platforms that run: each adapter supervised, with its delivery, its presence, and a state that anybody can look at."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from adapters.base import Adapter, ChecksSetup, Deliver, DeliveryError, OffersCommands, ReportsLiveness, Unauthorized
from gateway.commands import MENU
from gateway.delivery import Delivery
from gateway.intake import Intake
from gateway.observe.metrics import Metrics
from gateway.pacing import Pacer
from gateway.presence import Presence
from gateway.runs.live import Live
from sessions.clock import now_ms
from sessions.db import Database
from sessions.keys import Sender
from sessions.records import OutRow

log = structlog.get_logger(__name__)

SILENT_SECONDS = 300
_BACKOFF = (1, 2, 5, 10, 30, 60)
_UNAUTHORIZED_SECONDS = 300
_COMMANDS_AGAIN_SECONDS = 3_600


class State(StrEnum):
    STARTING = "starting"
    CONNECTED = "connected"
    LOST = "lost"
    UNAUTHORIZED = "unauthorized"


@dataclass(slots=True)
class Health:
    """`words` says what is wrong and what to do, for the operator."""

    state: State = State.STARTING
    words: str = ""
    since: float = field(default_factory=time.time)
    who: str = ""
    last_success: float | None = None
    was_up: bool = False

    def become(self, state: State, words: str = "") -> bool:
        changed = self.state is not state
        if changed:
            self.since = time.time()
        self.state, self.words = state, words
        self.was_up = self.was_up or state is State.CONNECTED
        return changed


class Platform:
    """One adapter and what belongs to it. `run` goes on until cancelled, whatever the platform does."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        database: Database,
        intake: Intake,
        live: Live,
        metrics: Metrics,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = str(adapter.platform)
        self.adapter = adapter
        self.health = Health()
        self._intake = intake
        self._sleep = sleep
        pacer = Pacer(adapter.pace)
        self.presence = Presence(adapter, pacer, live)
        self._metrics = metrics
        self.delivery = Delivery(database, adapter, pacer, self.presence, sent=self._sent)

    def _sent(self, row: OutRow) -> None:
        self._metrics.message(self.name, "out")
        if row.run_id is not None:
            self._metrics.replied(self.name, max(0.0, (now_ms() - row.created_at) / 1000))

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._supervise(self._receive, "receiving"))
                group.create_task(self._supervise(self.delivery.run, "sending"))
                group.create_task(self._offer_commands())
        finally:
            self.presence.close()
            await self.adapter.close()

    async def _supervise(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            wait: float = 0
            try:
                await work()
            except Unauthorized as error:
                self._lost(State.UNAUTHORIZED, str(error))
                wait = _UNAUTHORIZED_SECONDS
            except DeliveryError as error:
                self._lost(State.LOST, str(error))
            except Exception as error:  # one platform must never take the others down
                log.exception("platform.failed", platform=self.name, what=what)
                self._lost(State.LOST, f"{type(error).__name__}: {error}")
            failures = 0 if time.monotonic() - began > 60 else failures + 1
            await self._sleep(wait or _BACKOFF[min(failures, len(_BACKOFF) - 1)])

    def _lost(self, state: State, words: str) -> None:
        if self.health.become(state, words):
            event = "platform.unauthorized" if state is State.UNAUTHORIZED else "platform.lost"
            log.error(event, platform=self.name, error=words)

    async def _receive(self) -> None:
        if isinstance(self.adapter, ChecksSetup):
            self.health.who = await self.adapter.check()
        self._connected()
        await self.adapter.run(self._deliver)

    def _connected(self) -> None:
        if self.health.become(State.CONNECTED):
            log.info("platform.connected", platform=self.name, who=self.health.who)

    @property
    def _deliver(self) -> Deliver:
        return self._intake.deliver

    async def _offer_commands(self) -> None:
        """The platform's own menu, for those who may."""
        if not isinstance(self.adapter, OffersCommands):
            return
        menu = [(command.name, command.about) for command in MENU]
        offered: frozenset[str] | None = None
        while True:
            access = await self._intake.access(self.name)
            users = access.rules.allowed_users | access.paired.users
            if self.health.state is State.CONNECTED and users != offered:
                with contextlib.suppress(DeliveryError):
                    await self.adapter.offer_commands(menu, [Sender(id=user) for user in sorted(users)])
                    offered = users
            await self._sleep(_COMMANDS_AGAIN_SECONDS if users == offered else 5)

    def look(self) -> Health:
        """The state now, silence included."""
        if isinstance(self.adapter, ReportsLiveness):
            self.health.last_success = self.adapter.last_success()
            if self.health.last_success is not None:
                self._metrics.platform_seen(self.name, self.health.last_success)
        return self.health

    @property
    def is_silent(self) -> bool:
        last = self.look().last_success
        return last is not None and time.time() - last > SILENT_SECONDS


@contextlib.asynccontextmanager
async def connected(platforms: list[Platform]) -> AsyncGenerator[None]:
    """All platforms run while the block lasts."""
    tasks = [asyncio.create_task(platform.run(), name=platform.name) for platform in platforms]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
