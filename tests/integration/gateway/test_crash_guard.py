"""After three starts that nothing came of, the platforms wait for five minutes; anything that works clears the suspicion."""

import asyncio
from pathlib import Path

import pytest

from gateway.chats.crash_guard import FILE, HOLD_MS, WINDOW_MS, CrashGuard
from sessions.topics import Topic, Touch
from tests.integration.gateway.intake_in_process import HandClock

NOW = 1_800_000_000_000


class DaemonStarts:
    """One start after another on the same home; each is killed."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, HandClock(NOW)
        self.slept: list[float] = []

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.Event().wait()

    def start(self, *, was_killed: bool = True) -> CrashGuard:
        return CrashGuard(self.home, was_killed=was_killed, clock=self.clock, sleep=self._sleep)

    async def killed_soon(self, guard: CrashGuard) -> None:
        task = asyncio.create_task(guard.watch())
        async with asyncio.timeout(10):
            while not self.slept:
                await asyncio.sleep(0.001)
        self.slept.clear()
        task.cancel()
        self.clock.now += 5_000


@pytest.fixture
async def starts(tmp_path: Path) -> DaemonStarts:
    found = DaemonStarts(tmp_path)
    for _ in range(2):
        guard = found.start()
        assert guard.held_until is None
        await found.killed_soon(guard)
    return found


async def test_the_third_time_they_are_held(starts: DaemonStarts):
    await starts.killed_soon(starts.start())
    guard = starts.start()
    assert guard.held_until == starts.clock.now + HOLD_MS
    assert "killed 3 times" in guard.why
    waiting = asyncio.create_task(guard.wait())
    async with asyncio.timeout(10):
        while starts.slept != [HOLD_MS / 1000]:
            await asyncio.sleep(0.001)
    waiting.cancel()


async def test_a_clean_end_is_no_suspicion(starts: DaemonStarts):
    await starts.killed_soon(starts.start(was_killed=False))
    assert starts.start().held_until is None


async def test_starts_long_ago_count_no_more(starts: DaemonStarts):
    await starts.killed_soon(starts.start())
    starts.clock.now += WINDOW_MS
    assert starts.start().held_until is None


@pytest.mark.parametrize("topic", [Topic.STEP, Topic.SENT, Topic.RUN])
async def test_a_step_a_delivery_or_an_end_clears_it(starts: DaemonStarts, topic: Topic):
    guard = starts.start()
    await starts.killed_soon(guard)
    guard.on_commit(frozenset({Touch(Topic.SESSION, "s"), Touch(Topic.INBOX, "k")}))
    assert (starts.home / FILE).exists()
    guard.on_commit(frozenset({Touch(topic, "r")}))
    assert not (starts.home / FILE).exists()
    assert starts.start().held_until is None


@pytest.mark.parametrize("text", ["", "no json", "{}", '["x"]'])
def test_whatever_the_file_holds(tmp_path: Path, text: str):
    (tmp_path / FILE).write_text(text)
    assert CrashGuard(tmp_path, was_killed=True).held_until is None
