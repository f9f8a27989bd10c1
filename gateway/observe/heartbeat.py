"""Writes what this daemon is, and the state of its parts, into the database, where other terminals and machines read it."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from gateway.observe.logging import get_logger
from sessions import leases, workers
from sessions.clock import Clock, iso, now_ms
from sessions.db import Database
from sessions.errors import StateError
from sessions.workers import WorkerRow, WorkerState

log = get_logger(__name__)

EVERY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Reports this process. `describe` returns the report of the moment."""

    database: Database
    describe: Callable[[], Mapping[str, Any]]
    role: str = "all"
    clock: Clock = now_ms
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @contextlib.asynccontextmanager
    async def reporting(self) -> AsyncGenerator[None]:
        """Writes the report every few seconds while the block lasts; then deletes the row."""
        task = asyncio.create_task(self._run(self.clock()))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._write(
                workers.leave, _name()
            )  # a daemon that was killed leaves its row, by which it is known as lost

    async def _run(self, started_at: int) -> None:
        await self._write(workers.forget_lost, self.clock())
        while True:
            await self._write(workers.report, self._row(started_at))
            await self.sleep(EVERY_SECONDS)

    def _row(self, started_at: int) -> WorkerRow:
        return WorkerRow(
            name=_name(),
            owner=leases.this_owner(),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=version("hermes-gateway"),
            role=self.role,
            state=WorkerState.READY,
            started_at=started_at,
            last_seen=self.clock(),
            report=self.describe(),
        )

    async def _write(self, work: Callable[..., object], *values: object) -> None:
        try:
            await self.database.write(work, *values)
        except StateError as error:  # whoever watches the database tells of it
            log.debug("worker.not_reported", error=str(error))


def _name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


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
