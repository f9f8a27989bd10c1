"""The connections under the library, with a server at the wire."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from telegram.error import NetworkError, TimedOut

from adapters.base import TryLater
from adapters.telegram.transport import Connections, NeverSent, Translation
from tests.fakes.telegram_server import TelegramServer


@pytest.fixture
async def connections(server: TelegramServer) -> AsyncIterator[Connections]:
    connections = Connections(server.url, 2)
    yield connections
    await connections.shutdown()


async def test_an_answer_that_does_not_come_in_time(server: TelegramServer, connections: Connections) -> None:
    server.fail("getMe", wait=asyncio.Event())
    with pytest.raises(TimedOut):
        await connections.post(f"{server.url}/bot{server.token}/getMe", read_timeout=0.05)


async def test_a_connection_that_is_cut(server: TelegramServer, connections: Connections) -> None:
    server.fail("getMe", drop="after")
    with pytest.raises(NetworkError) as raised:
        await connections.post(f"{server.url}/bot{server.token}/getMe")
    assert not isinstance(raised.value, NeverSent)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/botX/getMe", "http://nowhere.invalid/botX/getMe"])
async def test_what_was_surely_not_sent(connections: Connections, url: str) -> None:
    with pytest.raises(NeverSent):
        await connections.post(url)


async def test_they_open_again_after_they_were_shut(server: TelegramServer, connections: Connections) -> None:
    url = f"{server.url}/bot{server.token}/getUpdates?timeout=0"
    for _ in range(2):
        await connections.post(url)
    await connections.shutdown()
    await connections.post(url)
    first, second, third = server.polled_from
    assert first == second != third


async def test_no_redirect_is_followed(server: TelegramServer, connections: Connections) -> None:
    server.fail("getMe", status=302, raw="elsewhere")
    with pytest.raises(NetworkError, match="302"):
        await connections.post(f"{server.url}/bot{server.token}/getMe")


async def test_the_environments_proxy_is_used(server: TelegramServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    connections = Connections("http://api.example", 1)
    url = f"http://api.example/bot{server.token}/getMe"
    assert "Hermes" in str(await connections.post(url))
    await connections.shutdown()
    monkeypatch.setenv("no_proxy", "api.example")
    with pytest.raises(NeverSent):
        await connections.post(url)
    await connections.shutdown()


@pytest.mark.parametrize(
    ("error", "ambiguous"), [(NeverSent("x"), False), (TimedOut(), True), (NetworkError("x"), True)]
)
def test_only_what_may_have_been_written_is_ambiguous(error: NetworkError, ambiguous: bool) -> None:
    with pytest.raises(TryLater) as raised, Translation("1:secret")():
        raise error from aiohttp.ClientError("https://example.org/bot1:secret")
    assert raised.value.ambiguous is ambiguous
    assert raised.value.__suppress_context__  # the cause holds the URL, and with it the token
