"""Decides which session key has work, and which worker does it: `local.py` in one process, `procrastinate.py` over those on one PostgreSQL."""

from collections.abc import Sequence
from typing import Protocol

from gateway.context import App
from sessions.records import Run


class Dispatch(Protocol):
    """Gives each session key to one worker at a time. `poll_seconds`, `keep_alive_seconds`: how often a worker calls `poll` and `keep_alive`."""

    poll_seconds: float
    keep_alive_seconds: float

    def notify(self, session_key: str) -> None:
        """Looks at this key soon, because it may have work. Cheap, and harmless when it has none."""
        ...

    def add_key(self, session_key: str) -> None:
        """Makes this process work on this key too, whatever keys it works on otherwise."""
        ...

    async def poll(self) -> None:
        """Finds work of which no commit here has told: what a crash left behind, what is due, what other processes added."""
        ...

    async def claim(self) -> Run:
        """Waits for the next run and takes it, with its unread messages taken in."""
        ...

    async def keep_alive(self, run_ids: Sequence[str]) -> None:
        """Says that this worker lives, and works on these runs."""
        ...

    async def release(self, run: Run) -> None:
        """Ends this worker's work on the run, whether the run has ended or not."""
        ...

    async def give_back(self, run: Run) -> None:
        """Returns an unfinished run, so that the next worker continues at once."""
        ...

    async def close(self) -> None:
        """Stops listening to commits. What is not given back by then is free for others at once."""
        ...


async def open_dispatch(app: App, *, serves: bool = True) -> Dispatch:
    """Returns what distributes the runs of this database: on PostgreSQL over all processes. `serves` False: only the keys that are added."""
    if (bus := app.database.bus) is None:
        from gateway.dispatch.local import LocalDispatch

        return LocalDispatch(app, serves=serves)
    from gateway.dispatch.procrastinate import ProcrastinateDispatch

    return await ProcrastinateDispatch.open(app, bus, serves=serves)
