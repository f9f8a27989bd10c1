"""What the adapter is, and what it says about itself. The real client library against a Bot API at the wire."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapters.base import TryLater
from sessions.keys import Sender
from tests.unit.adapters.telegram.wire import TelegramGateway


async def test_commands_are_offered_to_allowed_users_only(server, gateway, dm) -> None:
    server.commands["default"] = [{"command": "old", "description": "old"}]
    await gateway.adapter.offer_commands([("new", "begin anew")], [Sender(id="7"), Sender(id="8")])
    assert server.commands == {"chat:7": [{"command": "new", "description": "begin anew"}]}
    await gateway.adapter.offer_commands([("new", "begin anew")], [Sender(id="*")])
    assert list(server.commands) == ["all_private_chats"]


async def test_check_says_who_we_are(gateway) -> None:
    assert await gateway.adapter.check() == "@hermes_bot (Hermes)"


async def test_a_page_in_place_of_an_answer_leaves_no_traceback(
    gateway: TelegramGateway, caplog: pytest.LogCaptureFixture
) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    async with TestServer(app) as proxy:
        adapter = gateway.new_adapter(api_base=str(proxy.make_url("/")))
        with pytest.raises(TryLater, match="Bad Gateway") as raised:
            await adapter.check()
        await adapter.close()
    assert "Parsing" not in str(raised.value)
    assert caplog.records == []
