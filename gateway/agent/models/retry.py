"""Decides how long to wait before an endpoint is asked again, and when to stop."""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.agent.models.errors import CallFailed
from gateway.agent.models.quirks import RefusalKind

FIRST_WAIT = 0.5
LONGEST_BACKOFF = 20.0
SILENT_ATTEMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """`attempts`: calls before a fallback is tried. `last_attempts`: calls where there is none left; their pauses take half a minute in all,
    as long as an endpoint may need to restart.

    The pauses double, with jitter. An endpoint that asks for more than `longest_wait` is not waited for.
    """

    attempts: int = 4
    last_attempts: int = 7
    longest_wait: float = 60.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


class Retries:
    """Counts the failed calls of one request to one model. No call is begun after `seconds`, except the second one to an endpoint that was
    silent.
    """

    def __init__(self, policy: RetryPolicy, seconds: float, *, is_last: bool = True) -> None:
        self._policy = policy
        self._deadline = policy.clock() + seconds
        self._is_last = is_last
        self._failed = 0
        self._silent = 0

    def next_wait(self, asked: float | None = None, *, silent: bool = False) -> float | None:
        """Seconds until the next call after one more failed, or None to give up. `asked`: the wait that the endpoint named.

        `silent`: the call ran into its timeout. That is tried once more, and only where there is no fallback left.
        """
        self._failed += 1
        self._silent += silent
        policy = self._policy
        if self._failed >= (policy.last_attempts if self._is_last else policy.attempts):
            return None
        if asked is not None and asked > policy.longest_wait:
            return None
        backoff = min(FIRST_WAIT * 2 ** (self._failed - 1), LONGEST_BACKOFF) * (1 + policy.jitter()) / 2
        # Never earlier than the endpoint asked for, and not all callers at the same moment.
        seconds = backoff if asked is None else asked + backoff * policy.jitter()
        return None if self._is_over(seconds, silent=silent) else seconds

    def _is_over(self, seconds: float, *, silent: bool) -> bool:
        # A silent call alone has used up the time until the deadline, so here the calls are counted.
        if silent and self._is_last:
            return self._silent >= SILENT_ATTEMPTS
        return self._policy.clock() + seconds > self._deadline


FIRST = 8
ALL = 128
"""When the limit has grown to this, it ends."""
STEP_SECONDS = 1.0
WAIT_SECONDS = 15.0


class SlowStart:
    """Counts the calls to one model of this host. Without trouble it limits nothing."""

    def __init__(self, clock: Callable[[], float], host: str, *, wait: float = WAIT_SECONDS) -> None:
        self._clock = clock
        self._host = host
        self._wait = wait
        self._busy = 0
        self._is_away = False
        self._back_at: float | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def failed(self) -> None:
        """Notes a call that was not answered, where asking again later may help."""
        self._is_away, self._back_at = True, None

    def answered(self) -> None:
        """Notes that a call has brought the first part of an answer."""
        if self._is_away:
            self._is_away, self._back_at = False, self._clock()
            self._grant()

    @property
    def limit(self) -> int | None:
        """Returns how many calls may be under way; None: any number."""
        if self._is_away:
            return FIRST
        if self._back_at is None:
            return None
        steps = max(0, int((self._clock() - self._back_at) / STEP_SECONDS))
        limit = FIRST << min(steps, 16)  # after an idle night the steps are many, and the number would be huge
        if limit >= ALL:
            self._back_at = None
            return None
        return limit

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Waits for a place, first come first served, and holds it while the block lasts. Raises CallFailed when none
        becomes free in time.
        """
        if self._waiting or not self._is_free():  # nobody overtakes those who wait
            await self._queue()
        else:
            self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._grant()

    def _is_free(self) -> bool:
        limit = self.limit
        return limit is None or self._busy < limit

    async def _queue(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._grant()
        try:
            async with asyncio.timeout(self._wait):
                await place
        except BaseException as error:
            # The place may be granted in the same turn of the loop in which the wait ends: it is given back, or it would be lost.
            if place.done() and not place.cancelled():
                self._busy -= 1
            elif place in self._waiting:
                self._waiting.remove(place)
            self._grant()
            if isinstance(error, TimeoutError):
                message = f"{self._host} fails, and others wait for it already."
                raise CallFailed(message, RefusalKind.AGAIN) from None
            raise

    def _grant(self) -> None:
        while self._waiting and self._is_free():
            place = self._waiting.popleft()
            if not place.done():
                self._busy += 1
                place.set_result(None)
        # While the model is away nothing grows, so no timer is needed: a call that ends wakes the next.
        if self._waiting and self._back_at is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STEP_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._grant()
