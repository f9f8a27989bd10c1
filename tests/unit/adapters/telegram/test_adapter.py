"""The adapter with the real client library against a Bot API at the wire."""

import asyncio
import logging
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from adapters.base import (
    AnswersTaps,
    ChecksSetup,
    DeliveryError,
    EditsMessages,
    FetchesMedia,
    OffersCommands,
    Reacts,
    ReceivesWebhooks,
    ReportsLiveness,
    ShowsDrafts,
    ShowsTyping,
    TryLater,
    Unauthorized,
    Undeliverable,
)
from adapters.telegram.adapter import Telegram
from adapters.telegram.config import TelegramConfig
from adapters.telegram.polling import PATIENCE
from sessions.keys import Sender
from sessions.messages import Attachment, AttachmentKind, Button, InboundKind, Outbound
from tests.fakes.telegram_server import TelegramServer
from tests.unit.adapters.telegram.wire import Gateway, address_of


@pytest.fixture
def ada(server: TelegramServer):
    return server.user(7, "Ada", "ada")


@pytest.fixture
def dm(server: TelegramServer, ada):
    return server.dm(ada)


def test_it_has_every_capability_of_the_contract(gateway: Gateway) -> None:
    capabilities = (
        ShowsTyping,
        ShowsDrafts,
        Reacts,
        EditsMessages,
        AnswersTaps,
        FetchesMedia,
        ReceivesWebhooks,
        OffersCommands,
        ChecksSetup,
        ReportsLiveness,
    )
    assert all(isinstance(gateway.adapter, capability) for capability in capabilities)


async def test_a_dm_goes_in_and_the_answer_out(server, gateway, ada, dm) -> None:
    gateway.start()
    asked = server.user_says(dm, ada, "hello")
    inbound = await gateway.received()
    assert (inbound.text, inbound.sender.id, inbound.address) == ("hello", "7", address_of(dm))
    (receipt,) = await gateway.send(inbound.address, "**hi** Ada", reply_to=inbound.message_id)
    answer = server.chat(7)[-1]
    assert (answer.text, answer.reply_to, str(answer.id)) == ("hi Ada", asked.id, receipt.message_id)
    assert answer.body["entities"] == [{"type": "bold", "offset": 0, "length": 2}]


async def test_a_mention_in_a_topic_is_answered_in_that_topic(server, gateway, ada) -> None:
    group = server.group(topics=(11, 12))
    gateway.start()
    server.user_says(group, ada, "@hermes_bot summarise", topic=12)
    inbound = await gateway.received()
    assert (inbound.text, inbound.mentioned, inbound.address) == ("summarise", True, address_of(group, 12))
    await gateway.send(inbound.address, "done", reply_to=inbound.message_id)
    assert [(m.text, m.topic) for m in server.chat(-1001)] == [("@hermes_bot summarise", 12), ("done", 12)]


async def test_a_reply_to_the_bot_in_a_group_brings_its_quote(server, gateway, ada) -> None:
    group = server.group()
    await gateway.send(address_of(group), "which one?")
    gateway.start()
    server.user_says(group, ada, "the second", reply_to=server.chat(-1001)[0])
    inbound = await gateway.received()
    assert inbound.mentioned
    assert inbound.quote is not None
    assert (inbound.quote.text, inbound.quote.from_us) == ("which one?", True)
    assert inbound.address.thread_id is None


async def test_files_are_fetched(server, gateway, ada, dm) -> None:
    gateway.start()
    server.user_says(dm, ada, "look", photo=b"jpeg bytes")
    server.user_says(dm, ada, document=("a.pdf", b"pdf bytes", "application/pdf"))
    server.user_says(dm, ada, voice=b"ogg bytes")
    await gateway.received(3)
    files = [inbound.attachments[0] for inbound in gateway.inbox]
    assert [file.kind for file in files] == [AttachmentKind.IMAGE, AttachmentKind.FILE, AttachmentKind.VOICE]
    assert [await gateway.adapter.fetch(file, 100) for file in files] == [b"jpeg bytes", b"pdf bytes", b"ogg bytes"]
    with pytest.raises(Undeliverable, match=r"a\.pdf is larger than 5 bytes"):
        await gateway.adapter.fetch(files[1], 5)
    server.files.clear()
    with pytest.raises(Undeliverable):
        await gateway.adapter.fetch(files[1], 100)


