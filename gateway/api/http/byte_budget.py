"""Limits the bytes that may be held at once, in all and for each key, so that uploads cannot use up memory or disk."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class ByteBudget:
    """`total` bytes, of which one name may hold half (or one single piece, however large)."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = Counter[str]()
        self._freed = asyncio.Condition()

    @property
    def used(self) -> int:
        return self._taken.total()

    def take(self, name: str, size: int) -> bool:
        """Takes the bytes. Returns False when they are not free now."""
        mine = self._taken[name]
        # A name that holds nothing may take a piece of any size while nobody else holds one; else a large body could never be taken.
        if mine and (self.used + size > self._total or mine + size > self._total // 2):
            return False
        if not mine and self.used and self.used + size > self._total:
            return False
        self._taken[name] += size
        return True

    def give_back(self, name: str, size: int) -> None:
        self._taken[name] -= size
        if not self._taken[name]:
            del self._taken[name]

    @asynccontextmanager
    async def acquire(self, name: str, size: int, seconds: float) -> AsyncGenerator[None]:
        """Waits for the bytes and holds them while the block lasts. Raises TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds), self._freed:
            await self._freed.wait_for(lambda: self.take(name, size))
        try:
            yield
        finally:
            self.give_back(name, size)
            async with self._freed:
                self._freed.notify_all()
