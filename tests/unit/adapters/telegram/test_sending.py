"""What goes out, and what becomes of it. The real client library against a Bot API at the wire."""

import logging

import pytest
from structlog.testing import capture_logs

from adapters.base import (
    DeliveryError,
    TryLater,
    Unauthorized,
    Undeliverable,
)
from sessions.messages import Attachment, AttachmentKind, Button, InboundKind
from tests.unit.adapters.telegram.wire import address_of


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


@pytest.mark.parametrize(
    ("fault", "error", "after", "ambiguous"),
    [
        ({"status": 429, "description": "Too Many Requests", "retry_after": 9}, TryLater, 9, False),
        ({"status": 500, "description": "Internal Server Error"}, TryLater, None, False),
        ({"status": 502, "raw": "<html>Bad Gateway</html>"}, TryLater, None, False),
        ({"status": 200, "raw": "<html>Welcome</html>"}, TryLater, None, True),
        ({"status": 200, "raw": '{"surprise": 1}'}, TryLater, None, True),
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


async def test_what_telegram_has_taken_was_sent_whatever_it_answers(server, gateway, dm) -> None:
    server.fail("sendMessage", poison=True)
    (receipt,) = await gateway.send(address_of(dm), "x", buttons=(Button(label="Ok", data="ok"),))
    assert [str(message.id) for message in server.chat(7)] == [receipt.message_id]
    server.fail("editMessageText", poison=True)
    await gateway.adapter.edit(address_of(dm), receipt.message_id, {"text": "y"})
    assert server.answers(7) == ["y"]
    server.fail("sendMessage", status=200, raw='{"ok": true, "result": {"surprise": 1}}')
    (receipt,) = await gateway.send(address_of(dm), "z")
    assert receipt.message_id == ""
    server.fail("sendMessage", status=200, raw='{"ok": true, "result": {"surprise": 1}}')
    with pytest.raises(TryLater) as raised:  # a preview that cannot be named can be neither changed nor erased
        await gateway.adapter.draft(address_of(server.group()), None, "z")
    assert raised.value.ambiguous


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
        await gateway.until(lambda: task.done() or gateway.adapter.last_success())
    assert not any(fault.times for fault in server.faults)
    assert len(errors) == 9
    assert secret not in "".join(errors) + repr(logs) + caplog.text + repr(gateway.adapter.__dict__["_config"])


async def test_a_person_who_writes_to_a_channel_is_answered_alone(server, gateway, ada) -> None:
    chat = server.group(-1010, "News")
    chat.direct_messages = True
    gateway.start()
    server.user_says(chat, ada, "@hermes_bot hello", direct_messages_topic={"topic_id": 77, "user": ada.wire()})
    inbound = await gateway.received()
    await gateway.send(inbound.address, "hi", reply_to=inbound.message_id)
    await gateway.adapter.typing(inbound.address)
    assert [call["direct_messages_topic_id"] for name, call in server.calls if name == "sendMessage"] == [77]
    assert "message_thread_id" not in dict(server.calls)["sendMessage"] | dict(server.calls)["sendChatAction"]
