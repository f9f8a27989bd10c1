"""Telegram calls us. The real client library against a Bot API at the wire."""

import asyncio
from contextlib import suppress

import pytest

from adapters.telegram.adapter import Telegram
from adapters.telegram.config import TelegramConfig


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
    assert "my_chat_member" in server.webhook["allowed_updates"]
    server.user_says(dm, ada, "hello")
    headers, body = server.webhook_request()
    assert await adapter.receive(headers, body, gateway.deliver)
    assert gateway.inbox[0].text == "hello"
    for unreadable in (b"no json", b"[" * 100_000, b"[1]"):
        assert await adapter.receive(headers, unreadable, gateway.deliver)
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


async def test_where_the_webhook_cannot_be_looked_at_it_goes_on(server, gateway) -> None:
    server.fail("getWebhookInfo", times=99, status=404, description="Not Found")
    adapter = gateway.new_adapter(mode="webhook", webhook_secret="s", webhook_url="https://example.org/hook")
    task = asyncio.create_task(adapter.run(gateway.deliver))
    await gateway.until(lambda: len(gateway.pauses) > 3 or task.done())
    assert not task.done()
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
