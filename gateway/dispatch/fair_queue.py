"""Shares a number of places between groups: no group takes all of them, and the group with the fewest places is next."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

Granted = Callable[[], None]


class FairPlaces:
    """Divides the places. A group may hold at most `share` times as many as are free: with 3 one alone takes three quarters of them, two
    together three sevenths each, and a newcomer finds a place at once. Of those that wait, the group with the fewest places is next.
    """

    def __init__(self, total: int, *, share: int = 3) -> None:
        self.total = total
        self._share = share
        self._occupied = Counter[str]()
        self._waiting: OrderedDict[str, deque[Granted]] = OrderedDict()

    @property
    def free(self) -> int:
        return self.total - self._occupied.total()

    def waiting(self, group: str) -> int:
        return len(self._waiting.get(group, ()))

    def queue(self, group: str, granted: Granted) -> Callable[[], bool]:
        """Calls `granted`, now or later, when the group has a place; `leave` gives it back. Returns a function that withdraws the request;
        it returns False when the place was granted already.
        """
        self._waiting.setdefault(group, deque()).append(granted)
        self._grant()
        return lambda: self._withdraw(group, granted)

    def enter(self, group: str) -> None:
        """Takes a place at once, whatever the group's share; `leave` gives it back."""
        self._occupied[group] += 1

    def leave(self, group: str) -> None:
        self._occupied[group] -= 1
        if not self._occupied[group]:
            del self._occupied[group]
        self._grant()

    @asynccontextmanager
    async def acquire(self, group: str) -> AsyncGenerator[None]:
        """Waits for a place and holds it while the block lasts."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        withdraw = self.queue(group, lambda: None if place.done() else place.set_result(None))
        try:
            await place
        except asyncio.CancelledError:
            if not withdraw():  # granted and cancelled at the same moment: the place would be lost
                self.leave(group)
            raise
        try:
            yield
        finally:
            self.leave(group)

    def _withdraw(self, group: str, granted: Granted) -> bool:
        waiting = self._waiting.get(group, deque[Granted]())
        if granted not in waiting:
            return False
        waiting.remove(granted)
        if not waiting:
            del self._waiting[group]
        return True

    def _grant(self) -> None:
        # Next is the group with the fewest places; of several, the one that has waited longest.
        while (group := min(self._waiting, key=lambda name: self._occupied[name], default=None)) is not None:
            if self._occupied[group] >= self._share * self.free:
                return
            granted = self._waiting[group].popleft()
            if self._waiting[group]:  # to the end, so that groups with equally many places take turns
                self._waiting.move_to_end(group)
            else:
                del self._waiting[group]
            self._occupied[group] += 1
            granted()
