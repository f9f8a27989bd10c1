"""What people do, as it comes in. The real client library against a Bot API at the wire."""

import pytest
from structlog.testing import capture_logs

from adapters.base import (
    Undeliverable,
)
from sessions.messages import AttachmentKind, Button, InboundKind
from tests.unit.adapters.telegram.wire import address_of


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


async def test_coming_into_a_group_and_being_removed(server, gateway, ada, dm) -> None:
    group = server.group()
    gateway.start()
    server.adds(ada, group)
    server.kick(group, ada)
    server.kick(dm, ada)
    await gateway.received(3)
    assert [(inbound.kind, inbound.address) for inbound in gateway.inbox] == [
        (InboundKind.JOINED, address_of(group)),
        (InboundKind.LEFT, address_of(group)),
        (InboundKind.LEFT, address_of(dm)),
    ]


async def test_what_is_forwarded_comes_with_its_origin(server, gateway, ada, dm) -> None:
    gateway.start()
    origin = {"type": "hidden_user", "sender_user_name": "Shy", "date": 1}
    server.user_says(dm, ada, "/stop it", forward_origin=origin)
    inbound = await gateway.received()
    assert (inbound.text, inbound.forwarded_from) == ("/stop it", "Shy")