async def test_files_go_out(server, gateway, dm, tmp_path) -> None:
    path = tmp_path / "report.txt"
    path.write_text("content")
    kinds = {AttachmentKind.FILE: "text/plain", AttachmentKind.IMAGE: "image/png", AttachmentKind.VOICE: "audio/ogg"}
    for kind, mime in kinds.items():
        file = Attachment(kind=kind, name="report.txt", mime=mime, path=str(path))
        await gateway.send(address_of(dm), "*here*", attachments=(file,), buttons=(Button(label="Ok", data="ok"),))
    assert [message.file for message in server.chat(7)] == [b"content"] * 3
    assert [message.text for message in server.chat(7)] == ["here"] * 3
    assert [message.buttons for message in server.chat(7)] == [["Ok"]] * 3
    assert ["document" in m.body or "photo" in m.body or "voice" in m.body for m in server.chat(7)] == [True] * 3
    assert server.chat(7)[0].body["document"]["file_name"] == "report.txt"


async def test_a_file_that_is_gone_is_undeliverable(gateway, dm, tmp_path) -> None:
    file = Attachment(kind=AttachmentKind.FILE, name="a.txt", path=str(tmp_path / "a.txt"))
    with pytest.raises(Undeliverable, match=r"The file a\.txt cannot be read"):
        await gateway.send(address_of(dm), attachments=(file,))


async def test_a_long_answer_comes_in_pieces_with_one_notification(server, gateway, dm) -> None:
    text = "\n\n".join(
        f"## Part {n}\n\n" + "Some **words** and `code`. " + "Words are here. " * 120 + f"\n\n```py\nprint({n})\n```"
        for n in range(6)
    )
    await gateway.send(address_of(dm), text)
    seen = server.chat(7)
    assert 2 < len(seen) <= 5
    assert [message.silent for message in seen] == [False] + [True] * (len(seen) - 1)
    assert sum(entity["type"] == "pre" for message in seen for entity in message.body["entities"]) == 6


async def test_a_very_long_answer_comes_as_a_file(server, gateway, dm) -> None:
    text = "word " * 6000
    await gateway.send(address_of(dm), text)
    first, file = server.chat(7)
    assert first.text.startswith("word word")
    assert (file.file, file.body["document"]["file_name"]) == (text.encode(), "answer.md")


async def test_refused_formatting_is_sent_as_plain_text(server, gateway, dm) -> None:
    server.fail("sendMessage", status=400, description="Bad Request: can't parse entities: unsupported start tag")
    await gateway.send(address_of(dm), "**hi**")
    assert server.answers(7) == ["hi"]
    assert "entities" not in server.chat(7)[0].body


async def test_drafts_in_a_dm_vanish_by_themselves(server, gateway, dm) -> None:
    address = address_of(dm)
    draft_id = await gateway.adapter.draft(address, None, "")
    assert await gateway.adapter.draft(address, draft_id, "grow") == draft_id
    await gateway.adapter.draft(address, draft_id, "growing **fast**")
    assert dm.drafts == ["", "grow", "growing fast"]
    assert {call["draft_id"] for call in server.called("sendMessageDraft")} == {int(draft_id)}
    (piece,) = gateway.adapter.render(_outbound(address, "grown"))
    assert await gateway.adapter.finish_draft(address, draft_id, piece) is None
    await gateway.adapter.erase_draft(address, draft_id)
    assert server.chat(7) == []


