"""How long a platform is left alone after it failed, and when it counts as connected."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from adapters.base import Adapter, Deliver, Pace, TryLater, Unauthorized
from gateway.chats.runner import CHECK_SECONDS, PlatformRunner, PlatformState
from sessions.db import Database
from sessions.gauges import read_gauges
from sessions.keys import Address, Sender
from sessions.keys import Platform as Name
from sessions.messages import Outbound, Piece, Receipt
from tests.conftest import HandClock
from tests.integration.gateway.intake_in_process import GROUP, IntakeHarness, tap


class ConnectingAdapter(Adapter):
    """A platform on which connecting goes as it was told beforehand, and which then stays."""

    platform = Name.TELEGRAM
    pace = Pace(per_second=30, dm=0, group=0, edit=0)

    def __init__(self, *troubles: Exception) -> None:
        self._troubles = list(troubles)

    async def run(self, deliver: Deliver) -> None:
        if self._troubles:
            raise self._troubles.pop(0)
        await asyncio.Event().wait()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        raise NotImplementedError

    async def send(self, address: Address, piece: Piece) -> Receipt:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class LivenessAdapter(ConnectingAdapter):
    reports_success = True


class MenuAdapter(ConnectingAdapter):
    def __init__(self, *troubles: Exception) -> None:
        super().__init__()
        self._refusals = list(troubles)
        self.offered = asyncio.Event()

    async def offer_commands(self, commands: Sequence[tuple[str, str]], users: Sequence[Sender]) -> None:
        if self._refusals:
            raise self._refusals.pop(0)
        self.offered.set()


@asynccontextmanager
async def running(
    intake: IntakeHarness, adapter: ConnectingAdapter
) -> AsyncGenerator[tuple[PlatformRunner, list[float]]]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    platform = PlatformRunner(adapter, intake.app, intake.intake, sleep=sleep)
    task = asyncio.create_task(platform.run())
    try:
        async with asyncio.timeout(30):
            yield platform, slept
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(ready: Callable[[], object]) -> None:
    while not ready():
        await asyncio.sleep(0.005)


async def test_a_refused_token_is_tried_again_soon_and_then_ever_later(sqlite_intake: IntakeHarness) -> None:
    async with running(sqlite_intake, ConnectingAdapter(TryLater("away"), *[Unauthorized("no")] * 5)) as (
        platform,
        slept,
    ):
        await until(lambda: platform.health.state is PlatformState.CONNECTED)
    pauses = [pause for pause in slept if pause != CHECK_SECONDS]  # the menu is looked at beside it
    assert pauses[:6] == [1, 30, 60, 120, 300, 300]


async def test_what_is_asked_to_wait_waits_as_long(sqlite_intake: IntakeHarness) -> None:
    adapter = MenuAdapter(TryLater("slowly", after=61), TryLater("away"), TryLater("slowly", after=0))
    async with running(sqlite_intake, adapter) as (_, slept):
        await adapter.offered.wait()
    assert slept[:3] == [61, 2, 5]


async def test_a_platform_that_reports_liveness_is_connected_when_it_lives(sqlite_intake: IntakeHarness) -> None:
    adapter = LivenessAdapter(TryLater("not now"))
    async with running(sqlite_intake, adapter) as (platform, slept):
        await until(lambda: slept)
        for _ in range(3):  # connected again, as far as the adapter can say, and nothing has come of it
            await asyncio.sleep(0.005)
        assert (platform.health.state, platform.health.message) == (PlatformState.LOST, "not now")
        assert not platform.health.was_up
        adapter.note_success()
        assert (platform.health.state, platform.health.message) == (PlatformState.CONNECTED, "")


async def test_only_what_is_taken_in_is_counted(sqlite: Database, clock: HandClock) -> None:
    intake = IntakeHarness(sqlite, clock, queue_per_chat=2)
    runner = PlatformRunner(ConnectingAdapter(), intake.app, intake.intake)
    intake.deliver = runner.deliver  # type: ignore[method-assign, assignment]

    def counted() -> int:
        exposed = intake.app.metrics.expose(sqlite.read_now(read_gauges), clock()).decode()
        found = re.search(r'hermes_messages_total\{direction="in",platform="telegram"\} (\d+)', exposed)
        return int(found[1]) if found else 0

    message = await intake.comes("hello")
    await intake.comes("/status")
    await intake.comes("and one thing more")
    assert counted() == 3
    await intake.deliver(message)
    await intake.comes("too many by now")
    await intake.comes("among themselves", GROUP, mentioned=False)
    await intake.comes("from a stranger", user="66")
    await tap(intake, "a:77:y")
    assert counted() == 3
