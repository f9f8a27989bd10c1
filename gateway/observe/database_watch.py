"""Watches whether the database accepts writes; logs every change and tells /readyz."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.observe.logging import get_logger
from sessions.clock import Clock, iso, now_ms
from sessions.db import Database, probe
from sessions.errors import StateError

log = get_logger(__name__)

CHECK_SECONDS = 1.0
PROBE_SECONDS = 5.0


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
