"""Wraps a database so that reads and writes wait while it is unavailable, instead of failing: for work that was paid for."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, repeat
from typing import ParamSpec, TypeVar

from sessions.db.engine import ReadsAndWrites, Work
from sessions.errors import DatabaseUnavailable

T = TypeVar("T")
P = ParamSpec("P")

_PAUSES = (0.5, 1, 2, 5)
_LONGEST_PAUSE = 10


class WaitingDatabase(ReadsAndWrites):
    """Repeats what raises Unavailable until it does not, without a limit. Any other error goes to the caller.

    A write may have been committed before its connection broke, so everything that is written must be idempotent.
    """

    def __init__(self, database: ReadsAndWrites, waits: Callable[[DatabaseUnavailable, float], None]) -> None:
        """`waits` is told of each failure, and how many seconds later the next try is."""
        self._database = database
        self._waits = waits

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._until_available(lambda: self._database.write(work, *args, **kwargs))

    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._until_available(lambda: self._database.read(work, *args, **kwargs))

    async def _until_available(self, call: Callable[[], Awaitable[T]]) -> T:
        for pause in chain(_PAUSES, repeat(_LONGEST_PAUSE)):
            try:
                return await call()
            except DatabaseUnavailable as error:
                self._waits(error, pause)
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")
