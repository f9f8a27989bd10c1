"""What the processes on one PostgreSQL tell each other: which commits have touched what, and live events.

It goes by NOTIFY, over a connection of its own and after the commit: within a transaction it would take a lock that lets only one at a time
commit.

A message may be lost. So every process also tells itself each two seconds to look (`Topic.LOOK`): a loss costs time and nothing else. Messages
are numbered, so that whoever passes live events on knows that some are missing.
"""

import json
import logging
import os
import secrets
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import psycopg
from sqlalchemy import Connection

from sessions.lease_owners import STALLED_SECONDS
from sessions.topics import RunStarted, Topic, Touch

log = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
TOGETHER_SECONDS = 0.005
"""How long a touch waits for others, to go with them."""
LIVE_SECONDS = 0.1
"""The same for live events, unless a touch takes them along: it tells of a commit after them."""
PACE_SECONDS, LONGEST_PACE_SECONDS = 0.05, 0.15
"""The least time between two messages is the first value for each other process, and the second at most. A message wakes all processes: with many of
them that would cost more than the work."""
MOST_BYTES = 7_900
"""PostgreSQL takes 8,000 for a message."""
MOST_WAITING = 20_000
DEAF_SECONDS = 10.0
"""When the event loop has given no sign of life for so long, the process counts as stalled, though this thread runs."""
STEADY_SECONDS = 8.0
"""So long a process must have been connected before it calls others stalled: after an outage of the database nobody's heartbeat is fresh."""
_PAUSES = (0.1, 0.5, 1.0, 2.0)
_LOOK = frozenset({Touch(Topic.LOOK, "")})
_CHANNEL = "hermes"
_NOTIFY = "SELECT pg_notify(%s, told) FROM unnest(%s::text[]) AS told"
_BEAT = "SELECT procrastinate_update_heartbeat_v1(%s)"
_OTHERS = """
SELECT count(*) FROM procrastinate_workers
WHERE id <> ALL(%s::bigint[]) AND last_heartbeat > clock_timestamp() - make_interval(secs => %s)
"""

Live = list[Any]
"""A live event as JSON; what it says is the gateway's matter."""


