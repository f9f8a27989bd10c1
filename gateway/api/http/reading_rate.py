"""Limits how many bytes a second are read, so that large uploads leave the event loop and the processor to ordinary calls."""

import asyncio


class ReadingRate:
    """All bodies share `per_second` bytes."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._next = 0.0

    async def wait(self, size: int) -> None:
        """Returns when these bytes had their time."""
        # The time is taken before the sleep, so that bodies that wait at once follow one another.
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now) + size / self._per_second
        await asyncio.sleep(self._next - now)
