"""The interface between runs and whatever distributes them to workers."""

from collections.abc import Sequence
from typing import Protocol

from sessions.records import Run


class Dispatch(Protocol):
    def notify(self, session_key: str) -> None:
        """This key may have work. Cheap, and harmless when it has none."""
        ...

    async def claim(self) -> Run:
        """Waits for the next run and takes it, with its unread messages folded in. A key is given to one worker at
        a time."""
        ...

    async def keep_alive(self, run_ids: Sequence[str]) -> None: ...

    async def release(self, run: Run) -> None:
        """This worker has stopped working on the run, whether it ended or not."""
        ...
