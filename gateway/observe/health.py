"""Reports how this daemon is into the database, where other terminals and machines read it.

Watches whether the database accepts writes, and measures the time in which the process stood still.
"""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from gateway.observe.logging import get_logger
from sessions import workers
from sessions.clock import Clock, iso, now_ms
from sessions.db import Database, probe
from sessions.errors import StateError
from sessions.workers import WorkerRow, WorkerState

log = get_logger(__name__)

EVERY_SECONDS = 5.0
CHECK_SECONDS = 1.0
PROBE_SECONDS = 5.0
LONGEST_GAP_MS = 10_000
_KEPT_GAPS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Reports this process. `describe` returns the report of the moment."""

    database: Database
    describe: Callable[[], Mapping[str, Any]]
    owner: str
    role: str = "all"
    clock: Clock = now_ms
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def name(self) -> str:
        # With the random end of the owner: two containers may have one name, and the same process ids.
        return f"{socket.gethostname()}-{os.getpid()}-{self.owner.rpartition(':')[2].replace('#', '-')}"

    @contextlib.asynccontextmanager
    async def reporting(self) -> AsyncGenerator[None]:
        """Writes the report every few seconds while the block lasts; then deletes the row."""
        task = asyncio.create_task(self._run(self.clock()))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # A daemon that was killed leaves its row, by which it is known as lost.
            await self._write(workers.leave, self.name)

    async def _run(self, started_at: int) -> None:
        await self._write(workers.forget_lost, self.clock())
        while True:
            row = WorkerRow(
                name=self.name,
                owner=self.owner,
                host=socket.gethostname(),
                pid=os.getpid(),
                version=version("hermes-gateway"),
                role=self.role,
                state=WorkerState.READY,
                started_at=started_at,
                last_seen=self.clock(),
                report=self.describe(),
            )
            await self._write(workers.report, row)
            await self.sleep(EVERY_SECONDS)

    async def _write(self, work: Callable[..., object], *values: object) -> None:
        try:
            await self.database.write(work, *values)
        except StateError as error:  # whoever watches the database tells of it
            log.debug("worker.not_reported", error=str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedConfig:
    at: int
    problems: tuple[str, ...]


class ReloadStatus:
    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self.since = clock()
        self.last_refused: RefusedConfig | None = None

    def taken(self) -> None:
        self.since, self.last_refused = self._clock(), None

    def refused(self, problems: Sequence[str]) -> None:
        self.last_refused = RefusedConfig(at=self._clock(), problems=tuple(problems))

    def part(self) -> dict[str, Any]:
        """Returns what the status shows of reloads."""
        found: dict[str, Any] = {"since": iso(self.since)}
        if (refused := self.last_refused) is not None:
            found["refused"] = {"at": iso(refused.at), "problems": list(refused.problems)}
        return found


class DatabaseWatch:
    """Watches one database while `run` goes on."""

    def __init__(
        self, database: Database, *, clock: Clock = now_ms, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._database = database
        self._clock = clock
        self._sleep = sleep
        self._failure: str | None = None
        self._since = clock()

    async def run(self) -> None:
        """Logs when the database becomes unavailable, tries it again and again, and logs when it is back."""
        while True:
            self._check()
            if self._failure is None:
                await self._sleep(CHECK_SECONDS)
                continue
            await self._sleep(PROBE_SECONDS)
            # Only a write that succeeds ends the trouble, and without traffic nobody else would try one.
            try:
                await self._database.write(probe)
            except StateError as error:
                log.debug("database.still_unavailable", error=str(error))

    def _check(self) -> None:
        failure = self._database.failure
        if (failure is None) == (self._failure is None):
            return
        self._failure, self._since = failure, self._clock()
        if failure is None:
            log.warning("database.available")
        else:
            log.error("database.unavailable", error=failure)

    def part(self) -> dict[str, str | None]:
        """Returns the state of the database for /readyz."""
        self._check()
        state, failure = ("available", "") if self._failure is None else ("unavailable", self._failure)
        return {"state": state, "since": iso(self._since), "words": failure}


class Standstills:
    """Reads the clock every second while `run` goes on. Two readings more than ten seconds apart are a standstill."""

    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._seen: int | None = None
        self._found: deque[tuple[int, int]] = deque(maxlen=_KEPT_GAPS)  # when it began, and how long it was

    async def run(self) -> None:
        """Reads the clock until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_SECONDS)

    def check(self) -> None:
        now = self._clock()
        if self._seen is not None and now - self._seen > LONGEST_GAP_MS:
            self._found.append((self._seen, now - self._seen))
        self._seen = now

    def elapsed(self, since: int, now: int) -> int:
        """Returns the milliseconds between these moments, without the standstills. Never negative."""
        if self._seen is not None:  # whoever asks right after a standstill may come before the next look
            self.check()
        still = sum(length for began, length in self._found if since <= began < now)
        return max(0, now - since - still)
