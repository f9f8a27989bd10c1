"""Several platforms in one daemon: when one is refused, the others go on, and /readyz tells which one, and what to do."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.chats.runner import PlatformState
from tests.e2e.platforms.conftest import make
from tests.e2e.platforms.driver import Driver
from tests.e2e.platforms.scene import PlatformScene, daemon

REFUSED = {PlatformState.UNAUTHORIZED, PlatformState.NOT_SENDING}
PAIRS = [("slack", "whatsapp"), ("whatsapp", "discord"), ("discord", "slack")]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[Driver, Driver]:
    """The platform that fails, and the one beside it."""
    failing, well = request.param
    return make(failing), make(well)


@asynccontextmanager
async def side_by_side(home: Path, *drivers: Driver) -> AsyncGenerator[list[PlatformScene]]:
    """One daemon, and what the scenarios ask of it on each platform."""
    platforms = {one.name: {"enabled": True, "allowed_users": [one.owner_id], **one.section()} for one in drivers}
    async with daemon(home, drivers[0], hears=False, sections={"platforms": platforms}) as s:
        for one in drivers:
            one.connected_to(s.serving.url)
        yield [PlatformScene(driver=one, app=s.app, serving=s.serving) for one in drivers]


async def readiness(s: PlatformScene) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as client, client.get(f"{s.serving.url}/readyz") as answer:
        return answer.status, await answer.json()


async def answered(s: PlatformScene, text: str) -> None:
    """Waits until this is answered."""
    s.says(text)
    await s.until(lambda: text in "".join(s.driver.texts(s.driver.dm())))


async def test_one_whose_token_is_revoked(home: Path, pair: tuple[Driver, Driver]) -> None:
    async with pair[0].server, pair[1].server, side_by_side(home, *pair) as (failing, well):
        name, other = failing.driver.name, well.driver.name
        for s in (failing, well):
            await s.driver.until_ready()
            await answered(s, "hello one")
        assert (await readiness(well))[1]["status"] == "ready"

        failing.driver.revoke()
        failing.says("hello?")
        await failing.until(lambda: failing.serving.chats.states()[name]["state"] in REFUSED)
        await answered(well, "hello two")

        status, body = await readiness(well)
        assert (status, body["status"], body["waiting"]) == (200, "degraded", [])
        assert body["parts"][name]["state"] in REFUSED
        assert "token" in body["parts"][name]["words"]
        assert body["parts"][other]["state"] == "connected"


async def test_one_that_never_let_us_in(home: Path, pair: tuple[Driver, Driver]) -> None:
    pair[0].revoke()
    async with pair[0].server, pair[1].server, side_by_side(home, *pair) as (failing, well):
        name, other = failing.driver.name, well.driver.name
        await failing.until(lambda: failing.serving.chats.states()[name]["state"] in REFUSED)
        await well.driver.until_ready()
        await answered(well, "hello")

        status, body = await readiness(well)
        assert (status, body["status"], body["waiting"]) == (503, "waiting", [name])
        assert "token" in body["parts"][name]["words"]
        assert body["parts"][other]["state"] == "connected"


@pytest.mark.usefixtures("quick")
async def test_one_that_cannot_be_reached_for_a_while(home: Path, pair: tuple[Driver, Driver]) -> None:
    async with pair[0].server, pair[1].server, side_by_side(home, *pair) as (failing, well):
        for s in (failing, well):
            await s.driver.until_ready()
            await answered(s, "hello one")
        failing.driver.sending_fails(drop="before", times=10_000)
        failing.says("hello two")
        await failing.until(lambda: failing.driver.server.faults[0].times < 9_998)
        await answered(well, "hello two")
        failing.driver.server.faults.clear()
        await answered(failing, "hello three")
        texts = "".join(failing.driver.texts(failing.driver.dm()))
        assert [texts.count(f"hello {number}") for number in ("one", "two", "three")] == [1, 1, 1]
