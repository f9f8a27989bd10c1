"""The poll loop in good days and bad. The real client library against a Bot API at the wire."""

import asyncio

import pytest

from adapters.base import (
    TryLater,
    Unauthorized,
)
from adapters.telegram.polling import MOST_FAILURES, SHORTEST_POLL
from tests.unit.adapters.telegram.wire import TelegramGateway, address_of


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


async def test_an_outage_is_told_once_patience_ends(server, gateway) -> None:
    server.fail("getUpdates", times=99, drop="before")
    with pytest.raises(TryLater, match="cannot be reached"):
        await gateway.start()
    assert len(gateway.pauses) == MOST_FAILURES
    assert gateway.adapter.last_success() is None


async def test_a_second_poller_is_named_at_once(server, gateway) -> None:
    server.fail("getUpdates", status=409, description="Conflict: terminated by other getUpdates request")
    with pytest.raises(TryLater, match="Another program receives this bot's messages"):
        await gateway.start()
    assert gateway.pauses == []
    assert gateway.adapter.last_success() is None


async def test_one_conflict_is_overcome(server, gateway, ada, dm) -> None:
    server.fail("getUpdates", status=409, description="Conflict: terminated by other getUpdates request")
    server.user_says(dm, ada, "x")
    with pytest.raises(TryLater):
        await gateway.start()
    gateway.start()
    await gateway.received()
    first, second = server.polled_from[:2]
    assert first != second, "on a fresh connection"


@pytest.mark.parametrize("token", ["123456:wrong-token", "no token"])
async def test_a_wrong_token_stops_the_start(server, token) -> None:
    gateway = TelegramGateway(server)
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
    told: list[float | None] = []
    gateway.adapter.on_success(lambda: told.append(gateway.adapter.last_success()))
    gateway.start()
    await gateway.until(gateway.adapter.last_success)
    gateway.now = 2000.0
    server.user_says(dm, ada, "x")
    await gateway.received()
    assert gateway.adapter.last_success() == told[-1] == 2000.0


async def test_it_can_be_cancelled_and_started_again(server, gateway, ada, dm) -> None:
    task = gateway.start()
    await gateway.until(gateway.adapter.last_success)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.user_says(dm, ada, "while it was away")
    gateway.start()
    assert (await gateway.received()).text == "while it was away"


async def test_a_server_that_answers_at_once_is_not_asked_all_the_time(server, gateway, ada, dm) -> None:
    server.longest_poll = 0.0
    gateway.start()
    await gateway.until(lambda: len(gateway.pauses) > 3)
    assert set(gateway.pauses) == {SHORTEST_POLL}
    assert len(server.called("getUpdates")) <= len(gateway.pauses) + 3
    server.user_says(dm, ada, "x")
    assert (await gateway.received()).text == "x"


async def test_who_writes_what_cannot_be_read_hears_so(server, gateway, ada, dm) -> None:
    server.user_says(dm, ada, date="yesterday")
    server.user_says(server.group(), ada, date="yesterday")
    gateway.start()
    inbound = await gateway.received()
    assert (inbound.text, inbound.attachments, inbound.sender.id) == ("", (), "7")
    assert inbound.address == address_of(dm)
    await gateway.until(lambda: not server.pending)
    assert len(gateway.inbox) == 1
