"""Holds the chat platforms back when the daemon is killed again and again right after it has started them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.observe.logging import get_logger
from sessions import files
from sessions.clock import Clock, now_ms
from sessions.topics import Topic, Touch

log = get_logger(__name__)

FILE = "gateway.starts"
LOOP = 3
"""So many starts in a row that nothing came of, within WINDOW_MS, are a crash loop."""
WINDOW_MS = 5 * 60_000
HOLD_MS = 5 * 60_000
PROVEN_SECONDS = 10.0
_DONE = frozenset({Topic.STEP, Topic.SENT, Topic.RUN})


class CrashGuard:
    """Keeps a file with the times at which platforms were started and the daemon was killed within ten seconds, before anything was done. A
    clean end, ten seconds of life, a committed step or a delivery deletes it.
    """

    def __init__(
        self,
        home: Path,
        *,
        was_killed: bool,
        name: str = FILE,
        clock: Clock = now_ms,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._path = home / name
        self._clock = clock
        self._sleep = sleep
        self._starts = self._read() if was_killed else []
        # Not in the future either: where the clock was set back, old starts must not hold the platforms.
        recent = [moment for moment in self._starts if 0 <= clock() - moment < WINDOW_MS]
        self.held_until = clock() + HOLD_MS if len(recent) >= LOOP else None

    @property
    def why(self) -> str:
        """Says to the operator why the platforms are held back."""
        minutes = HOLD_MS // 60_000
        return f"held back for {minutes} minutes: the gateway was killed {LOOP} times right after it had started them; the log says why"

    async def wait(self) -> None:
        """Returns when the platforms may be started."""
        if self.held_until is not None:
            log.error("daemon.crash_loop", starts=len(self._starts), held_for_seconds=HOLD_MS // 1000)
            await self._sleep((self.held_until - self._clock()) / 1000)
            self.held_until = None

    async def watch(self) -> None:
        """Notes a start of the platforms, and deletes the note after ten seconds of life."""
        # Noted before the ten seconds, as the start that kills the process has no chance to do it later.
        self._starts = [*self._starts[-LOOP:], self._clock()]
        await asyncio.to_thread(files.replace, self._path, json.dumps(self._starts))
        await self._sleep(PROVEN_SECONDS)
        self.clear()

    def on_commit(self, touched: frozenset[Touch]) -> None:
        """Listener of `Database.listen`: deletes the file when a step or a delivery was committed."""
        if self._starts and any(touch.topic in _DONE for touch in touched):
            self.clear()

    def clear(self) -> None:
        self._starts = []
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[int]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        return [moment for moment in found if isinstance(moment, int)] if isinstance(found, list) else []  # pyright: ignore[reportUnknownVariableType]  # whatever the file holds