async def test_a_draft_in_a_group_is_a_silent_message_that_becomes_the_answer(server, gateway, ada) -> None:
    group = server.group()
    asked = server.user_says(group, ada, "hey")
    address = address_of(group)
    draft_id = await gateway.adapter.draft(address, None, "gro", reply_to=str(asked.id))
    await gateway.adapter.draft(address, draft_id, "growing")
    await gateway.adapter.draft(address, draft_id, "growing")
    (piece,) = gateway.adapter.render(_outbound(address, "**grown**", buttons=(Button(label="Ok", data="ok"),)))
    receipt = await gateway.adapter.finish_draft(address, draft_id, piece)
    answer = server.chat(-1001)[-1]
    assert receipt is not None
    assert receipt.message_id == draft_id == str(answer.id)
    assert (answer.texts, answer.silent, answer.reply_to, answer.buttons) == (
        ["gro", "growing", "grown"],
        True,
        asked.id,
        ["Ok"],
    )


async def test_an_empty_draft_outside_a_dm_is_typing(server, gateway) -> None:
    group = server.group()
    draft_id = await gateway.adapter.draft(address_of(group), None, "")
    assert (server.chat(-1001), group.actions) == ([], ["typing"])
    await gateway.adapter.erase_draft(address_of(group), draft_id)
    await gateway.adapter.draft(address_of(group), draft_id, "text")
    assert server.answers(-1001) == ["text"]


async def test_a_preview_that_cannot_become_the_answer_makes_room(server, gateway) -> None:
    group = server.group()
    address = address_of(group)
    draft_id = await gateway.adapter.draft(address, None, "text")
    assert (
        await gateway.adapter.finish_draft(
            address, draft_id, {"method": "sendDocument", "filename": "a", "content": ""}
        )
        is None
    )
    assert server.chat(-1001) == []
    await gateway.adapter.erase_draft(address, draft_id)
    (piece,) = gateway.adapter.render(_outbound(address, "grown"))
    assert await gateway.adapter.finish_draft(address, draft_id, piece) is None


async def test_edits_in_one_chat_keep_the_pace_that_telegram_allows(gateway) -> None:
    pace = gateway.adapter.pace
    assert (pace.per_second, pace.dm, pace.group, pace.edit, pace.group_per_minute) == (30, 1, 1, 1.5, 20)
    assert gateway.adapter.typing_every < 5
    assert gateway.adapter.draft_renew_every < 30


async def test_the_pace_is_one_that_raises_no_flood() -> None:
    now = [0.0]
    async with TelegramServer(clock=lambda: now[0]) as server:
        gateway = Gateway(server)
        group = server.group()
        draft_id = await gateway.adapter.draft(address_of(group), None, "text")
        for number in range(12):
            now[0] += gateway.adapter.pace.edit
            await gateway.adapter.draft(address_of(group), draft_id, f"text {number}")
        assert server.floods == []
        await gateway.adapter.close()


async def test_typing_reactions_and_edits(server, gateway, ada, dm) -> None:
    asked = server.user_says(dm, ada, "x")
    address = address_of(dm)
    await gateway.adapter.typing(address)
    await gateway.adapter.react(address, str(asked.id), "👀")
    assert (dm.actions, asked.reaction) == (["typing"], "👀")
    await gateway.adapter.react(address, str(asked.id), None)
    assert asked.reaction is None
    (receipt,) = await gateway.send(address, "May I?", buttons=(Button(label="Yes", data="y"),))
    (piece,) = gateway.adapter.render(_outbound(address, "**Approved**"))
    await gateway.adapter.edit(address, receipt.message_id, piece)
    await gateway.adapter.edit(address, receipt.message_id, piece)
    assert (server.chat(7)[-1].text, server.chat(7)[-1].buttons) == ("Approved", [])


async def test_a_tap_comes_in_and_is_acknowledged(server, gateway, ada, dm) -> None:
    await gateway.send(
        address_of(dm), "May I?", buttons=(Button(label="Yes", data="approve:1"), Button(label="No", data="deny:1"))
    )
    gateway.start()
    tap = server.taps(ada, server.chat(7)[-1], "Yes")
    inbound = await gateway.received()
    assert (inbound.kind, inbound.text, inbound.sender.id) == (InboundKind.TAP, "approve:1", "7")
    await gateway.adapter.answer_tap(inbound.tap_id, "Noted.")
    assert server.taps_open[tap] == "Noted."
    with pytest.raises(Undeliverable):
        await gateway.adapter.answer_tap("999")


