"""Limits all calls to a chat, and all calls to the platform. Callers get their turns in the order in which they asked."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from adapters.base import Pace
from sessions.keys import Address, ChatKind

MINUTE = 60.0
KEPT_FREE = 5
"""Of a group's calls per minute, those that previews and typing leave to real messages."""
MARGIN = 1.2
"""Calls that leave evenly arrive a little unevenly."""
_MANY = 5_000


class RateLimiter:
    def __init__(
        self,
        pace: Pace,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pace = pace
        self._clock = clock
        self._sleep = sleep
        self._free_at: dict[str, float] = {}
        self._edit_at: dict[str, float] = {}
        self._platform_free_at = 0.0
        self._called_at = 0.0
        self._call_lock = asyncio.Lock()
        self._minute: dict[str, deque[float]] = {}

    async def wait_for_turn(self, address: Address) -> None:
        """Waits until a message may be sent to this chat."""
        # The turn is reserved before the wait, so that others who ask meanwhile come after it.
        await self._wait_until(self._reserve(address, self._clock()))

    async def wait_before_call(self) -> None:
        """Waits just before the call: turns are planned evenly, but a process that stood still makes all of them at once."""
        async with self._call_lock:
            await self._wait_until(self._called_at + MARGIN / self._pace.per_second)
            self._called_at = self._clock()

    def try_turn(self, address: Address, *, edit: bool = False) -> bool:
        """Takes a turn and returns True if it is free now and nobody waits; for calls that may be left out."""
        now = self._clock()
        if self._earliest(address, now) > now or (edit and self._edit_at.get(address.chat_id, 0) > now):
            return False
        if self._left_this_minute(address, now) <= KEPT_FREE:
            return False
        self._reserve(address, now)
        if edit:
            self._edit_at[address.chat_id] = now + self._pace.edit
        return True

    def hold(self, seconds: float, address: Address | None = None) -> None:
        """Makes no call for so many seconds, to this chat or to the whole platform, because the platform asked for it."""
        until = self._clock() + seconds
        if address is None:
            self._platform_free_at = max(self._platform_free_at, until)
        else:
            self._free_at[address.chat_id] = max(self._free_at.get(address.chat_id, 0), until)

    def _earliest(self, address: Address, now: float) -> float:
        earliest = max(now, self._free_at.get(address.chat_id, 0), self._platform_free_at)
        limit = self._pace.group_per_minute
        calls = self._minute.get(address.chat_id)
        if limit is not None and calls is not None and len(calls) >= limit:
            earliest = max(earliest, calls[-limit] + MINUTE)  # when the oldest call of the minute falls out of it
        return earliest

    def _left_this_minute(self, address: Address, now: float) -> float:
        limit = self._pace.group_per_minute
        if limit is None or address.kind is ChatKind.DM:
            return float("inf")
        return limit - sum(1 for at in self._minute.get(address.chat_id, ()) if at > now - MINUTE)

    def _reserve(self, address: Address, now: float) -> float:
        at = self._earliest(address, now)
        if len(self._free_at) > _MANY:
            self._forget_past(at)
        self._free_at[address.chat_id] = at + (self._pace.dm if address.kind is ChatKind.DM else self._pace.group)
        self._platform_free_at = at + MARGIN / self._pace.per_second
        if self._pace.group_per_minute is not None and address.kind is not ChatKind.DM:
            self._minute.setdefault(address.chat_id, deque(maxlen=self._pace.group_per_minute)).append(at)
        return at

    def _forget_past(self, now: float) -> None:
        self._free_at = {chat: at for chat, at in self._free_at.items() if at > now}
        self._edit_at = {chat: at for chat, at in self._edit_at.items() if at > now}
        self._minute = {chat: calls for chat, calls in self._minute.items() if calls[-1] > now - MINUTE}

    async def _wait_until(self, at: float) -> None:
        if (wait := at - self._clock()) > 0:
            await self._sleep(wait)
