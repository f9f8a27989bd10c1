"""Drafts, typing, reactions and edits. The real client library against a Bot API at the wire."""

import pytest

from adapters.base import TryLater
from sessions.messages import Button
from tests.fakes.telegram_server import TelegramServer
from tests.unit.adapters.telegram.wire import TelegramGateway, address_of, outbound


async def test_drafts_in_a_dm_vanish_by_themselves(server, gateway, dm) -> None:
    address = address_of(dm)
    for text in ("", "grow", "growing **fast**"):
        assert await gateway.adapter.draft(address, None, text) is None
    assert dm.drafts == ["", "grow", "growing fast"]
    assert len({call["draft_id"] for call in server.called("sendMessageDraft")}) == 1
    assert server.chat(7) == []


async def test_a_draft_in_a_group_is_a_message_that_becomes_the_answer(server, gateway, ada) -> None:
    group = server.group()
    asked = server.user_says(group, ada, "hey")
    address = address_of(group)
    draft_id = await gateway.adapter.draft(address, None, "gro", reply_to=str(asked.id))
    await gateway.adapter.draft(address, draft_id, "growing")
    await gateway.adapter.draft(address, draft_id, "growing")
    (piece,) = gateway.adapter.render(outbound(address, "**grown**", buttons=(Button(label="Ok", data="ok"),)))
    receipt = await gateway.adapter.finish_draft(address, draft_id, piece)
    answer = server.chat(-1001)[-1]
    assert receipt is not None
    assert receipt.message_id == draft_id == str(answer.id)
    assert (answer.texts, answer.silent, answer.reply_to, answer.buttons) == (
        ["gro", "growing", "grown"],
        False,
        asked.id,
        ["Ok"],
    )


async def test_thinking_is_an_empty_draft_and_where_that_is_refused_typing(server, gateway, dm) -> None:
    group = server.group()
    await gateway.adapter.typing(address_of(group))
    await gateway.adapter.typing(address_of(dm))
    assert (group.actions, dm.actions, dm.drafts) == (["typing"], [], [""])
    server.fail("sendMessageDraft", status=400, description="Bad Request: message text is empty")
    await gateway.adapter.typing(address_of(dm))
    await gateway.adapter.typing(address_of(dm))
    assert (dm.actions, dm.drafts) == (["typing", "typing"], [""])


async def test_where_drafts_are_broken_typing_shows_that_the_chat_takes_calls(server, gateway, dm) -> None:
    server.fail("sendMessageDraft", status=500)
    await gateway.adapter.typing(address_of(dm))
    assert dm.actions == ["typing"]
    await gateway.adapter.typing(address_of(dm))
    assert dm.drafts == [""]
    server.fail("*", times=2, status=500)
    with pytest.raises(TryLater):
        await gateway.adapter.typing(address_of(dm))


@pytest.mark.parametrize(
    ("status", "description"),
    [(403, "Forbidden: bot was blocked by the user"), (400, "Bad Request: chat not found")],
)
async def test_one_chat_that_takes_no_draft_leaves_the_others_theirs(server, gateway, dm, status, description) -> None:
    server.fail("sendMessageDraft", status=status, description=description)
    await gateway.adapter.typing(address_of(dm))
    await gateway.adapter.typing(address_of(dm))
    assert (dm.actions, dm.drafts) == (["typing"], [""])


async def test_a_draft_that_may_have_arrived_is_in_doubt_only_where_it_would_stay(server, gateway, dm) -> None:
    for chat, in_doubt in ((dm, False), (server.group(), True)):
        server.fail("*", drop="after")
        with pytest.raises(TryLater) as raised:
            await gateway.adapter.draft(address_of(chat), None, "text")
        assert raised.value.ambiguous is in_doubt


async def test_a_preview_that_cannot_become_the_answer_is_left_to_be_erased(server, gateway) -> None:
    group = server.group()
    address = address_of(group)
    draft_id = await gateway.adapter.draft(address, None, "text")
    file = {"method": "sendDocument", "filename": "a", "content": ""}
    assert await gateway.adapter.finish_draft(address, draft_id, file) is None
    assert server.answers(-1001) == ["text"]
    for _ in range(2):
        await gateway.adapter.erase_draft(address, draft_id)
    assert server.chat(-1001) == []
    (piece,) = gateway.adapter.render(outbound(address, "grown"))
    assert await gateway.adapter.finish_draft(address, draft_id, piece) is None


async def test_edits_in_one_chat_keep_the_pace_that_telegram_allows(gateway) -> None:
    pace = gateway.adapter.pace
    assert (pace.per_second, pace.dm, pace.group, pace.edit, pace.group_per_minute) == (30, 1, 1, 1.5, 20)
    assert gateway.adapter.typing_every < 5
    assert gateway.adapter.draft_renew_every < 30


async def test_the_pace_is_one_that_raises_no_flood() -> None:
    now = [0.0]
    async with TelegramServer(clock=lambda: now[0]) as server:
        gateway = TelegramGateway(server)
        group = server.group()
        draft_id = await gateway.adapter.draft(address_of(group), None, "text")
        for number in range(12):
            now[0] += gateway.adapter.pace.edit
            await gateway.adapter.draft(address_of(group), draft_id, f"text {number}")
        assert server.floods == []
        await gateway.adapter.close()


async def test_reactions_and_edits(server, gateway, ada, dm) -> None:
    asked = server.user_says(dm, ada, "x")
    address = address_of(dm)
    await gateway.adapter.react(address, str(asked.id), "👀")
    assert asked.reaction == "👀"
    await gateway.adapter.react(address, str(asked.id), None)
    assert asked.reaction is None
    (receipt,) = await gateway.send(address, "May I?", buttons=(Button(label="Yes", data="y"),))
    (piece,) = gateway.adapter.render(outbound(address, "**Approved**"))
    await gateway.adapter.edit(address, receipt.message_id, piece)
    await gateway.adapter.edit(address, receipt.message_id, piece)
    assert (server.chat(7)[-1].text, server.chat(7)[-1].buttons) == ("Approved", [])