async def test_an_edited_message_comes_in_as_one(server, gateway, ada, dm) -> None:
    gateway.start()
    said = server.user_says(dm, ada, "helo")
    server.edits(dm, said, "hello")
    inbound = await gateway.received(2)
    assert (inbound.kind, inbound.text, inbound.message_id) == (InboundKind.EDIT, "hello", str(said.id))


async def test_own_messages_and_other_bots_are_not_heard(server, gateway, ada) -> None:
    group = server.group()
    gateway.start()
    server.user_says(group, server.bot, "@hermes_bot hi")
    server.user_says(group, server.user(99, "Other", "other_bot", is_bot=True), "@hermes_bot hi")
    server.user_says(group, ada, "@hermes_bot hi")
    assert (await gateway.received()).sender.id == "7"
    assert len(gateway.inbox) == 1


async def test_doubled_reordered_and_poisoned_updates(server, gateway, ada, dm) -> None:
    server.user_says(dm, ada, "one")
    server.double()
    poison = server.poison()
    server.user_says(dm, ada, "two")
    server.reorder()
    with capture_logs() as logs:
        gateway.start()
        await gateway.received(3)
        await gateway.until(lambda: not server.pending)
    assert [inbound.text for inbound in gateway.inbox] == ["two", "one", "one"]
    assert gateway.inbox[1].dedup_key == gateway.inbox[2].dedup_key == f"tg:{server.bot.id}:{poison['update_id'] - 1}"
    assert [line["update_id"] for line in logs if line["event"] == "telegram.update_skipped"] == [poison["update_id"]]


async def test_nothing_is_confirmed_before_it_is_stored(server, gateway, ada, dm) -> None:
    gateway.refuse = OSError("disk full")
    server.user_says(dm, ada, "precious")
    with pytest.raises(OSError, match="disk full"):
        await gateway.start()
    assert len(server.pending) == 1
    gateway.refuse = None
    gateway.start()
    assert (await gateway.received()).text == "precious"
    await gateway.until(lambda: not server.pending)


async def test_polling_removes_a_webhook_and_keeps_what_is_pending(server, gateway, ada, dm) -> None:
    server.webhook = {"url": "https://example.org/hook"}
    server.user_says(dm, ada, "before the start")
    gateway.start()
    assert (await gateway.received()).text == "before the start"


@pytest.mark.parametrize(
    "fault", [{"drop": "before"}, {"drop": "after"}, {"status": 502, "description": "Bad Gateway"}]
)
async def test_polling_goes_on_after_an_outage(server, gateway, ada, dm, fault) -> None:
    server.fail("getUpdates", times=3, **fault)
    server.user_says(dm, ada, "still there?")
    gateway.start()
    assert (await gateway.received()).text == "still there?"
    assert gateway.pauses == [1, 2, 4]


async def test_a_flooded_poll_waits_as_long_as_it_is_told(server, gateway, ada, dm) -> None:
    server.rate_limit("getUpdates", 17)
    server.user_says(dm, ada, "x")
    gateway.start()
    await gateway.received()
    assert gateway.pauses == [17]


async def test_a_second_poller_is_named_once_patience_ends(server, gateway) -> None:
    server.fail("getUpdates", times=99, status=409, description="Conflict: terminated by other getUpdates request")
    with pytest.raises(TryLater, match="Another program receives this bot's messages"):
        await gateway.start()
    assert len(gateway.pauses) == PATIENCE
    assert gateway.adapter.last_success() is None


async def test_one_conflict_is_overcome(server, gateway, ada, dm) -> None:
    server.fail("getUpdates", status=409, description="Conflict: terminated by other getUpdates request")
    server.user_says(dm, ada, "x")
    gateway.start()
    await gateway.received()
    first, second = server.polled_from[:2]
    assert first != second, "on a fresh connection"


