"""The seam between runs and whatever spreads them over workers: four verbs."""

from collections.abc import Sequence
from typing import Protocol

from sessions.records import Run


class Dispatch(Protocol):
    def notify(self, session_key: str) -> None:
        """This key may have something to do. Cheap, and harmless when it has not."""
        ...

    async def claim(self) -> Run:
        """Wait for the next run and take it, its unread messages folded in. Each key is given out once at a time."""
        ...

    async def keep_alive(self, run_ids: Sequence[str]) -> None: ...

    async def release(self, run: Run) -> None:
        """This worker is done with the run, whether it ended or not."""
        ...
