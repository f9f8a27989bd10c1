"""After trouble a model is not fallen upon by everybody at once."""

import asyncio

import pytest

from gateway.agent.models.errors import CallFailed
from gateway.agent.models.retry import FIRST, SlowStart
from tests.machine import hand_driven_loop


class Calls:
    """Calls that last until they are told to end."""

    def __init__(self, start: SlowStart) -> None:
        self.start, self.began, self.tasks = start, list[int](), list[asyncio.Task[None]]()
        self.ends: dict[int, asyncio.Event] = {}

    async def come(self, count: int) -> None:
        for number in range(len(self.tasks), len(self.tasks) + count):
            self.ends[number] = asyncio.Event()
            self.tasks.append(asyncio.create_task(self._call(number)))
        await turn()

    async def _call(self, number: int) -> None:
        async with self.start.place():
            self.began.append(number)
            await self.ends[number].wait()

    async def end(self, *numbers: int) -> None:
        for number in numbers:
            self.ends[number].set()
        await turn()

    async def end_all(self) -> None:
        for event in self.ends.values():
            event.set()
        await asyncio.gather(*self.tasks)


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_without_trouble_nothing_is_limited():
    calls = Calls(SlowStart(Seconds(), "host"))
    await calls.come(300)
    assert len(calls.began) == 300
    await calls.end_all()


async def test_after_trouble_eight_then_twice_as_many_every_second_in_order():
    seconds = Seconds()
    calls = Calls(SlowStart(seconds, "host"))
    calls.start.failed()
    with hand_driven_loop() as passes:
        await calls.come(300)
        assert calls.began == list(range(FIRST))
        calls.start.answered()
        await turn()
        assert len(calls.began) == FIRST
        for second, most in enumerate((16, 32, 64, 300), 1):
            seconds.now = float(second)
            passes(1.01)
            await turn()
            await turn()
            assert calls.began == list(range(most))
        await calls.end_all()
    assert calls.start.limit is None


async def test_whoever_ends_makes_room_for_the_next():
    calls = Calls(SlowStart(Seconds(), "host"))
    calls.start.failed()
    await calls.come(12)
    await calls.end(3, 5)
    assert calls.began == list(range(10))
    await calls.end_all()


async def test_a_call_that_waits_too_long_has_failed_and_takes_no_place():
    calls = Calls(SlowStart(Seconds(), "host", wait=0.01))
    calls.start.failed()
    await calls.come(FIRST)
    with pytest.raises(CallFailed):
        async with calls.start.place():
            raise AssertionError
    await calls.end_all()
    await calls.come(1)
    assert calls.began[-1] == FIRST
    await calls.end_all()


async def test_a_waiting_call_that_is_cancelled_takes_no_place():
    calls = Calls(SlowStart(Seconds(), "host"))
    calls.start.failed()
    await calls.come(FIRST + 2)
    calls.tasks[FIRST].cancel()
    await turn()
    await calls.end(0)
    assert calls.began == [*range(FIRST), FIRST + 1]
    calls.tasks.pop(FIRST)
    await calls.end_all()