@pytest.mark.parametrize("token", ["123456:wrong-token", "no token"])
async def test_a_wrong_token_stops_the_start(server, token) -> None:
    gateway = Gateway(server)
    adapter = gateway.new_adapter(token=token)
    with pytest.raises(Unauthorized) as error:
        await adapter.run(gateway.deliver)
    with pytest.raises(Unauthorized):
        await adapter.check()
    assert token not in str(error.value)
    await adapter.close()


async def test_a_token_that_is_revoked_while_running_stops_it(server, gateway, dm) -> None:
    task = gateway.start()
    await gateway.until(gateway.adapter.last_success)
    server.revoke()
    with pytest.raises(Unauthorized, match="@BotFather"):
        await gateway.send(address_of(dm), "x")
    with pytest.raises(Unauthorized):
        await task


async def test_liveness_is_the_time_of_the_last_answer(server, gateway, ada, dm) -> None:
    gateway.start()
    await gateway.until(gateway.adapter.last_success)
    gateway.now = 2000.0
    server.user_says(dm, ada, "x")
    await gateway.received()
    assert gateway.adapter.last_success() == 2000.0


@pytest.mark.parametrize(
    ("fault", "error", "after", "ambiguous"),
    [
        ({"status": 429, "description": "Too Many Requests", "retry_after": 9}, TryLater, 9, False),
        ({"status": 500, "description": "Internal Server Error"}, TryLater, None, False),
        ({"status": 502, "raw": "<html>Bad Gateway</html>"}, TryLater, None, False),
        ({"status": 200, "raw": "<html>Welcome</html>"}, TryLater, None, True),
        ({"status": 200, "raw": '{"ok": true, "result": {"surprise": 1}}'}, TryLater, None, True),
        ({"status": 413, "description": "Request Entity Too Large"}, Undeliverable, None, None),
        ({"drop": "before"}, TryLater, None, True),
        ({"drop": "after"}, TryLater, None, True),
        ({"status": 403, "description": "Forbidden: bot was blocked by the user"}, Undeliverable, None, None),
        ({"status": 400, "description": "Bad Request: chat not found"}, Undeliverable, None, None),
        ({"status": 404, "description": "Not Found"}, Undeliverable, None, None),
        ({"status": 401, "description": "Unauthorized"}, Unauthorized, None, None),
    ],
)
async def test_what_send_raises(server, gateway, dm, fault, error, after, ambiguous) -> None:
    server.fail("sendMessage", **fault)
    with pytest.raises(error) as raised:
        await gateway.send(address_of(dm), "x")
    if error is TryLater:
        assert (raised.value.after, raised.value.ambiguous) == (after, ambiguous)
    assert len(server.faults) == 1
    assert server.faults[0].times == 0
    assert server.answers(7) == (["x"] if fault.get("drop") == "after" else [])


async def test_a_server_that_cannot_be_reached_has_not_seen_the_message(gateway, dm) -> None:
    adapter = gateway.new_adapter(api_base="http://127.0.0.1:1")
    with pytest.raises(TryLater, match="cannot be reached") as raised:
        await adapter.send(address_of(dm), {"method": "sendMessage", "text": "x"})
    assert not raised.value.ambiguous
    await adapter.close()


async def test_a_group_that_moved_is_found_again(server, gateway, ada) -> None:
    group = server.group(-55, kind="group")
    gateway.start()
    server.migrate(group, -10055)
    moved = await gateway.received(2)
    assert (moved.kind, moved.address.chat_id, moved.text) == (InboundKind.MOVED, "-55", "-10055")
    with pytest.raises(TryLater) as raised:
        await gateway.send(address_of(group), "x")
    assert (raised.value.after, raised.value.ambiguous) == (0, False)
    await gateway.send(address_of(group), "x")
    assert server.answers(-10055) == ["x"]


async def test_kicked_from_a_group(server, gateway) -> None:
    group = server.group()
    server.kick(group)
    for call in (gateway.send(address_of(group), "x"), gateway.adapter.typing(address_of(group))):
        with pytest.raises(Undeliverable, match="kicked"):
            await call


