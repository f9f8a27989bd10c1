"""When the platform, the network or the process fails: nothing lost, nothing twice, the rest goes on, the operator hears it in words."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from gateway.chats import delivery, runner
from gateway.chats.runner import PlatformState
from gateway.texts import say
from tests.e2e.telegram.daemon import Scene, daemon, process, scene, settled, until_dead, until_tried, write_config
from tests.fakes.telegram_server import TelegramServer


async def another_chat_works(s: Scene) -> None:
    """Somebody else is answered all the same."""
    other = s.server.user(7, "Ann")
    group = s.server.group(-2002)
    before = len(s.server.answers(group.id))
    s.server.user_says(group, other, "@hermes_bot hello")
    await s.server.answered(group.id, before + 1)


@pytest.mark.parametrize("drop", ["before", ""])
async def test_a_send_that_surely_failed_is_made_again(home: Path, drop: str) -> None:
    async with scene(home) as s:
        s.server.fail("sendMessage", drop=drop, status=502)
        assert "practice model" in await s.answer_to("hello")
        await another_chat_works(s)
        assert len(s.server.answers(s.dm.id)) == 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_BACKOFF", (0.05,))
    monkeypatch.setattr(delivery, "PROBE_PAUSES", (0.05,))
    monkeypatch.setattr(delivery, "TRY_PAUSES", (0.05,))


@pytest.mark.usefixtures("quick")
async def test_a_send_that_may_have_arrived_is_repeated_three_times_at_most_and_then_said_to_be_missing(
    home: Path,
) -> None:
    async with scene(home) as s:
        s.server.fail("sendMessage", drop="after", times=4)
        s.says("hello")
        *answers, last = await s.server.answered(s.dm.id, 5)
        await until_dead(s, 1)
        await settled(s.app.database)
        assert (len(answers), len(set(answers)), last) == (4, 1, say("limits.answer_not_sent"))
        assert len(s.server.answers(s.dm.id)) == 5


async def test_a_platform_that_asks_to_wait_is_waited_for(home: Path) -> None:
    async with scene(home) as s:
        s.server.rate_limit("sendMessage", retry_after=1)
        assert await s.answer_to("hello")
        await another_chat_works(s)


async def test_a_chat_that_threw_the_bot_out_is_a_dead_letter(home: Path) -> None:
    async with scene(home) as s:
        group = s.server.group(-3003)
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        s.server.kick(group)
        (why,) = await until_dead(s, 1)
        assert "kicked" in why or "bot" in why
        assert await s.answer_to("hello")


async def test_a_revoked_token_is_said_in_words_and_the_rest_goes_on(home: Path) -> None:
    async with scene(home) as s:
        await s.answer_to("hello")
        s.server.revoke()
        platform = s.serving.chats.running["telegram"]
        await s.server.until(lambda: platform.health.state is PlatformState.UNAUTHORIZED)
        assert "token" in platform.health.message
        assert s.server.token not in platform.health.message
        assert s.serving.chats.states()["telegram"]["state"] == "unauthorized"


async def test_a_poll_that_fails_recovers_by_itself(home: Path) -> None:
    async with scene(home) as s:
        s.server.fail("getUpdates", drop="before")
        s.server.fail("getUpdates", status=409, description="Conflict: terminated by other getUpdates request")
        assert await s.answer_to("hello")


_SENDING = ("sendMessage", "sendMessageDraft", "sendChatAction")
CONFLICT = {"status": 409, "description": "Conflict: terminated by other getUpdates request"}


async def test_a_second_poller_is_told_for_as_long_as_it_is_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_BACKOFF", (0.05,))
    async with scene(home) as s:
        await s.answer_to("hello")
        health, seen = s.serving.chats.running["telegram"].health, set[PlatformState]()
        conflict = s.server.fail("getUpdates", times=10_000, **CONFLICT)
        await s.server.until(lambda: health.state is PlatformState.LOST)
        left = conflict.times

        def asked_again() -> bool:
            seen.add(health.state)
            return conflict.times < left - 3

        await s.server.until(asked_again)
        assert seen == {PlatformState.LOST}
        assert "Another program receives this bot's messages" in health.message
        s.server.faults.clear()
        await s.server.until(lambda: health.state is PlatformState.CONNECTED)
        assert health.message == ""


async def test_it_is_ready_once_it_has_been_given_what_came(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_BACKOFF", (0.05,))
    async with TelegramServer() as server:
        server.fail("getUpdates", times=10_000, **CONFLICT)
        async with daemon(home, server) as (_, served), aiohttp.ClientSession() as client:
            health = served.chats.running["telegram"].health
            await server.until(lambda: health.state is PlatformState.LOST)
            assert (await client.get(f"{served.url}/readyz")).status == 503
            server.faults.clear()
            await server.until(lambda: health.was_up)
            server.fail("getUpdates", times=10_000, **CONFLICT)
            await server.until(lambda: health.state is PlatformState.LOST)
            answer = await client.get(f"{served.url}/readyz")
            body = await answer.json()
            assert (answer.status, body["status"], body["parts"]["telegram"]["state"]) == (200, "degraded", "lost")
            assert "Another program receives this bot's messages" in body["parts"]["telegram"]["words"]
            key = (home / "api_key").read_text().strip()
            metrics = await client.get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {key}"})
            assert 'hermes_platform_up{platform="telegram"} 0.0' in await metrics.text()


@pytest.mark.usefixtures("quick")
async def test_polls_that_succeed_are_no_sign_that_sending_works_again(home: Path) -> None:
    async with scene(home) as s, aiohttp.ClientSession() as client:
        await s.answer_to("hello")
        faults = [s.server.fail(name, drop="before", times=10_000) for name in _SENDING]
        s.says("still there?")
        await until_tried(s, "doubts", 1)
        probed = sum(fault.times for fault in faults)
        await s.server.until(lambda: sum(fault.times for fault in faults) < probed - 5)
        ready = await client.get(f"{s.serving.url}/readyz")
        state = (await ready.json())["parts"]["telegram"]
        assert (ready.status, state["state"]) == (200, "not_sending")
        assert "none can be sent" in state["words"]
        assert faults[0].times == 10_000 - 1
        s.server.faults.clear()
        assert len(await s.server.answered(s.dm.id, 2)) == 2
        await settled(s.app.database)
        assert len(s.server.answers(s.dm.id)) == 2
        assert s.serving.chats.states()["telegram"]["state"] == "connected"


async def test_two_hundred_chats_at_once_keep_to_the_limits(home: Path) -> None:
    users = [str(number) for number in range(1_000, 1_200)]
    async with scene(home, allowed_users=users) as s:
        people = [s.server.user(int(number), f"P{number}") for number in users]
        for person in people:
            s.server.user_says(s.server.dm(person), person, "hello")
        await s.server.until(lambda: all(s.server.answers(person.id) for person in people), timeout=60)
        assert all(len(s.server.answers(person.id)) == 1 for person in people)


async def test_kill_9_between_send_and_mark_repeats_it_once_at_most(home: Path) -> None:
    async with TelegramServer() as server:
        ann = server.user(7, "Ann")
        dm = server.dm(ann)
        never = asyncio.Event()
        server.fail("sendMessage", drop="after", wait=never)
        server.user_says(dm, ann, "hello")
        killed = await process(home, server)
        await server.answered(dm.id, timeout=60)
        killed.kill()
        await killed.wait()
        never.set()
        for _ in range(2):
            async with daemon(home, server) as (app, _served):
                await server.until(lambda: server.called("getUpdates"))
                await settled(app.database)
        assert len(server.answers(dm.id)) == 2
        assert server.violations == []


async def test_sigterm_ends_it_cleanly(home: Path) -> None:
    async with TelegramServer() as server:
        ended = await process(home, server)
        await server.until(lambda: server.called("getUpdates"), timeout=60)
        ended.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(ended.wait(), 60) == 0


async def test_a_saved_configuration_is_taken_over_without_losing_a_message(home: Path) -> None:
    async with scene(home, allowed_users=["7"]) as s:
        bob = s.server.user(8, "Bob")
        write_config(home, s.server, allowed_users=["7", "8"])
        from gateway.config.reading import load

        await s.serving.reload(load(home, {}))
        chat = s.server.dm(bob)
        s.server.user_says(chat, bob, "hello")
        assert "practice model" in (await s.server.answered(chat.id))[0]
        assert await s.answer_to("hello")


async def test_a_webhook_of_a_platform_that_is_starting_is_tried_again(home: Path):
    async with scene(home) as s, aiohttp.ClientSession() as http:

        async def delivered(name: str) -> tuple[int, bool]:
            async with http.post(f"{s.serving.url}/webhooks/{name}", data=b"{}") as answer:
                return answer.status, "Retry-After" in answer.headers

        await s.serving.chats.stop("telegram")
        assert await delivered("telegram") == (503, True)
        assert await delivered("slack") == (404, False)
