"""The interface between a worker and whatever distributes runs to workers."""

from collections.abc import Sequence
from typing import Protocol

from sessions.records import Run


class Dispatch(Protocol):
    """A key is given to one worker at a time."""

    def notify(self, session_key: str) -> None:
        """This key may have work. Cheap, and harmless when it has none."""
        ...

    def also(self, session_key: str) -> None:
        """This process works on this key too, whatever it works on otherwise."""
        ...

    async def look_around(self) -> None:
        """Finds work that nobody has told of: what a crash left behind, what is due, what other processes added."""
        ...

    async def claim(self) -> Run:
        """Waits for the next run and takes it, with its unread messages folded in."""
        ...

    async def keep_alive(self, run_ids: Sequence[str]) -> None:
        """Renews the leases of the runs that this worker works on."""
        ...

    async def release(self, run: Run) -> None:
        """This worker has stopped working on the run, whether it ended or not."""
        ...

    async def give_back(self, run: Run) -> None:
        """Returns an unfinished run, so that the next worker continues at once."""
        ...

    def close(self) -> None:
        """Hears of no more commits."""
        ...