class Bus:
    """A thread that sends, receives, and writes the heartbeat. `connect` returns a new connection with autocommit. `on_touched` is called with what other
    processes have touched; `sync`, with each heartbeat, with a function that returns the server's time. None of them may raise or take long.
    """

    def __init__(
        self,
        connect: Callable[[], "psycopg.Connection[Any]"],
        on_touched: Callable[[frozenset[Touch]], None],
        sync: Callable[[Callable[[], int]], None],
    ) -> None:
        self._connect = connect
        self._on_touched = on_touched
        self._sync = sync
        self._id = secrets.token_hex(4)
        self._waiting: deque[tuple[str, list[Any]]] = deque(maxlen=MOST_WAITING)
        self._due = self._told_at = 0.0
        self._lock = threading.Lock()
        self._wake_reads, self._wake_writes = -1, -1
        self._thread: threading.Thread | None = None
        self._closing = False
        self._heard = 0.0
        self._sent = 0
        self._numbers: dict[str, int] = {}  # of the last message of each other process
        self._pace = PACE_SECONDS
        self.on_live: Callable[[list[Live]], None] | None = None
        """Called with the live events of other processes that have come together, in order."""
        self.on_gap: Callable[[], None] | None = None
        """Called when some of them may have been lost, before those that come after."""
        self.workers: set[int] = set()
        """Whose heartbeats this thread gives."""
        self.in_runs = 24
        """How many jobs a group has in the first queue at most: three quarters of the places of a process, see `sessions/wakeups.py`."""
        self.first_worker: Callable[[], int | None] = lambda: None
        """Returns the worker of this process that works on what its commits bring before others do; None: whoever comes first. Any thread calls it."""
        self.steady_since: float | None = None
        """Since when this process has been connected, by `time.monotonic`; None: it is not."""
        self.takes_work = False
        """Somebody in this process works on what its commits bring."""
        self.is_alone = False
        """No other process was there at the last heartbeat, so nothing is told to anybody."""

    # --- any thread ---

    def publish(self, touched: frozenset[Touch]) -> None:
        """Tells the others of a commit, soon."""
        self._put([("t", _packed(touch)) for touch in touched], TOGETHER_SECONDS)

    def hear(self, touched: frozenset[Touch]) -> None:
        """Does what a notification of another process would do: it was lost, and what it told of was found."""
        self._on_touched(touched)

    def tell(self, event: Live) -> None:
        """Tells the others of a live event, soon after."""
        self._put([("l", event)], LIVE_SECONDS)

    def _put(self, items: Sequence[tuple[str, list[Any]]], seconds: float) -> None:
        if not items or self.is_alone:
            return
        due = max(time.monotonic() + seconds, self._told_at + self._pace)
        with self._lock:
            wakes = not self._waiting or due < self._due - PACE_SECONDS / 2
            self._due = min(self._due, due) if self._waiting else due
            if len(self._waiting) + len(items) > MOST_WAITING:  # the oldest are dropped
                self._sent += 1
            self._waiting.extend(items)
        if wakes:
            self._wake()

    def _wake(self) -> None:
        if self._wake_writes >= 0:
            with suppress(BlockingIOError):
                os.write(self._wake_writes, b"!")

    @property
    def is_steady(self) -> bool:
        """Whether this process has been connected for long enough to know who is stalled."""
        return self.steady_since is not None and time.monotonic() - self.steady_since >= STEADY_SECONDS

    def sign_of_life(self) -> None:
        """Called by the event loop again and again: heartbeats go on while it turns."""
        self._heard = time.monotonic()

    def take_waiting(self) -> list[str]:
        """Returns what is still to be told, as payloads, and forgets it."""
        with self._lock:
            items = list(self._waiting)
            self._waiting.clear()
            told = payloads(self._id, items, self._sent)
            self._sent += len(told)
        return told

    def open(self) -> None:
        """Starts to send and to hear. Does nothing when that goes on already."""
        if self._thread is None:
            self._wake_reads, self._wake_writes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self.sign_of_life()
            self._thread = threading.Thread(target=self._run, name="db-bus", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Sends what waits, if that is possible, and ends the thread."""
        self._closing = True
        if self._thread is not None:
            self._wake()
            self._thread.join()
            self._thread = None
            writes, self._wake_writes = self._wake_writes, -1
            os.close(self._wake_reads)
            os.close(writes)

    # --- its own thread ---

    def _run(self) -> None:
        failures = 0
        while not self._closing:
            try:
                with self._connect() as conn:
                    # Nothing that is written here is worth a wait for the disk.
                    conn.execute("SET synchronous_commit = off")
                    conn.execute(f"LISTEN {_CHANNEL}")
                    self._beat(conn)
                    failures = 0
                    self._serve(conn)
            except Exception as error:  # noqa: BLE001  # whatever it was, the thread has to connect again
                log.debug("bus.cut: %s", error)
            self.steady_since, self.is_alone = None, False
            if not self._closing:
                time.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1

    def _serve(self, conn: "psycopg.Connection[Any]") -> None:
        self.steady_since, beats_at = time.monotonic(), time.monotonic() + BEAT_SECONDS
        # Whoever is there already no longer takes itself for alone.
        conn.execute(_NOTIFY, (_CHANNEL, [json.dumps({"from": self._id})]))
        self._note_gap()  # what was told meanwhile was not heard
        self._on_touched(_LOOK)
        poll = select.poll()
        for file in (conn.fileno(), self._wake_reads):
            poll.register(file, select.POLLIN)
        while True:
            # Before each wait: what came in while a statement ran is kept by the driver, and nothing on the socket tells of it.
            self._hear([heard.payload for heard in conn.notifies(timeout=0)])
            with self._lock:
                next_at = min(beats_at, self._due) if self._waiting else beats_at
            poll.poll(max(0, (next_at - time.monotonic()) * 1000))
            with suppress(BlockingIOError):
                os.read(self._wake_reads, 4096)
            if self._closing or (self._waiting and self._due <= time.monotonic()):
                if told := self.take_waiting():
                    self._told_at = time.monotonic()
                    conn.execute(_NOTIFY, (_CHANNEL, told))
                if self._closing:
                    return
            if time.monotonic() >= beats_at:
                self._beat(conn)
                if not self.is_alone:
                    self._on_touched(_LOOK)
                beats_at = time.monotonic() + BEAT_SECONDS

    def _beat(self, conn: "psycopg.Connection[Any]") -> None:
        if time.monotonic() - self._heard < DEAF_SECONDS:
            for worker in tuple(self.workers):
                conn.execute(_BEAT, (worker,))
        self._sync(lambda: _number(conn, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", ()))
        others = _number(conn, _OTHERS, (list(self.workers), STALLED_SECONDS))
        self.is_alone = bool(self.workers) and not others
        self._pace = min(PACE_SECONDS * max(1, others), LONGEST_PACE_SECONDS)

    def _hear(self, payloads: Sequence[str]) -> None:
        events: list[Live] = []
        touched: set[Touch] = set()
        for payload in payloads:
            try:
                told = json.loads(payload)
                sender, touches, live = str(told["from"]), list(told.get("t", ())), list(told.get("l", ()))
                number = int(told.get("n", 0))
            except (ValueError, KeyError, TypeError):  # of a later version
                log.warning("bus.not_understood")
                continue
            if sender == self._id:
                continue
            self.is_alone = False
            if number:
                if self._numbers.get(sender, number - 1) != number - 1:
                    self._pass_on(events)
                    events = []
                    self._note_gap()
                self._numbers[sender] = number
            events += live
            touched |= {touch for each in touches if (touch := _unpacked(each)) is not None}
        self._pass_on(events)  # first: a touch tells of a commit after them
        if touched:
            self._on_touched(frozenset(touched))

    def _pass_on(self, events: list[Live]) -> None:
        if events and self.on_live is not None:
            self.on_live(events)

    def _note_gap(self) -> None:
        self._numbers.clear()
        if self.on_gap is not None:
            self.on_gap()


def _number(conn: "psycopg.Connection[Any]", query: str, values: Sequence[Any]) -> int:
    row = conn.execute(cast(Any, query), values).fetchone()
    return int(row[0]) if row else 0


def notify(conn: Connection, told: Sequence[str]) -> None:
    """Sends these payloads with the transaction."""
    conn.exec_driver_sql(_NOTIFY, (_CHANNEL, list(told)))


def payloads(sender: str, items: Sequence[tuple[str, list[Any]]], before: int = 0) -> list[str]:
    """Packs these into as few messages as PostgreSQL takes, in their order, numbered from `before` + 1 on. One that is too long for any becomes a
    call to look.
    """
    found: list[str] = []
    parts: dict[str, list[str]] = {"l": [], "t": []}
    size = 0

    def flush() -> None:
        nonlocal size
        if parts["l"] or parts["t"]:
            fields = "".join(f',"{kind}":[{",".join(texts)}]' for kind, texts in parts.items() if texts)
            found.append(f'{{"from":"{sender}","n":{before + len(found) + 1}{fields}}}')
        parts["l"], parts["t"], size = [], [], 0

    for kind, item in items:
        text = json.dumps(item, separators=(",", ":"))  # ASCII: a character is a byte, and no NUL is left
        if len(text) > MOST_BYTES - 100:
            kind, text = "t", json.dumps([Topic.LOOK, ""])  # noqa: PLW2901
        if size + len(text) > MOST_BYTES - 100 or (
            kind == "l" and parts["t"]
        ):  # events come before touches in a message
            flush()
        parts[kind].append(text)
        size += len(text) + 1
    flush()
    return found


def _packed(touch: Touch) -> list[Any]:
    match touch:
        case RunStarted():
            return [touch.topic, touch.id, touch.run_id, touch.ask_id]
        case _:
            return [touch.topic, touch.id]


def _unpacked(item: Any) -> Touch | None:
    match item:
        case [Topic.STARTED, str(name), str(run_id), int() | None as ask_id]:
            return RunStarted(Topic.STARTED, name, run_id, ask_id)
        case [str(topic), str(name)] if topic in frozenset(Topic):
            return Touch(Topic(topic), name)
        case _:  # of a later version
            return None
