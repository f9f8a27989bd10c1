"""How long to wait before asking an endpoint again, and when to stop."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

FIRST_WAIT = 0.5
LONGEST_BACKOFF = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """At most `attempts` calls, none begun later than the caller's deadline; the waits between them double, with jitter.

    An endpoint that asks for more than `longest_wait` is not waited for.
    """

    attempts: int = 4
    longest_wait: float = 60.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random

    def wait(self, failed: int, asked: float | None, deadline: float) -> float | None:
        """Seconds until the next call after `failed` ones, or None to give up."""
        if asked is not None and asked > self.longest_wait:
            return None
        backoff = min(FIRST_WAIT * 2 ** (failed - 1), LONGEST_BACKOFF) * (1 + self.jitter()) / 2
        seconds = backoff if asked is None else asked + backoff * self.jitter()
        late = self.clock() + seconds > deadline
        return None if failed >= self.attempts or late else seconds
