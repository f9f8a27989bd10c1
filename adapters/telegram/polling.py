"""Polls for updates and passes them on unparsed: the library's own loop drops a whole batch, and spins, when one of them cannot be parsed.

The adapter parses each by itself (`adapter.py`).
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import structlog

from adapters.base import TryLater
from adapters.telegram.transport import Connections, Contested, Translation

MOST_FAILURES = 5  # failures in a row, then the supervisor is told
_LONGEST_PAUSE = 30.0
SHORTEST_POLL = 0.5
"""Seconds between two calls that bring nothing new."""

log = structlog.get_logger(__name__)


class Poll:
    """Asks for updates until cancelled. The next call confirms a batch, after everything in it was taken."""

    def __init__(
        self,
        base_url: str,
        connection: Connections,
        translation: Translation,
        *,
        allowed: str,
        seconds: int,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._url = f"{base_url}/getUpdates"
        self._connection = connection
        self._translation = translation
        self._allowed = allowed
        self._seconds = seconds
        self._sleep = sleep

    async def run(self, take: Callable[[Any], Awaitable[None]], alive: Callable[[], None]) -> None:
        """Polls until cancelled, and calls `alive` after every answer. Raises DeliveryError when it makes no sense to go on, and whatever
        `take` raises.
        """
        offset = failures = 0
        seconds = 0  # the first answer comes at once, and shows that we are connected
        try:
            while True:
                try:
                    asked, began, before = seconds, time.monotonic(), offset
                    items = await self._get_updates(offset, seconds)
                    failures, seconds = 0, self._seconds
                    alive()
                    for item in items:
                        await take(item)
                    offset = _behind(items, offset)  # only now: the next call with it makes Telegram forget this batch
                    # Telegram holds a call without news open. A server that does not would be asked thousands of times a second.
                    if asked and offset == before and time.monotonic() - began < SHORTEST_POLL:
                        await self._sleep(SHORTEST_POLL)
                except Contested:  # waiting does not help, a human does
                    raise
                except TryLater as error:
                    failures, seconds = failures + 1, 0
                    if failures > MOST_FAILURES:
                        raise
                    log.warning("telegram.poll_failed", reason=str(error), failures=failures)
                    await self._connection.shutdown()  # a connection that hangs stays broken
                    await self._sleep(error.after or min(2.0 ** (failures - 1), _LONGEST_PAUSE))
        finally:
            await self._connection.shutdown()

    async def _get_updates(self, offset: int, seconds: int) -> list[Any]:
        query = urlencode({"offset": offset, "timeout": seconds, "allowed_updates": self._allowed})
        with self._translation():
            # Ten seconds more than Telegram holds the call open; after that the connection is dead.
            answer = await self._connection.post(f"{self._url}?{query}", read_timeout=seconds + 10)
        return answer if isinstance(answer, list) else []


def _behind(items: list[Any], offset: int) -> int:
    numbers = [number for item in items if (number := update_id(item)) is not None]
    if items and not numbers:
        raise TryLater("Telegram sent updates without a number.")
    return max([offset, *(number + 1 for number in numbers)])


def update_id(item: Any) -> int | None:
    match item:
        case {"update_id": int(number)}:
            return number
        case _:
            return None
