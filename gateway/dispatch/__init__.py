"""Decides which session key has work, and which worker does it."""

from gateway.context import App
from gateway.dispatch.base import Dispatch


async def open_dispatch(app: App, *, serves: bool = True) -> Dispatch:
    """Returns what distributes the runs of this database: on PostgreSQL over all processes. `serves` False: only the keys that are added."""
    if (bus := app.database.bus) is None:
        from gateway.dispatch.local import LocalDispatch

        return LocalDispatch(app, serves=serves)
    from gateway.dispatch.procrastinate import ProcrastinateDispatch

    return await ProcrastinateDispatch.open(app, bus, serves=serves)
