"""What only Slack has: two ways in, one answer for two events, sessions and streams, the bot's own page."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from adapters.slack import live
from adapters.testing.people import FakePerson
from gateway.chats import runner
from gateway.chats.runner import PlatformState
from gateway.config.problems import BadConfig
from gateway.config.reading import load
from tests.e2e.platforms.scene import answering, daemon, process, scene, write_config
from tests.e2e.platforms.slack import SlackDriver
from tests.e2e.telegram.daemon import Gate, settled
from tests.fakes.model_replies import Reply, call, calls
from tests.machine import free_port


@pytest.fixture
def driver() -> SlackDriver:
    return SlackDriver()


HTTP = {"mode": "http", "app_token": "", "signing_secret": "slack-signing-secret"}


async def test_over_http_it_answers_and_acknowledges_in_time(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver, **HTTP) as s:
        driver.server.calls_back(f"{s.serving.url}/webhooks/slack")
        assert "practice model" in await s.answer_to("hello")
        group = driver.group()
        driver.says(group, driver.mention("hello"))
        await s.answers(group, 1)
        await s.answer_to("ask me something")
        card = next(said for said in driver.said_by_bot(driver.dm()) if said.buttons)
        driver.taps(driver.dm(), card, "Red")
        await s.until(lambda: "Red" in driver.texts(driver.dm())[-1])
        driver.command(driver.dm(), "/status")
        await s.until(lambda: driver.said_by_bot(driver.dm())[-1].only_for == "U7")
        assert max(driver.server.handed_over) < 3


async def test_signatures_the_challenge_and_large_bodies(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver, **HTTP) as s, aiohttp.ClientSession() as client:
        url, server = f"{s.serving.url}/webhooks/slack", driver.server
        body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1a"}).encode()
        headers = {"Content-Type": "application/json"}
        async with client.post(url, data=body, headers={**headers, **server.signed(body)}) as answer:
            assert (answer.status, json.loads(await answer.text())["challenge"]) == (200, "3eZbrw1a")
        old = server.signed(body, at=server.clock() - 400)
        wrong = {**server.signed(body), "X-Slack-Signature": "v0=00"}
        for bad in ({}, old, wrong, server.signed(b"other")):
            async with client.post(
                url, data=b"no json" if bad == wrong else body, headers={**headers, **bad}
            ) as answer:
                assert answer.status == 401
        async with client.post(url, data=b"x" * 64_000_000, headers=server.signed(b"")) as answer:
            assert answer.status == 413


ODD = [
    b"", b"[]", b"null", b'"x"', b"5", b"{}", b'{"type": 5}', b'{"type": "event_callback"}', b'{"type": "event_callback", "event": []}',
    b'{"type": "event_callback", "event": {"type": "message", "channel": 5}}', b'{"event": "x"}', b'{"type": "view_submission"}', b"payload=%5B%5D",
    b"payload=x", b"a=b", b"command=%2Fhermes", b'{"type": "url_verification"}', b"[" * 50_000, b"\xff\xfe", b'{"a": NaN}',
]  # fmt: skip


async def test_a_signed_body_that_means_nothing_is_skipped(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver, **HTTP) as s, aiohttp.ClientSession() as client:
        url = f"{s.serving.url}/webhooks/slack"
        for body in ODD:
            for kind in ("application/json", "application/x-www-form-urlencoded"):
                headers = {"Content-Type": kind, **driver.server.signed(body)}
                async with client.post(url, data=body, headers=headers) as answer:
                    assert answer.status == 200, (body[:60], kind, await answer.text())
        driver.server.calls_back(url)
        assert "practice model" in await s.answer_to("hello")


async def test_a_wrong_signature_is_401_and_one_line_a_minute_whatever_its_bytes(
    home: Path, driver: SlackDriver
) -> None:
    async with scene(home, driver, **HTTP) as s, aiohttp.ClientSession() as client:
        url = f"{s.serving.url}/webhooks/slack"
        stamp = driver.server.signed(b"")["X-Slack-Request-Timestamp"]
        with capture_logs() as lines:
            for odd in ("v0=é", "v0=\udcff", "", "v0=" + "0" * 5_000):
                for at in (stamp, "9" * 5_000, "١٢٣", "-1"):
                    headers = {"X-Slack-Signature": odd, "X-Slack-Request-Timestamp": at}
                    async with client.post(url, data=b"\xff", headers=headers) as answer:
                        assert answer.status == 401
        assert [line["event"] for line in lines if line["log_level"] != "info"] == ["webhook.refused"]


def test_without_its_secrets_it_does_not_start(home: Path, driver: SlackDriver) -> None:
    for missing in ({"app_token": ""}, {"mode": "http"}):
        write_config(home, driver, **{"api_base": "http://127.0.0.1:1/api/", **missing})
        with pytest.raises(BadConfig) as raised:
            load(home, {})
        (problem,) = raised.value.problems
        assert problem.path in {"platforms.slack.app_token", "platforms.slack.signing_secret"}


async def test_a_mention_comes_as_two_events_and_is_answered_once(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        group = driver.group()
        driver.says(group, driver.mention("hello"))
        driver.says(group, driver.mention("again"))
        await s.answers(group, 2)
        assert len(driver.said_by_bot(group)) == 2
        runs = await s.app.database.read(lambda conn: conn.execute(text("SELECT count(*) FROM runs")).scalar_one())
        assert runs == 2


async def test_who_has_waited_long_in_a_channel_is_mentioned_once(
    home: Path, driver: SlackDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LONG_SECONDS", -1)  # every answer is late
    gate = Gate()
    async with answering(home, driver, Reply(chunks=("Here ", "you are."), between=gate), "Again.", "And more.") as s:
        group = driver.group()
        root = driver.says(group, driver.mention("fetch it"))
        await s.until(lambda: driver.server.called("chat.startStream"))
        gate.open.set()
        await s.until(lambda: driver.server.called("chat.delete"))
        assert [said for said in driver.texts(group) if "Here you are." in said] == driver.texts(group)
        (posted,) = driver.server.called("chat.postMessage")
        assert posted["text"] == "<@U7> Here you are."
        assert posted["blocks"][0]["text"]["text"] == "<@U7>"
        monkeypatch.setattr(live, "LONG_SECONDS", 300)
        driver.says(group, driver.mention("and again"), thread=root)
        assert "<@U7>" not in (await s.answers(group, 2))[-1]


async def test_in_a_thread_that_it_is_in_no_mention_is_needed(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        group = driver.group()
        root = driver.says(group, driver.mention("hello"))
        await s.answers(group, 1)
        driver.says(group, "and what about tomorrow", thread=root)
        assert "tomorrow" in (await s.answers(group, 2))[-1]
        other = driver.says(group, "a thread of our own")
        driver.says(group, "without the bot", thread=other)
        driver.says(group, "<@U66> this is for you", thread=root)
        await s.answer_to("hello")
        assert len(driver.said_by_bot(group)) == 2


async def test_a_status_with_a_stop_button_that_is_cleared_at_the_end(home: Path, driver: SlackDriver) -> None:
    gate = Gate()
    async with answering(home, driver, Reply(chunks=("One ", "two."), between=gate), "After.") as s:
        group = driver.group()
        root = driver.says(group, driver.mention("work"))
        where = (group.id, root.id)
        await s.until(lambda: driver.server.statuses.get(where) == "processing")
        await s.until(lambda: driver.server.status_texts.get(where) == "is thinking…")
        await s.until(lambda: driver.server.called("chat.startStream"))
        driver.server.presses_stop(group, driver.owner, root.id)
        await s.until(lambda: driver.server.statuses[where] == "active")
        gate.open.set()
        await settled(s.app.database)


async def test_while_it_waits_the_session_is_suspended(home: Path, driver: SlackDriver) -> None:
    gate = asyncio.Event()
    asks = calls(call("ask_human", {"question": "Which colour?", "options": ["Red"]}))
    async with answering(home, driver, replace(asks, before=gate.wait), "Red it is.") as s:
        group = driver.group()
        root = driver.says(group, driver.mention("paint it"))
        where = (group.id, root.id)
        await s.until(lambda: driver.server.statuses.get(where) == "processing")
        gate.set()
        await s.until(lambda: driver.server.statuses[where] == "suspended")
        await s.until(lambda: any(said.buttons for said in driver.said_by_bot(group)))
        card = next(said for said in driver.said_by_bot(group) if said.buttons)
        driver.taps(group, card, "Red")
        await s.until(lambda: "Red it is." in driver.texts(group))


async def test_after_kill_9_nothing_is_left_of_its_status(home: Path, driver: SlackDriver) -> None:
    async with driver.server:
        group, server = driver.group(), driver.server
        never = asyncio.Event()
        server.fail("chat.postMessage", drop="before", wait=never)
        killed = await process(home, driver, free_port())
        root = driver.says(group, driver.mention("hello"))
        await server.until(lambda: not server.pending and server.handed_over, timeout=60)
        server.statuses[(group.id, root.id)] = "processing"
        await server.until(lambda: server.faults[0].times == 0, timeout=60)
        killed.kill()
        await killed.wait()
        never.set()
        async with daemon(home, driver) as s:
            await s.until(lambda: server.statuses[(group.id, root.id)] == "active")
            await settled(s.app.database)


async def test_an_answer_grows_in_a_native_stream(home: Path, driver: SlackDriver) -> None:
    gate = Gate()
    async with answering(home, driver, Reply(chunks=("First words ", "and the end."), between=gate)) as s:
        group = driver.group()
        driver.says(group, driver.mention("tell me"))
        await s.until(lambda: driver.server.called("chat.startStream"))
        gate.open.set()
        await s.until(lambda: driver.texts(group) == ["First words and the end."])
        await settled(s.app.database)
        (started,) = driver.server.called("chat.startStream")
        assert (started["recipient_user_id"], started["recipient_team_id"]) == ("U7", "T1")
        assert driver.server.streaming == set()
        assert driver.server.called("chat.stopStream")


async def test_where_there_are_no_streams_and_sessions_it_edits(home: Path, driver: SlackDriver) -> None:
    driver.server.does_not_know("chat.startStream", "agents.sessions.setStatus")
    gate = Gate()
    async with answering(home, driver, Reply(chunks=("First words ", "and the end."), between=gate)) as s:
        group = driver.group()
        root = driver.says(group, driver.mention("tell me"))
        await s.until(lambda: driver.texts(group) == ["First words"])
        assert driver.server.status_texts[(group.id, root.id)]
        gate.open.set()
        await s.until(lambda: driver.texts(group) == ["First words and the end."])
        await s.until(lambda: driver.server.status_texts[(group.id, root.id)] == "")


@pytest.mark.parametrize("first", ["message", "app_mention"])
async def test_group_dms_and_private_channels(home: Path, driver: SlackDriver, first: str) -> None:
    driver.server.mentions_come_first = first == "app_mention"
    async with scene(home, driver) as s:
        group = driver.server.group_dm()
        driver.says(group, driver.mention("hello"))
        await s.answers(group, 1)
        private = driver.server.channel("C9", "secret")
        driver.says(private, driver.mention("hello"))
        await s.answers(private, 1)
        keys = await s.app.database.read(lambda conn: set(conn.scalars(text("SELECT session_key FROM sessions"))))
        assert keys == {"agent:main:slack:group:G1", "agent:main:slack:channel:C9"}


async def test_the_home_page_goes_on_with_a_conversation_and_answers_a_question(
    home: Path, driver: SlackDriver
) -> None:
    async with scene(home, driver, suggested_prompts=["What did we decide?"]) as s:
        await s.answer_to("plan the party")
        driver.command(driver.dm(), "/new")
        await s.answers(driver.dm(), 2)
        driver.server.opens_home(driver.owner)
        await s.until(lambda: driver.server.pages.get("U7"))
        page = json.dumps(driver.server.pages["U7"])
        assert "plan the party" in page
        assert "One person may use me." in page
        resume = next(b["accessory"]["value"] for b in driver.server.pages["U7"]["blocks"] if "accessory" in b)
        driver.server.taps_home(driver.owner, resume)
        await s.until(lambda: "Back in" in driver.texts(driver.dm())[-1])
        await s.answer_to("ask me something")
        driver.server.opens_home(driver.owner)
        await s.until(lambda: "Waiting for you" in json.dumps(driver.server.pages["U7"]))
        suggested, waiting = [b for b in driver.server.pages["U7"]["blocks"] if b["type"] == "actions"]
        driver.server.taps_home(driver.owner, waiting["elements"][0]["value"])
        await s.until(lambda: "Red" in driver.texts(driver.dm())[-1])
        driver.server.taps_home(driver.owner, suggested["elements"][0]["value"])
        await s.until(lambda: "What did we decide?" in driver.texts(driver.dm())[-1])
        driver.server.opens_home(driver.stranger)
        await s.until(lambda: "do not know you" in json.dumps(driver.server.pages.get("U66", {})))
        assert "What did we decide?" not in json.dumps(driver.server.pages["U66"])


async def test_a_scope_that_is_missing_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_UNAUTHORIZED", (0.05,))
    driver = SlackDriver()
    driver.server.scopes = "chat:write,im:history"
    async with scene(home, driver) as s:
        platform = s.serving.chats.running["slack"]
        await s.until(lambda: platform.health.state is PlatformState.UNAUTHORIZED)
        assert "app_mentions:read" in platform.health.message
        assert "api.slack.com/apps" in platform.health.message


async def test_a_wrong_app_token_is_said_in_words_alone(
    home: Path, driver: SlackDriver, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(home, driver, app_token="xapp-wrong", allowed_users=[]) as s:
        platform = s.serving.chats.running["slack"]
        await s.until(lambda: platform.health.state is PlatformState.UNAUTHORIZED)
        assert "app-level token" in platform.health.message
        assert "xapp-wrong" not in platform.health.message
        (line,) = await s.serving.chats.lines()  # and no code, which could be sent to nobody
        assert platform.health.message in line
    assert [record for record in caplog.records if record.exc_info] == []


async def test_the_owners_code_is_shown_until_it_was_used(home: Path, driver: SlackDriver) -> None:
    async with driver.server:
        async with daemon(home, driver, allowed_users=[]) as s:
            _, offer = await s.serving.chats.lines()
            code = offer.partition("/hermes start ")[2].split()[0]
            assert "You are the owner now" in await s.answer_to(f"start {code}")
            assert len(await s.serving.chats.lines()) == 1
        async with daemon(home, driver, allowed_users=[]) as s:
            assert len(await s.serving.chats.lines()) == 1


async def test_an_app_that_was_removed_is_said_in_words(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        driver.server.event({"type": "tokens_revoked", "tokens": {"bot": ["UBOT"]}})
        platform = s.serving.chats.running["slack"]
        await s.until(lambda: platform.health.state is PlatformState.UNAUTHORIZED)


async def test_a_refreshed_and_a_cut_connection_lose_nothing(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        for reason in ("warning", ""):
            before = driver.server.connections
            await driver.server.drop(reason)
            assert await s.answer_to(f"after {reason or 'a cut'}")
            assert driver.server.connections > before


async def test_what_could_not_be_stored_is_not_acknowledged_and_comes_again(
    home: Path, driver: SlackDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sessions.errors import Busy

    async with scene(home, driver) as s:
        platform = s.serving.chats.running["slack"]
        deliver, failures = platform._intake.deliver, [1, 1]

        async def sometimes(inbound):
            if failures:
                failures.pop()
                raise Busy("the disk is full")
            await deliver(inbound)

        monkeypatch.setattr(platform._intake, "deliver", sometimes)
        assert await s.answer_to("hello")
        assert failures == []


async def test_nobody_is_pinged_by_what_the_model_writes(home: Path, driver: SlackDriver) -> None:
    async with answering(home, driver, "Hey <!channel> and <@U66>, `<!here>`") as s:
        await s.answer_to("hello")
        (sent,) = driver.server.called("chat.postMessage")
        assert "<!" not in json.dumps(sent)
        assert "<@" not in json.dumps(sent)


async def test_refused_blocks_go_as_plain_text(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        driver.server.fail("chat.postMessage", status=200, body={"ok": False, "error": "invalid_blocks"})
        assert "practice model" in await s.answer_to("hello")
        assert "blocks" not in driver.server.called("chat.postMessage")[-1]


ALERT = [{"title": "Disk full", "text": "web-1 has 2 % left", "fields": [{"title": "host", "value": "web-1"}]}]


async def test_what_an_app_wrote_above_a_thread_is_fetched_at_the_first_mention(
    home: Path, driver: SlackDriver
) -> None:
    async with answering(home, driver, "One.", "Two.") as s:
        group, app = driver.group(), FakePerson("UAPP", "Pager", is_bot=True)
        root = driver.server.says(group, app, "", attachments=ALERT, bot_profile={"name": "Pager"})
        driver.says(group, driver.mention("what now?"), thread=root)
        await s.answers(group, 1)
        asked = len(driver.server.called("conversations.replies"))
        driver.says(group, driver.mention("and then?"), thread=root)
        await s.answers(group, 2)
        first, second = (call["messages"][-1]["content"] for call in s.model.bodies)
        assert "in reply to Pager" in first
        assert "> web-1 has 2 % left" in first
        assert "in reply to" not in second
        assert len(driver.server.called("conversations.replies")) == asked


async def test_a_root_that_cannot_be_read_holds_nothing_up(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        group, app = driver.group(), FakePerson("UAPP", "Pager", is_bot=True)
        for fault in ({"poison": True}, {"status": 500}, {"drop": "before"}):
            driver.server.fail("conversations.replies", **fault)
            root = driver.server.says(group, app, "", attachments=ALERT)
            driver.says(group, driver.mention(f"what now, {fault}?"), thread=root)
        await s.answers(group, 3)


async def test_a_message_that_is_handed_over_by_its_menu_is_answered_to_that_person(
    home: Path, driver: SlackDriver
) -> None:
    async with answering(home, driver, "It says that the disk is full.") as s:
        app = FakePerson("UAPP", "Pager", is_bot=True)
        alert = driver.server.says(driver.group(), app, "", attachments=ALERT, bot_profile={"name": "Pager"})
        driver.server.hands_over(driver.owner, alert)
        assert await s.answers(driver.dm(), 1) == ["It says that the disk is full."]
        assert "(forwarded from Pager)\n> Disk full\n> web-1" in s.model.bodies[0]["messages"][-1]["content"]


async def test_nothing_that_is_said_stands_in_an_address(home: Path, driver: SlackDriver) -> None:
    async with scene(home, driver) as s:
        await s.answer_to("hello")
        driver.says(driver.group(), driver.mention("hello"))
        await s.answers(driver.group(), 1)
        assert driver.server.called("users.info")
        assert driver.server.in_addresses == []
