"""Decides how long to wait before an endpoint is asked again, and when to stop."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

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
