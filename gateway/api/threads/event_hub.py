"""The hub of deployment events: one read of the database for each change, shared by all who follow it. The endpoint is `follow_events` in `runs.py`.

Stored events carry their number, so a reader that was cut off, or was too slow and was dropped, resumes where it stood. Tokens are
not stored; they carry the number of the last stored event before them.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from gateway.observe.logging import get_logger
from gateway.runs.live import LiveEvent, LiveEvents, TextDeduplicator
from sessions import events
from sessions.db import Database
from sessions.records import Event
from sessions.topics import Topic, Touch

log = get_logger(__name__)

RETRY_SECONDS = 1.0
_SLICE = 25
_PAGE = 500


class Commits(Protocol):
    """Who tells of commits."""

    def on(self, topic: Topic, id: str, callback: Callable[[Touch], None]) -> Callable[[], None]: ...  # noqa: A002


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFrame:
    """One event as it goes over the wire."""

    data: bytes
    run_id: str | None
    thread_id: str | None


@dataclass(frozen=True, slots=True)
class _Token:
    run_id: str
    thread_id: str | None
    text: str


def _framed(event_id: int, kind: str, data: dict[str, object], run: str | None, thread: str | None) -> EventFrame:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return EventFrame(data=f"id: {event_id}\nevent: {kind}\ndata: {text}\n\n".encode(), run_id=run, thread_id=thread)


def _ends_answer(event: Event) -> bool:
    return event.kind == "tool_call" or (event.kind == "message" and event.data.get("role") != "user")


def _take(tokens: list[_Token], run_id: str | None) -> list[_Token]:
    """Removes the tokens of this run from the list and returns them."""
    taken = [token for token in tokens if token.run_id == run_id]
    tokens[:] = [token for token in tokens if token.run_id != run_id]
    return taken


def _stored(event: Event) -> EventFrame:
    return _framed(event.id, event.kind, event.data, event.run_id, event.thread_id)


@dataclass(slots=True, kw_only=True, eq=False)
class EventReader:
    """One connection. `next` gives what is new; an empty result means that nothing came in time.

    `cut` ends the connection of one that does not read: with `most` bytes waiting for it, it is dropped and may resume.
    """

    most: int
    cut: Callable[[], None]
    run_id: str | None = None
    thread_id: str | None = None
    dropped: bool = False
    _frames: deque[bytes] = field(default_factory=deque[bytes])
    _waiting: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, frame: EventFrame) -> bool:
        return (self.run_id is None or self.run_id == frame.run_id) and (
            self.thread_id is None or self.thread_id == frame.thread_id
        )

    def give(self, frame: EventFrame) -> None:
        if self.dropped or not self.wants(frame):
            return
        if self._frames and self._waiting + len(frame.data) > self.most:
            self.dropped = True
            self._frames.clear()
            self.cut()
        else:
            self._frames.append(frame.data)
            self._waiting += len(frame.data)
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    async def next(self, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return b""
        self._news.clear()
        found = b"".join(self._frames)
        self._frames.clear()
        self._waiting = 0
        return found


class _Channel:
    """The readers of one deployment."""

    def __init__(self, database: Database, deployment: str, last_id: int) -> None:
        self.last_id = last_id
        self.readers: set[EventReader] = set()
        self._database = database
        self._deployment = deployment
        self._tokens: list[_Token] = []
        self._late: list[_Token] = []  # they came after something was committed that is not read yet
        self._behind = True  # something may have been committed before anybody listened
        self._reading = False
        self._work = asyncio.Event()
        self._work.set()
        self.task = asyncio.create_task(self._pump())

    def touched(self, _: Touch) -> None:
        self._tokens += self._late
        self._late = []
        self._behind = True
        self._work.set()

    def token(self, token: _Token) -> None:
        (self._late if self._behind or self._reading else self._tokens).append(token)
        self._work.set()

    async def _pump(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                early, self._tokens = self._tokens, []
                self._reading = True
                while self._behind:
                    self._behind = False
                    found = await self._database.read(events.after, self._deployment, self.last_id, limit=_PAGE)
                    self._behind = self._behind or len(found) == _PAGE
                    await self._send_events(found, early)
                    early, self._tokens = early + self._tokens, []
                self._reading = False
                await self._send_tokens(early)
                late, self._late = self._late, []
                await self._send_tokens(late)
            except Exception as error:  # noqa: BLE001  # a database that is away for a while must not end the stream
                log.warning("events.not_read", deployment=self._deployment, error=str(error))
                self._behind = True  # what this read would have found; there may be no further commit that says so
                await asyncio.sleep(RETRY_SECONDS)
                self._work.set()

    async def _send_events(self, found: list[Event], early: list[_Token]) -> None:
        """Sends the text of an answer before the event that ends it. That event may be in `found` before the listener was told of its commit."""
        last = {event.run_id: event.id for event in found if _ends_answer(event)}
        for event in found:
            if _ends_answer(event):
                await self._send_tokens(_take(early, event.run_id))
                if last[event.run_id] == event.id:
                    await self._send_tokens(_take(self._tokens, event.run_id))
            self.last_id = event.id
            await self._publish(_stored(event))

    async def _send_tokens(self, tokens: list[_Token]) -> None:
        """Sends tokens; neighbouring ones of a run become one event, so that many tokens at once cost readers little."""
        while tokens:
            first = tokens[0]
            same = next((i for i, token in enumerate(tokens) if token.run_id != first.run_id), len(tokens))
            text = "".join(token.text for token in tokens[:same])
            data: dict[str, object] = {"run_id": first.run_id, "text": text}
            await self._publish(_framed(self.last_id, "token", data, first.run_id, first.thread_id))
            tokens = tokens[same:]

    async def _publish(self, frame: EventFrame) -> None:
        for number, reader in enumerate(tuple(self.readers), 1):
            reader.give(frame)
            if number % _SLICE == 0:  # many readers must not hold up everybody else
                await asyncio.sleep(0)


@dataclass(slots=True)
class _Followed:
    """A run that is worked on. `skips_step`: words of its step may have been told by another process, so none are told here."""

    deployment: str
    thread_id: str | None
    skips_step: bool
    deduplicator: TextDeduplicator = field(default_factory=TextDeduplicator)

    def new_in(self, live: LiveEvent) -> str:
        """Returns the text that its readers have not got yet."""
        match live.kind:
            case "token":
                return "" if self.skips_step else self.deduplicator.new_in(live.text)
            case "afresh":
                self.deduplicator.restart()
            case "said" | "tool":
                self.skips_step = False
                self.deduplicator.end_step()
            case _:
                pass
        return ""


class EventHub:
    """`now`: when this process began to listen."""

    def __init__(self, database: Database, live: LiveEvents, changes: Commits, now: int) -> None:
        self._database = database
        self._changes = changes
        self._channels: dict[str, _Channel] = {}
        self._stops: dict[str, list[Callable[[], None]]] = {}
        self._since = now
        self._runs: dict[str, _Followed] = {}
        self._unlisten = live.listen("*", self._on_live_event)

    def close(self) -> None:
        self._unlisten()
        for channel in self._channels.values():
            channel.task.cancel()

    def wake_readers(self) -> None:
        """Wakes all readers, whether there is news or not."""
        for channel in self._channels.values():
            for reader in channel.readers:
                reader.wake()

    def _on_live_event(self, live: LiveEvent) -> None:
        begun = live.run
        if live.kind == "begun" and begun is not None and begun.deployment is not None:
            # Another process may have been in the middle of a step of this run.
            is_taken_over = begun.attempts > 0 or (begun.fence > 1 and begun.created_at < self._since)
            self._runs[begun.id] = _Followed(begun.deployment, begun.thread_id, is_taken_over)
        elif live.kind == "ended":
            self._runs.pop(live.run_id, None)
        elif (run := self._runs.get(live.run_id)) is not None:
            text, channel = run.new_in(live), self._channels.get(run.deployment)
            if text and channel is not None:
                channel.token(_Token(live.run_id, run.thread_id, text))

    @asynccontextmanager
    async def follow(self, deployment: str, reader: EventReader) -> AsyncGenerator[int]:
        """Gives the reader all events from now on. Yields the id of the last event before; earlier ones it has to read itself."""
        if deployment not in self._channels:
            last = await self._database.read(events.last_id, deployment)
            # Asked again: another reader may have opened it during that read.
            if deployment not in self._channels:
                channel = self._channels[deployment] = _Channel(self._database, deployment, last)
                wanted = ((Topic.EVENTS, deployment), (Topic.LOOK, ""))
                self._stops[deployment] = [self._changes.on(topic, name, channel.touched) for topic, name in wanted]
        channel = self._channels[deployment]
        # No await between the two: an event in between would be neither given nor below the yielded id.
        channel.readers.add(reader)
        try:
            yield channel.last_id
        finally:
            channel.readers.discard(reader)
            if not channel.readers and self._channels.get(deployment) is channel:
                del self._channels[deployment]
                for stop in self._stops.pop(deployment):
                    stop()
                channel.task.cancel()

    async def missed(
        self, deployment: str, after: int, up_to: int, *, run_id: str | None, thread_id: str | None
    ) -> AsyncGenerator[bytes]:
        """Yields the stored events between these ids, page by page."""
        while after < up_to:
            found = await self._database.read(
                events.after, deployment, after, run_id=run_id, thread_id=thread_id, limit=_PAGE
            )
            wanted = [event for event in found if event.id <= up_to]
            if wanted:
                yield b"".join(_stored(event).data for event in wanted)
            if len(wanted) < _PAGE:
                return
            after = wanted[-1].id
