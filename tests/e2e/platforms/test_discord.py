"""What only Discord has: intents, sessions that are resumed or not, nonces, slash commands."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from adapters.discord import adapter
from gateway.chats import runner
from gateway.chats.runner import PlatformState
from gateway.config.problems import BadConfig
from gateway.config.reading import load
from gateway.texts import say
from tests.e2e.platforms.discord import DiscordDriver
from tests.e2e.platforms.scene import answering, daemon, process, scene, write_config
from tests.e2e.telegram.daemon import settled
from tests.machine import free_port


@pytest.fixture
def driver() -> DiscordDriver:
    return DiscordDriver()


async def test_a_missing_intent_is_told_in_words_and_recovers(
    home: Path, driver: DiscordDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_UNAUTHORIZED", (0.05,))
    driver.server.intents = False
    async with scene(home, driver, hears=False) as s:
        platform = s.serving.chats.running["discord"]
        await s.until(lambda: platform.health.state is PlatformState.UNAUTHORIZED)
        assert "the intent “Message Content” is off" in platform.health.message
        assert "discord.com/developers" in platform.health.message
        driver.server.intents = True
        await s.until(driver.server.is_connected)
        assert await s.answer_to("hello")


async def test_an_intent_that_is_taken_away_later_is_told(
    home: Path, driver: DiscordDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_UNAUTHORIZED", (0.05,))
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        driver.server.intents = False
        await driver.server.drop(4014)
        platform = s.serving.chats.running["discord"]
        await s.until(lambda: platform.health.state is PlatformState.UNAUTHORIZED)
        assert "Message Content" in platform.health.message


def test_without_its_token_it_does_not_start(home: Path, driver: DiscordDriver) -> None:
    write_config(home, driver, token="", api_base="http://127.0.0.1:1/api/v10", gateway_url="ws://127.0.0.1:1")
    with pytest.raises(BadConfig) as raised:
        load(home, {})
    assert [problem.path for problem in raised.value.problems] == ["platforms.discord.token"]


async def test_a_cut_connection_is_resumed_and_nothing_is_missed(home: Path, driver: DiscordDriver) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        await driver.server.drop()
        s.says("said meanwhile")
        assert "said meanwhile" in (await s.answers(driver.dm(), 2))[-1]
        await driver.server.ask_to_reconnect()
        assert await s.answer_to("and now")
        assert (driver.server.resumed, driver.server.identified) == (2, 1)


async def test_what_was_said_while_a_session_was_invalid_is_fetched_from_history(
    home: Path, driver: DiscordDriver
) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        general, thread = driver.group(), driver.says(driver.group(), "a root")
        in_thread = driver.server.thread(thread)
        await driver.server.invalidate()
        await s.until(lambda: not driver.server.is_connected())
        s.says("in a direct message")
        driver.says(general, driver.mention("in a channel"))
        driver.server.says(in_thread, driver.owner, driver.mention("in a thread"))
        driver.says(general, "to nobody")
        await s.until(lambda: driver.server.identified == 2)
        assert "direct message" in (await s.answers(driver.dm(), 2))[-1]
        assert "channel" in (await s.answers(general, 1))[-1]
        assert "thread" in (await s.answers(in_thread, 1))[-1]
        await s.answer_to("good")
        assert [len(driver.said_by_bot(room)) for room in (driver.dm(), general, in_thread)] == [3, 1, 1]


async def test_messages_in_the_history_that_cannot_be_read_hide_none_behind_them(
    home: Path, driver: DiscordDriver
) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        general = driver.group()
        await driver.server.invalidate()
        await s.until(lambda: not driver.server.is_connected())
        for n in (1, 2):
            driver.poison()
            s.says(f"direct {n}")
            driver.says(general, driver.mention(f"channel {n}"))
        await s.until(lambda: "direct 2" in "".join(driver.texts(driver.dm())))
        await s.until(lambda: "channel 2" in "".join(driver.texts(general)))
        assert "direct 1" in "".join(driver.texts(driver.dm()))
        assert "channel 1" in "".join(driver.texts(general))
        assert driver.server.identified == 2


async def test_who_writes_what_cannot_be_read_hears_so(home: Path, driver: DiscordDriver) -> None:
    async with scene(home, driver) as s:
        assert await s.answer_to("hello") != say("limits.kind_unknown")
        for room in (driver.group(), driver.dm()):
            driver.server.says(room, driver.owner, driver.mention("look"), embeds=7)
        assert (await s.answers(driver.dm(), 2))[-1] == say("limits.kind_unknown")
        await s.answer_to("good")
        assert driver.said_by_bot(driver.group()) == []


async def test_at_the_very_first_start_old_messages_are_left_alone(home: Path, driver: DiscordDriver) -> None:
    real = driver.server.clock
    driver.server.clock = lambda: real() - 60
    driver.says(driver.dm(), "an old message")
    driver.server.clock = real
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        assert len(driver.said_by_bot(driver.dm())) == 1


async def test_what_could_not_be_stored_is_fetched_again(
    home: Path, driver: DiscordDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sessions.errors import Busy

    monkeypatch.setattr(runner, "_BACKOFF", (0.05,))
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        platform = s.serving.chats.running["discord"]
        deliver, failures = platform._intake.deliver, [1]

        async def sometimes(inbound):
            if failures:
                failures.pop()
                raise Busy("the disk is full")
            await deliver(inbound)

        monkeypatch.setattr(platform._intake, "deliver", sometimes)
        assert "again" in await s.answer_to("once again")
        assert failures == []


async def test_after_kill_9_between_send_and_mark_its_nonce_keeps_it_one(home: Path, driver: DiscordDriver) -> None:
    async with driver.server:
        dm, never = driver.dm(), asyncio.Event()
        killed = await process(home, driver, free_port())
        await driver.until_ready()
        driver.sending_fails(drop="after", wait=never)
        driver.says(dm, "hello")
        await driver.server.until(lambda: driver.said_by_bot(dm), timeout=60)
        killed.kill()
        await killed.wait()
        never.set()
        async with daemon(home, driver) as s:
            await settled(s.app.database)
        assert len(driver.said_by_bot(dm)) == 1
        first, second = (call["nonce"] for call in driver.server.called("post"))
        assert first == second


async def test_slash_commands_are_offered_and_only_who_asks_sees_the_answer(home: Path, driver: DiscordDriver) -> None:
    async with scene(home, driver) as s:
        await s.until(lambda: driver.server.offered)
        names = [command["name"] for command in driver.server.offered]
        assert {"new", "stop", "status", "resume", "help"} <= set(names)
        driver.command(driver.group(), "/status")
        (answer,) = await s.answers(driver.group(), 1)
        assert "Ready" in answer
        assert driver.said_by_bot(driver.group())[0].only_for == "7"
        written = len(driver.server.called("commands"))
        await s.serving.chats.running["discord"].adapter.offer_commands(  # type: ignore[attr-defined]
            [(command["name"], command["description"]) for command in driver.server.offered], []
        )
        assert len(driver.server.called("commands")) == written + 1


@pytest.mark.parametrize("fault", [{"poison": True}, {"drop": "before"}, {"wait": True}, {"status": 500}])
async def test_an_acknowledgement_that_goes_wrong_harms_nothing_else(
    home: Path, driver: DiscordDriver, fault: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_ACKNOWLEDGE_SECONDS", 0.5)
    never = asyncio.Event()
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        driver.server.fail("callback", times=9, **({"wait": never} if "wait" in fault else fault))
        driver.command(driver.group(), "/status")
        assert "again" in await s.answer_to("once again")
        assert "Ready" in (await s.answers(driver.group(), 1))[0]
        assert (driver.server.identified, driver.server.resumed) == (1, 0)
        never.set()


async def test_a_button_works_after_a_restart_and_is_acknowledged(home: Path, driver: DiscordDriver) -> None:
    async with driver.server:
        dm = driver.dm()
        async with daemon(home, driver) as s:
            await s.answer_to("ask me something")
        card = next(said for said in driver.said_by_bot(dm) if said.buttons)
        async with daemon(home, driver) as s:
            pressed = list(card.buttons)
            tap = driver.server.taps(dm, driver.owner, card, "Red")
            assert "Red" in (await s.answers(dm, 2))[-1]
            await s.until(lambda: driver.server.acknowledged.get(tap) == 6)
            await s.until(lambda: not card.buttons)
            card.buttons = pressed
            late = driver.server.taps(dm, driver.owner, card, "Blue")
            await s.until(lambda: driver.server.acknowledged.get(late) == 4)
            (told,) = [said.text for said in driver.said_by_bot(dm) if said.only_for == driver.owner_id]
            assert told.startswith("Ann already decided this")


async def test_nobody_is_pinged(home: Path, driver: DiscordDriver) -> None:
    async with answering(home, driver, "@everyone <@66> look") as s:
        await s.answer_to("hello")
        assert all(
            call["allowed_mentions"] == {"parse": [], "replied_user": False} for call in driver.server.called("post")
        )


async def test_who_may_talk_in_a_channel_may_talk_in_its_threads(home: Path, driver: DiscordDriver) -> None:
    async with scene(home, driver, allowed_chats=[driver.group().id]) as s:
        thread = driver.server.thread(driver.says(driver.group(), "root"))
        driver.server.dispatch("THREAD_CREATE", {**driver.server.channel(thread), "newly_created": True})
        driver.says(thread, driver.mention("hello"), person=driver.stranger)
        await s.answers(thread, 1)


async def test_a_thread_is_a_channel_of_its_own(home: Path, driver: DiscordDriver) -> None:
    async with scene(home, driver) as s:
        thread = driver.server.thread(driver.says(driver.group(), "root"))
        driver.server.dispatch("THREAD_CREATE", {**driver.server.channel(thread), "newly_created": True})
        driver.says(thread, driver.mention("hello"))
        await s.answers(thread, 1)
        keys = await s.app.database.read(lambda conn: list(conn.scalars(text("SELECT session_key FROM sessions"))))
        assert keys == [f"agent:main:discord:channel:{thread.id}"]


async def test_the_owner_code_needs_no_slash(home: Path, driver: DiscordDriver) -> None:
    async with scene(home, driver, allowed_users=[]) as s:
        lines = "\n".join(await s.serving.chats.lines())
        code = lines.split("Send @hermes: start ")[1].split()[0]
        assert "You are the owner now" in await s.answer_to(f"start {code}")


async def test_a_file_whose_address_has_run_out_gets_a_new_one(home: Path, driver: DiscordDriver) -> None:
    from adapters.testing.people import SentFile

    async with scene(home, driver) as s:
        driver.server.fail("download", status=404, body={"message": "gone"})
        assert "inbox/a.txt" in await s.answer_to("see", file=SentFile("a.txt", b"abc", "text/plain"))
