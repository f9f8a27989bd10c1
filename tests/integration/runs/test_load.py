"""Many chats at once: every one is answered, and the event loop stays free for the others."""

import asyncio
import time
from pathlib import Path

from sessions.records import RunStatus
from tests.integration.runs.desk import KEY, desk

CHATS = 32


async def watch(worst: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        worst.append(time.perf_counter() - began - 0.005)


async def test_the_loop_stays_free_under_load(home: Path):
    """The best of three rounds, since other processes of the machine stall it too."""
    async with desk(home, fast="This is an answer.") as it:
        rounds: list[float] = []
        for number in range(3):
            late: list[float] = []
            watching = asyncio.create_task(watch(late))
            told = [f"message {number}"] * CHATS
            ended = await asyncio.gather(*(it.say(text, key=f"{KEY}:{chat}") for chat, text in enumerate(told)))
            watching.cancel()
            assert {run.status for run in ended} == {RunStatus.COMPLETED}
            rounds.append(max(late))
        assert min(rounds) < 0.05
