"""One budget per chat for everything that is sent there."""

import asyncio
from itertools import pairwise

import pytest

from adapters.base import Pace
from gateway.chats.sending import KEPT_FREE, MARGIN, RateLimiter
from sessions.keys import Address, ChatKind, Platform

DM = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="1")
OTHER = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="2")
GROUP = Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id="-1")
PACE = Pace(per_second=30, dm=1, group=1, edit=1.5, group_per_minute=20)


class PacedTime:
    """Passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1e-6  # as real clocks do between two looks
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> PacedTime:
    return PacedTime()


@pytest.fixture
def pacer(time: PacedTime) -> RateLimiter:
    return RateLimiter(PACE, monotonic=time, sleep=time.sleep)


async def test_the_first_is_free_and_the_next_waits(pacer: RateLimiter, time: PacedTime) -> None:
    await pacer.wait_for_turn(DM)
    assert time.now == pytest.approx(100, abs=0.01)
    await pacer.wait_for_turn(DM)
    assert time.now == pytest.approx(101, abs=0.01)


async def test_other_chats_wait_only_for_the_platform(pacer: RateLimiter, time: PacedTime) -> None:
    await pacer.wait_for_turn(DM)
    await pacer.wait_for_turn(OTHER)
    assert time.now == pytest.approx(100 + MARGIN / 30, abs=0.01)


async def test_a_group_has_twenty_a_minute(pacer: RateLimiter, time: PacedTime) -> None:
    for _ in range(21):
        await pacer.wait_for_turn(GROUP)
    assert time.now == pytest.approx(160, abs=0.1)


async def test_what_may_be_left_out_never_waits_and_leaves_room(pacer: RateLimiter, time: PacedTime) -> None:
    taken = 0
    for _ in range(600):
        taken += pacer.try_turn(GROUP, edit=True)
        time.now += 0.1
    assert taken == 20 - KEPT_FREE
    await pacer.wait_for_turn(GROUP)
    assert time.now == pytest.approx(160, abs=0.2)


async def test_edits_keep_their_own_distance(pacer: RateLimiter, time: PacedTime) -> None:
    assert pacer.try_turn(DM, edit=True)
    time.now += 1.2
    assert not pacer.try_turn(DM, edit=True)
    assert pacer.try_turn(DM)
    time.now += 1.2
    assert pacer.try_turn(DM, edit=True)


async def test_a_platform_that_asked_to_wait_is_left_alone(pacer: RateLimiter, time: PacedTime) -> None:
    pacer.pause(30, DM)
    assert not pacer.try_turn(DM)
    assert pacer.try_turn(OTHER)
    await pacer.wait_for_turn(DM)
    assert time.now == pytest.approx(130, abs=0.1)


async def test_calls_that_bunched_up_leave_evenly(pacer: RateLimiter, time: PacedTime) -> None:
    for _ in range(31):
        await pacer.wait_before_call()
    assert time.now == pytest.approx(100 + MARGIN, abs=0.05)


async def test_calls_leave_evenly_even_after_everything_stood_still(time: PacedTime) -> None:
    async def sleep(seconds: float) -> None:
        ends = time.now + seconds
        while time.now < ends:
            await asyncio.sleep(0)

    pacer, left = RateLimiter(PACE, monotonic=time, sleep=sleep), list[float]()

    async def call() -> None:
        await pacer.wait_before_call()
        left.append(time.now)

    calls = asyncio.gather(*(call() for _ in range(20)))
    while not calls.done():
        time.now += 0.6 if len(left) == 5 else 0.001
        await asyncio.sleep(0)
    assert min(after - before for before, after in pairwise(left)) >= MARGIN / PACE.per_second
