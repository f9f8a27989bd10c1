"""Whoever leaves may drain before the house does."""

import asyncio
from pathlib import Path

from tests.integration.runs.worker_in_process import at_work, desk


async def test_draining_twice_is_draining_once(home: Path):
    async with desk(home, ["hello"], working=False) as it, at_work(it) as worker:  # leaving drains again
        await it.say("hi")
        for _ in range(5):  # at every moment of the worker's end
            await worker.drain()
            await asyncio.sleep(0)
