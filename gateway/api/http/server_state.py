"""The state of the HTTP server while it is open, with the app: what the endpoints are given."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gateway.api.http.body import ByteBudget, NewestFirst, ReadingRate
from gateway.api.http.callers import HostCheck, Throttle
from gateway.api.http.connection import ConnectionLimits, ConnectionShares, IdleTimes, possible_connections
from gateway.api.threads.event_hub import EventHub
from gateway.attachments.safe_fetch import Fetcher
from gateway.context import App
from gateway.dispatch.fair_queue import FairPlaces
from gateway.observe import heap
from sessions.db import Database
from sessions.errors import StateError
from sessions.runs import journal
from sessions.topics import Topic, Touch

_TRIM_SECONDS = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """Limits that nobody can configure. `large_bytes`: how many bytes of large bodies are worked on at once. `large_arriving`: how many large
    bodies of callers with a key are read at once. `hooks_arriving`: the same for platforms, before their signature is checked.
    `large_per_second`: how many bytes a second are read of all large bodies together."""

    files_per_call: int = 100
    body_bytes: int = 1_048_576
    large_bytes: int = 134_217_728
    large_arriving: int = 8
    hooks_arriving: int = 32
    large_per_second: int = 25_165_824
    waiting_event_bytes: int = 1_048_576
    calls_per_second: float = 500
    calls_at_once: float = 1_000
    wrong_keys_at_once: float = 10
    wrong_keys_per_second: float = 1 / 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Seconds. `idle`: None: as configured."""

    keep_alive: float = 10
    heartbeat: float = 15
    idle: IdleTimes | None = None
    body: float = 30
    hook_body: float = 5
    shutdown: float = 3  # for calls that are answered, and once more for those that were cut off


class CommitListener:
    """Tells tasks on the event loop what a commit has changed."""

    def __init__(self, database: Database) -> None:
        self._listeners: dict[tuple[Topic, str], list[Callable[[Touch], None]]] = defaultdict(list)
        self._loop = asyncio.get_running_loop()
        self.close = database.listen(self._on_commit)

    def on(self, topic: Topic, id: str, callback: Callable[[Touch], None]) -> Callable[[], None]:  # noqa: A002  # as in Touch
        """Calls `callback` after each commit that touched this. Returns a function that cancels it."""
        wanted = (topic, id)
        self._listeners[wanted].append(callback)

        def stop() -> None:
            self._listeners[wanted].remove(callback)
            if not self._listeners[wanted]:
                del self._listeners[wanted]

        return stop

    def _on_commit(self, touched: frozenset[Touch]) -> None:
        # In the writer's thread. Most commits touch nothing that is listened to, and the event loop is not woken for them.
        wanted = [touch for touch in touched if (touch.topic, touch.id) in self._listeners]
        if wanted:
            self._loop.call_soon_threadsafe(self._notify, wanted)

    def _notify(self, wanted: list[Touch]) -> None:
        for touch in wanted:
            # A copy, because a listener may remove itself.
            for callback in tuple(self._listeners.get((touch.topic, touch.id), ())):
                callback(touch)


class WaitingCall(Protocol):
    """A call that waits for its answer. `run_id`: None until its turn has come."""

    dedup_key: str
    run_id: str | None

    def look(self) -> None:
        """Asks the database how the run stands."""
        ...


class WaitingCalls:
    """The HTTP calls of this process that wait for an answer. Another process answers some of them, and its notification may be lost: so every two
    seconds one query looks for all of those, and each call with news is told to `look`.
    """

    def __init__(self, app: App, changes: CommitListener) -> None:
        self._app = app
        self._calls: set[WaitingCall] = set()
        self._asking: asyncio.Task[None] | None = None
        changes.on(Topic.LOOK, "", self._look)

    def add(self, call: WaitingCall) -> Callable[[], None]:
        """Returns a function that takes it out again."""
        self._calls.add(call)
        return lambda: self._calls.discard(call)

    def _look(self, _: Touch) -> None:
        if self._calls and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        calls = [call for call in self._calls if call.run_id is None or not self._app.live.is_here(call.run_id)]
        if not calls:
            return
        queued = [call.dedup_key for call in calls if call.run_id is None]
        followed = [call.run_id for call in calls if call.run_id is not None]
        with suppress(StateError):  # asked again in two seconds
            news = await self._app.database.read(journal.with_news, queued, followed)
            for call in calls:
                if (call.run_id or call.dedup_key) in news:
                    call.look()


class ServerState:
    """The state of one open server. `clock`: seconds, for throttles and durations."""

    def __init__(
        self,
        app: App,
        *,
        limits: ApiLimits | None = None,
        intervals: Intervals | None = None,
        fetcher: Fetcher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        section = app.config.api
        self.app = app
        self.limits = limits = limits or ApiLimits()
        self.intervals = intervals or Intervals()
        self.idle = self.intervals.idle or IdleTimes(
            with_key=section.idle_seconds, without_key=min(section.idle_seconds, IdleTimes().without_key)
        )
        self.fetcher = fetcher or Fetcher()
        self.clock = clock
        self.host_check = HostCheck(public_url=section.public_url, allowed_hosts=tuple(section.allowed_hosts))
        self.changes = CommitListener(app.database)
        self.waiting = WaitingCalls(app, self.changes)
        self.hub = EventHub(app.database, app.live, self.changes, app.clock())
        self.upload_places = FairPlaces(limits.large_arriving, share=1)
        self.hook_places = NewestFirst(limits.hooks_arriving)
        self.reading_rate = ReadingRate(limits.large_per_second)
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parser")
        self.large_bytes = ByteBudget(limits.large_bytes)
        self.connections = ConnectionLimits(
            ConnectionShares(
                total=possible_connections(section.connections), per_address=section.connections_per_address
            )
        )
        self.closing = asyncio.Event()
        self._trimming: asyncio.Task[None] | None = None
        self.wrong_keys = Throttle(
            burst=limits.wrong_keys_at_once, per_second=limits.wrong_keys_per_second, clock=clock
        )
        self.wrong_signatures = Throttle(burst=1, per_second=1 / 60, clock=clock)
        self.calls = Throttle(burst=limits.calls_at_once, per_second=limits.calls_per_second, clock=clock)

    @property
    def large_body_bytes(self) -> int:
        """The limit for bodies with attachments, which arrive as base64."""
        return self.app.config.limits.attachment_bytes * 4 // 3 + self.limits.body_bytes

    async def parse(self, parse: Callable[..., T], *args: object) -> T:
        """Parses large bodies one after the other: several at once would keep the GIL from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._parser, parse, *args)

    def give_back_memory(self) -> None:
        """Returns memory to the system after a large call, a moment later: when the answer is sent and the call's data is freed."""

        async def trim_soon() -> None:
            await asyncio.sleep(_TRIM_SECONDS)
            await asyncio.to_thread(heap.trim)

        if self._trimming is None or self._trimming.done():
            self._trimming = asyncio.create_task(trim_soon())

    def close(self) -> None:
        if self._trimming is not None:
            self._trimming.cancel()
        self._parser.shutdown(wait=False, cancel_futures=True)
        self.hub.close()
        self.changes.close()
