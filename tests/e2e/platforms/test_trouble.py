"""When events come wrong, or the platform, the network or the process fails: each message answered once, nothing else suffers."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from gateway.chats.runner import PlatformState
from tests.e2e.platforms.driver import Driver
from tests.e2e.platforms.scene import daemon, process, scene
from tests.e2e.telegram.daemon import settled
from tests.machine import free_port


@pytest.mark.usefixtures("quick")
async def test_doubled_and_unparseable_events(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        dm = driver.dm()
        await s.until(lambda: s.serving.chats.states()[driver.name]["state"] == "connected")
        up_since = s.serving.chats.states()[driver.name]["since"]
        s.says("hello one")
        driver.double()
        driver.poison()
        s.says("hello two")
        driver.double()
        await s.until(lambda: all(f"hello {n}" in "".join(driver.texts(dm)) for n in ("one", "two")))
        await s.answer_to("hello three")
        whole = "\n".join(driver.texts(dm))
        assert [whole.count(f"hello {n}") for n in ("one", "two", "three")] == [1, 1, 1]
        assert s.serving.chats.states()[driver.name]["since"] == up_since  # the connection went on


async def test_reordered_events(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello zero")
        said = [s.says(f"hello {n}") for n in ("one", "two", "three")]
        driver.double()
        driver.reorder()
        await s.until(lambda: all(f"hello {n}" in "".join(driver.texts(driver.dm())) for n in ("one", "two", "three")))
        await s.answer_to("hello four")
        arrived = await s.app.database.read(_arrived)
        assert arrived.index(said[2].text) < arrived.index(said[0].text)
        whole = "\n".join(driver.texts(driver.dm()))
        assert [whole.count(f"hello {n}") for n in ("zero", "one", "two", "three", "four")] == [1] * 5


def _arrived(conn: Connection) -> list[str]:
    """The people's messages, in the order in which they were taken in."""
    rows = conn.scalars(text("SELECT content FROM messages WHERE role = 'user' ORDER BY id"))
    return [line for row in rows for line in str(row).splitlines()]


async def test_an_answer_waits_as_long_as_the_platform_asks(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        driver.rate_limits(1)
        assert await s.answer_to("hello")
        assert len(driver.said_by_bot(driver.dm())) == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("drop", ["before", "after", ""])
async def test_a_send_that_failed_is_made_again(home: Path, driver: Driver, drop: str) -> None:
    async with scene(home, driver) as s:
        if drop:
            driver.sending_fails(drop=drop)
        else:
            driver.outage()
        assert "practice model" in await s.answer_to("hello")
        await settled(s.app.database)
        assert len(driver.said_by_bot(driver.dm())) <= (2 if drop == "after" and not driver.sends_once else 1)
        assert s.serving.chats.states()[driver.name]["state"] == "connected"


@pytest.mark.usefixtures("quick")
async def test_what_was_taken_is_not_sent_again_although_its_answer_cannot_be_read(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        driver.sending_fails(poison=True, times=3)
        await s.answer_to("hello one")
        await settled(s.app.database)
        await s.answer_to("hello two")
        assert ["one" in text for text in driver.texts(driver.dm())] == [True, False]


@pytest.mark.usefixtures("quick")
async def test_a_revoked_token_is_said_in_words_and_the_rest_goes_on(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        driver.revoke()
        s.says("hello?")
        states = s.serving.chats.states
        await s.until(lambda: states()[driver.name]["state"] in {PlatformState.UNAUTHORIZED, PlatformState.NOT_SENDING})
        words = states()[driver.name]["words"]
        assert "token" in words
        assert driver.server.token not in words
        assert states()[driver.name]["last_success"] is not None


async def test_what_was_said_while_it_was_down_is_answered_once(home: Path, driver: Driver) -> None:
    async with driver.server:
        dm = driver.dm()
        async with daemon(home, driver) as s:
            await s.answer_to("hello")
        driver.says(dm, "are you there")
        async with daemon(home, driver) as s:
            assert "are you there" in (await s.answers(dm, 2))[1]
        async with daemon(home, driver) as s:
            await s.until(lambda: s.serving.chats.states()[driver.name]["state"] == "connected")
            await s.answer_to("good")
        assert len(driver.said_by_bot(dm)) == 3
    assert driver.server.violations == []


async def test_kill_9_between_send_and_mark_repeats_it_once_at_most(home: Path, driver: Driver) -> None:
    async with driver.server:
        dm, never = driver.dm(), asyncio.Event()
        driver.sending_fails(drop="after", wait=never)
        killed = await process(home, driver, free_port())
        await driver.until_ready()
        driver.says(dm, "hello")
        await driver.server.until(lambda: driver.said_by_bot(dm), timeout=60)
        killed.kill()
        await killed.wait()
        never.set()
        for _ in range(2):
            async with daemon(home, driver) as s:
                await s.until(lambda: s.serving.chats.states()[driver.name]["state"] == "connected")
                await settled(s.app.database)
        assert len(driver.said_by_bot(dm)) == (1 if driver.sends_once else 2)
    assert driver.server.violations == []
