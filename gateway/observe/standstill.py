"""Measures time in which this process did nothing: it was stopped, the machine slept, or the clock was set."""

import asyncio
from collections import deque

from sessions.clock import Clock, now_ms

CHECK_SECONDS = 1.0
LONGEST_GAP_MS = 10_000
_KEPT = 100


class Standstills:
    """Reads the clock every second while `run` goes on. Two readings more than ten seconds apart are a standstill."""

    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._seen: int | None = None
        self._found: deque[tuple[int, int]] = deque(maxlen=_KEPT)  # when it began, and how long it was

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
