"""What the endpoints are given beside the app, and the state of the server while it is open."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from gateway.api.http.body import ByteBudget, NewestFirst, ReadingRate
from gateway.api.http.callers import CallerKey, HostCheck, Throttle
from gateway.api.http.connection import ConnectionLimits, ConnectionShares, IdleTimes
from gateway.api.threads.events import EventHub
from gateway.attachments.safe_fetch import Fetcher
from gateway.context import App
from gateway.dispatch.fair_queue import FairPlaces
from gateway.observe import heap
from sessions.db import Database
from sessions.topics import Topic, Touch

_TRIM_SECONDS = 1.0
T = TypeVar("T")


class HookReply(Protocol):
    """What a platform that calls us is answered."""

    @property
    def text(self) -> str: ...

    @property
    def content_type(self) -> str: ...


Receive = Callable[[Mapping[str, str], bytes], Awaitable[HookReply | None]]
"""From headers and body; None: the signature is wrong."""
Handshake = Callable[[Mapping[str, str]], HookReply | None]
"""From the query; None: whoever asks does not know the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`waiting`: what has not come up yet. `failing`: what had come up, and does not work now. `parts`: the state of each part. The last
    two are for the body only."""

    waiting: Sequence[str] = ()
    failing: Sequence[str] = ()
    parts: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """`large_bytes`: of large bodies that are worked on. `large_arriving`: how many large bodies of callers with a key are read at once;
    `hooks_arriving`: of platforms, before their signature is checked. `large_per_second`: bytes that are read of all of them together."""

    message_bytes: int = 262_144
    attachment_bytes: int = 20_971_520
    files_per_call: int = 100
    queue_per_session: int = 100
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
    connections: ConnectionShares = field(default_factory=ConnectionShares)

    @property
    def large_body_bytes(self) -> int:
        """The limit for bodies with attachments, which arrive as base64."""
        return self.attachment_bytes * 4 // 3 + self.body_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Seconds."""

    keep_alive: float = 10
    heartbeat: float = 15
    idle: IdleTimes = field(default_factory=IdleTimes)
    body: float = 30
    hook_body: float = 5
    shutdown: float = 3  # for calls that are answered, and once more for those that were cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """`keys` and `models` are asked each time, so that a new configuration counts at once.

    `models`: names that may be asked for, the usual one first.
    """

    app: App
    keys: Callable[[], Sequence[CallerKey]]
    models: Callable[[], Sequence[str]] = lambda: ("hermes",)
    platforms: Callable[[], Collection[str]] = tuple
    """Names of those that are switched on."""
    readiness: Callable[[], Readiness] = Readiness
    webhook: Callable[[str], Receive | None] = lambda _: None
    handshake: Callable[[str], Handshake | None] = lambda _: None
    starting: Callable[[str], bool] = lambda _: False
    """Whether a platform is enabled and does not run yet, or not any more."""
    host_check: HostCheck = field(default_factory=HostCheck)
    limits: ApiLimits = field(default_factory=ApiLimits)
    intervals: Intervals = field(default_factory=Intervals)
    fetcher: Fetcher = field(default_factory=Fetcher)
    clock: Callable[[], float] = time.monotonic
    version: str = "0"


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


class ServerState:
    """The state of one open server."""

    def __init__(self, api: ApiServices) -> None:
        self.api = api
        self.changes = CommitListener(api.app.database)
        self.hub = EventHub(api.app.database, api.app.live, self.changes, api.app.clock())
        self.upload_places = FairPlaces(api.limits.large_arriving, share=1)
        self.hook_places = NewestFirst(api.limits.hooks_arriving)
        self.reading_rate = ReadingRate(api.limits.large_per_second)
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parser")
        self.large_bytes = ByteBudget(api.limits.large_bytes)
        self.connections = ConnectionLimits(api.limits.connections)
        self.closing = asyncio.Event()
        self._trimming: asyncio.Task[None] | None = None
        limits = api.limits
        self.wrong_keys = Throttle(
            burst=limits.wrong_keys_at_once, per_second=limits.wrong_keys_per_second, clock=api.clock
        )
        self.wrong_signatures = Throttle(burst=1, per_second=1 / 60, clock=api.clock)
        self.calls = Throttle(burst=limits.calls_at_once, per_second=limits.calls_per_second, clock=api.clock)

    async def parse(self, parse: Callable[..., T], *args: object) -> T:
        """Parses large bodies one after the other: several at once would keep the GIL from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._parser, parse, *args)

    def give_back_memory(self) -> None:
        """Returns memory to the system after a large call."""
        if self._trimming is None or self._trimming.done():
            self._trimming = asyncio.create_task(_trim_soon())

    def close(self) -> None:
        if self._trimming is not None:
            self._trimming.cancel()
        self._parser.shutdown(wait=False, cancel_futures=True)
        self.hub.close()
        self.changes.close()


async def _trim_soon() -> None:
    """Returns memory a moment later, when the answer is sent and the call's data is freed."""
    await asyncio.sleep(_TRIM_SECONDS)
    await asyncio.to_thread(heap.trim)
