"""The fake keeps Telegram's contract: these tests speak plain HTTP to it."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.fakes.telegram_rules import text_problems
from tests.fakes.telegram_server import TelegramServer
from tests.fakes.telegram_world import auto_entities


class Client:
    def __init__(self, server: TelegramServer, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session

    async def call(self, method: str, token: str | None = None, **params):
        form = {key: value if isinstance(value, (str, bytes)) else json.dumps(value) for key, value in params.items()}
        async with self.session.post(
            f"{self.server.url}/bot{token or self.server.token}/{method}", data=form
        ) as response:
            answer = await response.json()
            assert answer["ok"] == (response.status == 200)
            return (
                answer["result"]
                if answer["ok"]
                else (response.status, answer["description"], answer.get("parameters", {}))
            )


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
async def server(now: list[float]) -> AsyncIterator[TelegramServer]:
    async with TelegramServer(clock=lambda: now[0], longest_poll=60) as server:
        yield server


@pytest.fixture
async def bot(server: TelegramServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(server, session)


def owner_of(server: TelegramServer):
    user = server.user(7, "Ada", "ada")
    return user, server.dm(user)


async def test_an_offset_confirms_what_is_before_it(server: TelegramServer, bot: Client) -> None:
    owner, dm = owner_of(server)
    for text in "abc":
        server.user_says(dm, owner, text)
    first = await bot.call("getUpdates", limit=2)
    assert [item["message"]["text"] for item in first] == ["a", "b"]
    assert await bot.call("getUpdates", limit=2) == first
    (last,) = await bot.call("getUpdates", offset=first[-1]["update_id"] + 1)
    assert last["message"]["text"] == "c"
    assert await bot.call("getUpdates", offset=last["update_id"] + 1) == []


async def test_a_long_poll_answers_as_soon_as_there_is_something(server: TelegramServer, bot: Client) -> None:
    owner, dm = owner_of(server)
    poll = asyncio.create_task(bot.call("getUpdates", timeout=50))
    await server.until(lambda: server.called("getUpdates"))
    await asyncio.sleep(0.02)
    assert not poll.done()
    server.user_says(dm, owner, "hi")
    assert len(await asyncio.wait_for(poll, 20)) == 1


async def test_a_second_poller_ends_the_first(server: TelegramServer, bot: Client) -> None:
    first = asyncio.create_task(bot.call("getUpdates", timeout=50))
    await server.until(lambda: server.called("getUpdates"))
    second = asyncio.create_task(bot.call("getUpdates", timeout=50))
    status, description, _ = await asyncio.wait_for(first, 20)
    assert (status, description[:30]) == (409, "Conflict: terminated by other ")
    second.cancel()


async def test_webhook_and_polling_exclude_each_other(server: TelegramServer, bot: Client) -> None:
    await bot.call("setWebhook", url="https://example.org/hook", secret_token="s")
    assert (await bot.call("getUpdates"))[0] == 409
    owner, dm = owner_of(server)
    server.user_says(dm, owner, "hi")
    headers, body = server.webhook_request()
    assert headers["X-Telegram-Bot-Api-Secret-Token"] == "s"
    assert json.loads(body)["message"]["text"] == "hi"
    await bot.call("deleteWebhook")
    assert await bot.call("getUpdates") == []


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"chat_id": 7}, "text is missing"),
        ({"chat_id": 7, "text": "x", "colour": "red"}, "no parameter colour"),
        ({"chat_id": 7, "text": "x", "disable_notification": "maybe"}, "disable_notification is no Boolean"),
        ({"chat_id": 7, "text": "x", "message_thread_id": "one"}, "message_thread_id is no Integer"),
        ({"chat_id": 7, "text": "x", "entities": [{"type": "bold", "offset": 0}]}, "entities[0].length is missing"),
        ({"chat_id": 7, "text": "x", "entities": [{"type": "bold", "offset": 0, "length": 2}]}, "outside the text"),
        ({"chat_id": 7, "text": "x" * 4097}, "4097 units is over 4096"),
        ({"chat_id": 7, "text": "😀" * 2049}, "4098 units is over 4096"),
        ({"chat_id": 7, "text": "x", "parse_mode": "HTML"}, "send entities"),
        (
            {
                "chat_id": 7,
                "text": "x",
                "reply_markup": {"inline_keyboard": [[{"text": "b", "callback_data": "é" * 33}]]},
            },
            "callback_data of 'b' is not 1-64 bytes",
        ),
        ({"chat_id": 7, "text": "x", "reply_markup": {"inline_keyboard": [[{"label": "b"}]]}}, "reply_markup"),
    ],
)
async def test_what_breaks_the_schema_is_refused_and_recorded(
    server: TelegramServer, bot: Client, params, problem: str
) -> None:
    owner_of(server)
    status, description, _ = await bot.call("sendMessage", **params)
    assert status == 400
    assert problem in description
    assert problem in server.violations[0]
    assert server.chat(7) == []


@pytest.mark.parametrize(
    ("entities", "problem"),
    [
        ([("bold", 0, 3), ("italic", 2, 3)], "cross"),
        ([("code", 0, 3), ("bold", 1, 1)], "nothing goes with code"),
        ([("bold", 0, 3), ("pre", 1, 1)], "nothing goes with code"),
        ([("blockquote", 0, 5), ("blockquote", 1, 1)], "are nested"),
        ([("bold", 6, 1)], "tears a surrogate pair"),
        ([("text_link", 0, 1)], "no usable url"),
        ([("bold", 0, 1)] * 101, "over 100"),
        ([("bold", 0, 5), ("italic", 1, 2), ("blockquote", 0, 5)], None),
        ([("blockquote", 0, 5), ("pre", 0, 5)], None),
    ],
)
def test_rules_about_entities(entities, problem: str | None) -> None:
    found = text_problems(
        "hello😀", [{"type": kind, "offset": offset, "length": length} for kind, offset, length in entities], 4096
    )
    assert any(problem in one for one in found) if problem else found == []


async def test_what_users_see_follows_sends_edits_and_deletions(server: TelegramServer, bot: Client) -> None:
    owner, dm = owner_of(server)
    asked = server.user_says(dm, owner, "hi")
    sent = await bot.call(
        "sendMessage", chat_id=7, text="one", disable_notification=True, reply_parameters={"message_id": asked.id}
    )
    await bot.call("editMessageText", chat_id=7, message_id=sent["message_id"], text="two")
    await bot.call("setMessageReaction", chat_id=7, message_id=asked.id, reaction=[{"type": "emoji", "emoji": "👀"}])
    seen = server.chat(7)
    assert [message.text for message in seen] == ["hi", "two"]
    assert (seen[1].texts, seen[1].silent, seen[1].reply_to, seen[0].reaction) == (["one", "two"], True, asked.id, "👀")
    await bot.call("deleteMessage", chat_id=7, message_id=sent["message_id"])
    assert server.answers(7) == []


async def test_an_edit_without_a_change_is_refused(server: TelegramServer, bot: Client) -> None:
    owner_of(server)
    sent = await bot.call("sendMessage", chat_id=7, text="one")
    assert (
        "message is not modified"
        in (await bot.call("editMessageText", chat_id=7, message_id=sent["message_id"], text="one"))[1]
    )


async def test_places_that_do_not_exist(server: TelegramServer, bot: Client) -> None:
    server.group(-5, topics=(3,))
    assert "chat not found" in (await bot.call("sendMessage", chat_id=99, text="x"))[1]
    assert "message thread not found" in (await bot.call("sendMessage", chat_id=-5, text="x", message_thread_id=4))[1]
    assert (await bot.call("sendMessage", chat_id=-5, text="x", message_thread_id=3))["is_topic_message"]
    assert (
        "replied not found"
        in (await bot.call("sendMessage", chat_id=-5, text="x", reply_parameters={"message_id": 999}))[1]
    )
    assert (await bot.call("noSuchMethod"))[0] == 404
    assert (await bot.call("getMe", token="nonsense"))[0] == 404
    assert (await bot.call("getMe", token="1:other"))[0] == 401


async def test_floods_are_answered_with_429(server: TelegramServer, bot: Client, now: list[float]) -> None:
    owner_of(server)
    answers = [await bot.call("sendMessage", chat_id=7, text="x") for _ in range(5)]
    assert [isinstance(answer, dict) for answer in answers] == [True] * 4 + [False]
    assert answers[-1][2] == {"retry_after": 1}
    assert server.floods == ["sendMessage to 7"]
    now[0] += 10
    assert "message_id" in await bot.call("sendMessage", chat_id=7, text="x")


async def test_a_group_takes_twenty_a_minute(server: TelegramServer, bot: Client, now: list[float]) -> None:
    server.group(-5)
    for _ in range(20):
        now[0] += 1.5
        assert "message_id" in await bot.call("sendMessage", chat_id=-5, text="x")
    now[0] += 1.5
    status, _, parameters = await bot.call("sendMessage", chat_id=-5, text="x")
    assert status == 429
    assert 25 <= parameters["retry_after"] <= 60


async def test_all_chats_together_take_thirty_a_second(server: TelegramServer, bot: Client) -> None:
    for number in range(31):
        server.dm(server.user(100 + number, "x"))
    answers = [await bot.call("sendMessage", chat_id=100 + number, text="x") for number in range(31)]
    assert answers[-1][0] == 429


async def test_drafts_are_for_private_chats(server: TelegramServer, bot: Client) -> None:
    owner_of(server)
    server.group(-5)
    assert await bot.call("sendMessageDraft", chat_id=7, draft_id=1, text="")
    assert server.chats[7].drafts == [""]
    assert (await bot.call("sendMessageDraft", chat_id=-5, draft_id=1, text="x"))[0] == 400


async def test_files_go_both_ways(server: TelegramServer, bot: Client) -> None:
    owner, dm = owner_of(server)
    asked = server.user_says(dm, owner, "see", document=("a.txt", b"abc", "text/plain"))
    assert asked.body["caption"] == "see"
    file = await bot.call("getFile", file_id=asked.body["document"]["file_id"])
    async with bot.session.get(f"{server.url}/file/bot{server.token}/{file['file_path']}") as response:
        assert await response.read() == b"abc"
    form = aiohttp.FormData({"chat_id": "7", "caption": "here"})
    form.add_field("document", b"xyz", filename="b.txt")
    async with bot.session.post(f"{server.url}/bot{server.token}/sendDocument", data=form) as response:
        assert (await response.json())["result"]["document"]["file_name"] == "b.txt"
    assert (server.chat(7)[-1].file, server.chat(7)[-1].text) == (b"xyz", "here")
    assert server.violations == []


async def test_taps_must_be_acknowledged_under_their_id(server: TelegramServer, bot: Client) -> None:
    owner, _ = owner_of(server)
    await bot.call(
        "sendMessage", chat_id=7, text="?", reply_markup={"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
    )
    tap = server.taps(owner, server.chat(7)[-1], "Yes")
    (item,) = await bot.call("getUpdates")
    assert (item["callback_query"]["id"], item["callback_query"]["data"]) == (tap, "y")
    assert await bot.call("answerCallbackQuery", callback_query_id=tap, text="ok")
    assert server.taps_open[tap] == "ok"
    assert "query is too old" in (await bot.call("answerCallbackQuery", callback_query_id="1"))[1]


async def test_removal_and_migration(server: TelegramServer, bot: Client) -> None:
    _, dm = owner_of(server)
    group = server.group(-5, kind="group")
    server.kick(dm)
    assert (await bot.call("sendMessage", chat_id=7, text="x"))[:2] == (403, "Forbidden: bot was blocked by the user")
    server.migrate(group, -1005)
    assert (await bot.call("sendMessage", chat_id=-5, text="x"))[2] == {"migrate_to_chat_id": -1005}
    removed, old, new = await bot.call("getUpdates")
    assert (removed["my_chat_member"]["chat"]["id"], removed["my_chat_member"]["from"]["id"]) == (7, 7)
    assert old["message"]["migrate_to_chat_id"] == -1005
    assert (new["message"]["chat"]["id"], new["message"]["migrate_from_chat_id"]) == (-1005, -5)


async def test_a_bot_hears_of_the_kinds_that_it_asks_for(server: TelegramServer, bot: Client) -> None:
    owner, dm = owner_of(server)
    group = server.group()
    server.user_says(dm, owner, "hi")
    server.adds(owner, group)
    assert ["message" in update for update in await bot.call("getUpdates", allowed_updates=["message"])] == [True]
    assert len(await bot.call("getUpdates")) == 1
    server.kick(group, owner)
    (left,) = await bot.call("getUpdates", offset=10_003)
    change = left["my_chat_member"]
    assert (change["old_chat_member"]["status"], change["new_chat_member"]["status"]) == ("member", "kicked")


async def test_faults_come_as_often_as_asked_for(server: TelegramServer, bot: Client) -> None:
    owner_of(server)
    server.fail("sendMessage", status=502, description="Bad Gateway")
    server.rate_limit("sendMessage", 7)
    assert (await bot.call("sendMessage", chat_id=7, text="x"))[0] == 502
    assert (await bot.call("sendMessage", chat_id=7, text="x"))[2] == {"retry_after": 7}
    assert "message_id" in await bot.call("sendMessage", chat_id=7, text="x")
    server.revoke()
    assert (await bot.call("getMe"))[0] == 401


@pytest.mark.parametrize(("drop", "arrived"), [("before", []), ("after", ["x"])])
async def test_connections_drop_before_or_after_the_effect(
    server: TelegramServer, bot: Client, drop: str, arrived: list[str]
) -> None:
    owner_of(server)
    server.fail("sendMessage", drop=drop)
    with pytest.raises(aiohttp.ClientError):
        await bot.call("sendMessage", chat_id=7, text="x")
    assert server.answers(7) == arrived


def test_marks_that_clients_set_by_themselves() -> None:
    assert auto_entities("😀 @ada /new@hermes_bot a@b") == [
        {"type": "mention", "offset": 3, "length": 4},
        {"type": "bot_command", "offset": 8, "length": 15},
    ]