async def test_a_topic_that_was_deleted_is_not_answered_elsewhere(server, gateway) -> None:
    group = server.group(topics=(11,))
    with pytest.raises(Undeliverable, match="thread not found"):
        await gateway.send(address_of(group, 12), "x")
    assert server.chat(-1001) == []


async def test_commands_are_offered_to_allowed_users_only(server, gateway, dm) -> None:
    server.commands["default"] = [{"command": "old", "description": "old"}]
    await gateway.adapter.offer_commands([("new", "begin anew")], [Sender(id="7"), Sender(id="8")])
    assert server.commands == {"chat:7": [{"command": "new", "description": "begin anew"}]}
    await gateway.adapter.offer_commands([("new", "begin anew")], [Sender(id="*")])
    assert list(server.commands) == ["all_private_chats"]


async def test_check_says_who_we_are(gateway) -> None:
    assert await gateway.adapter.check() == "@hermes_bot (Hermes)"


async def test_webhook_mode(server, gateway, ada, dm) -> None:
    held = asyncio.Event()

    async def hold(_: float) -> None:
        await held.wait()

    config = TelegramConfig(
        token=server.token,
        api_base=server.url,
        mode="webhook",
        webhook_secret="geheim",
        webhook_url="https://example.org/webhooks/telegram",
    )
    adapter = Telegram(config, sleep=hold)
    task = asyncio.create_task(adapter.run(gateway.deliver))
    await gateway.until(adapter.last_success)
    assert server.webhook["url"] == "https://example.org/webhooks/telegram"
    server.user_says(dm, ada, "hello")
    headers, body = server.webhook_request()
    assert await adapter.receive(headers, body, gateway.deliver)
    assert gateway.inbox[0].text == "hello"
    assert await adapter.receive(headers, b"no json", gateway.deliver)
    for wrong in ({}, {"X-Telegram-Bot-Api-Secret-Token": "gehein"}, {"X-Telegram-Bot-Api-Secret-Token": "é"}):
        assert not await adapter.receive(wrong, body, gateway.deliver)
    assert len(gateway.inbox) == 1
    server.webhook = {"url": ""}
    held.set()
    await gateway.until(lambda: server.webhook["url"])
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await adapter.close()


async def test_a_webhook_is_not_acknowledged_when_it_could_not_be_stored(server, gateway, ada, dm) -> None:
    adapter = gateway.new_adapter(mode="webhook", webhook_secret="s", webhook_url="https://example.org/hook")
    server.user_says(dm, ada, "hello")
    _, body = server.webhook_request()
    gateway.refuse = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        await adapter.receive({"x-telegram-bot-api-secret-token": "s"}, body, gateway.deliver)
    await adapter.close()


def test_webhook_mode_needs_its_secret() -> None:
    with pytest.raises(ValueError, match="webhook_secret"):
        TelegramConfig(token="1:x", mode="webhook", webhook_url="https://example.org")


async def test_the_token_is_in_no_log_and_no_error(server, gateway, ada, dm, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    secret = server.token.partition(":")[2]
    errors: list[str] = []
    faults = (
        {"drop": "before"},
        {"status": 500, "description": f"down at /bot{server.token}/x"},
        {"status": 400, "description": f"Bad Request: /bot{server.token}/x"},
    )
    with capture_logs() as logs:
        for fault in faults:
            server.fail("sendMessage", **fault)
            server.fail("getUpdates", **fault)
            try:
                await gateway.send(address_of(dm), "x")
            except DeliveryError as error:
                errors += [str(error), repr(error), repr(error.args)]
        task = gateway.start()
        await asyncio.wait([task], timeout=1)
    assert len(errors) == 9
    assert secret not in "".join(errors) + repr(logs) + caplog.text + repr(gateway.adapter.__dict__["_config"])


async def test_it_can_be_cancelled_and_started_again(server, gateway, ada, dm) -> None:
    task = gateway.start()
    await gateway.until(gateway.adapter.last_success)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.user_says(dm, ada, "while it was away")
    gateway.start()
    assert (await gateway.received()).text == "while it was away"


def _outbound(address, text, **fields):
    return Outbound(address=address, text=text, **fields)
