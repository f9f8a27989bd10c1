"""How colleagues meet the bot in Slack: what they are told alone, how they are let in, and in which words."""

from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.e2e.platforms.scene import PlatformScene, answering, scene
from tests.e2e.platforms.slack import SlackDriver
from tests.e2e.platforms.test_slack import HTTP
from tests.e2e.telegram.daemon import settled
from tests.fakes.model_replies import call, calls


@pytest.fixture
def driver() -> SlackDriver:
    return SlackDriver()


async def told_alone(s: PlatformScene, driver: SlackDriver, count: int) -> list[str]:
    """What Eve, who has no access, alone sees in the channel."""
    group = driver.group()
    await s.until(lambda: len([said for said in driver.said_by_bot(group) if said.only_for == "U66"]) >= count)
    await settled(s.app.database)
    return [said.text for said in driver.said_by_bot(group) if said.only_for == "U66"]


@pytest.mark.parametrize("how", ["mention", "mention in a thread", "command"])
async def test_who_is_not_let_in_gets_a_code_that_nobody_else_sees(home: Path, driver: SlackDriver, how: str) -> None:
    async with scene(home, driver) as s:
        group = driver.group()
        root = driver.says(group, "a root")
        for _ in range(2):
            if how == "command":
                driver.server.commands(group, driver.stranger, "status")
            else:
                thread = root if "thread" in how else None
                driver.says(group, driver.mention("hello"), person=driver.stranger, thread=thread)
        (code,) = await told_alone(s, driver, 1)
        assert "hermes pair approve" in code
        assert [said.thread for said in driver.said_by_bot(group)] == [root.id if "thread" in how else None]
        assert not [said for said in driver.said_by_bot(group) if not said.only_for]


async def test_who_only_talks_in_a_thread_of_the_bot_is_told_nothing(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        root = driver.says(driver.group(), driver.mention("hello"))
        await s.answers(driver.group(), 1)
        driver.says(driver.group(), "lunch?", person=driver.stranger, thread=root)
        await s.answer_to("hello")
        assert len(driver.said_by_bot(driver.group())) == 1


async def test_strangers_are_not_told_anything_where_they_are_to_be_ignored(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver, unknown_users="ignore") as s:
        driver.says(driver.group(), driver.mention("hello"), person=driver.stranger)
        await s.answer_to("hello")
        assert driver.said_by_bot(driver.group()) == []


async def test_buttons_answer_whoever_presses_them_alone(home: Path, driver: SlackDriver) -> None:
    asks = calls(call("ask_human", {"question": "Which colour?", "options": ["Red", "Blue"]}))
    async with answering(home, driver, asks, "Red it is.", allowed_users=["U7", "U8"]) as s:
        group, bob = driver.group(), driver.server.person("U8", "Bob")
        driver.says(group, driver.mention("paint it"))
        await s.until(lambda: any(said.buttons for said in driver.said_by_bot(group)))
        card = next(said for said in driver.said_by_bot(group) if said.buttons)
        driver.taps(group, card, "Blue", person=driver.stranger)
        assert "hermes pair approve" in (await told_alone(s, driver, 1))[0]
        pressed = dict(card.body)
        driver.taps(group, card, "Red")
        await s.until(lambda: "Red it is." in driver.texts(group))
        card.body = pressed
        driver.taps(group, card, "Blue", person=bob)
        await s.until(lambda: any(said.only_for == "U8" for said in driver.said_by_bot(group)))
        (late,) = [said.text for said in driver.said_by_bot(group) if said.only_for == "U8"]
        assert "Ann already decided this" in late


async def test_who_was_let_in_hears_it_alone(home: Path, driver: SlackDriver) -> None:
    from sessions import people
    from sessions.clock import now_ms

    async with scene(home, driver) as s:
        driver.says(driver.group(), driver.mention("hello"), person=driver.stranger)
        (code,) = await told_alone(s, driver, 1)
        _, route = await s.app.database.write(people.approve, code.split("code is ")[1].split(".")[0], now_ms())
        assert route.address.chat_id == "U66"


async def test_commands_are_told_as_they_can_be_given(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        driver.command(driver.dm(), "/new")
        assert "/hermes resume goes back" in (await s.answers(driver.dm(), 2))[-1]
        driver.says(driver.group(), driver.mention("/nonsense"))
        assert "@hermes /help" in (await s.answers(driver.group(), 1))[-1]


async def test_the_first_words_in_a_channel_say_how_it_works_there(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        driver.server.adds(driver.group(), driver.owner)
        (hello,) = await s.answers(driver.group(), 1)
        assert "All threads of this channel are one conversation with me." in hello
        assert "gets a code when they mention me" in hello
        assert "/hermes help" in hello


async def test_an_old_event_says_that_the_clock_is_wrong(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver, **HTTP) as s, aiohttp.ClientSession() as client:
        url, server = f"{s.serving.url}/webhooks/slack", driver.server
        with capture_logs() as logs:
            for headers in (
                server.signed(b"{}", at=server.clock() - 400),
                {**server.signed(b"{}"), "X-Slack-Signature": "v0=0"},
            ):
                async with client.post(url, data=b"{}", headers=headers) as answer:
                    assert answer.status == 401
        (told,) = [line for line in logs if line["event"] == "slack.event_too_old"]
        assert "older than five minutes: check the clock" in told["advice"]
