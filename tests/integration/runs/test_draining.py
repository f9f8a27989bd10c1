"""Draining a worker: more than once, and while its database is away."""

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.dispatch import open_dispatch
from sessions import runs
from sessions.errors import DatabaseUnavailable
from tests.integration.runs.worker_in_process import at_work, worker_in_process


async def test_draining_twice_is_draining_once(home: Path):
    async with worker_in_process(home, ["hello"], working=False) as it, at_work(it) as worker:  # leaving drains again
        await it.say("hi")
        for _ in range(5):  # at every moment of the worker's end
            await worker.drain()
            await asyncio.sleep(0)


async def test_draining_ends_a_claim_whose_transaction_fails(
    home: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    """The database may go away while a worker that is being drained claims a run."""
    writing, go_on = threading.Event(), threading.Event()

    def fail(*_: object, **__: object) -> None:
        writing.set()
        go_on.wait(10)
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(runs, "claim", fail)
    async with worker_in_process(home, working=False, url=database_url) as it:
        dispatch = await open_dispatch(it.app)
        claiming = asyncio.create_task(dispatch.claim())
        await it.accept("hi")
        await asyncio.to_thread(writing.wait, 10)
        claiming.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await dispatch.close()
