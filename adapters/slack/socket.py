"""Socket Mode: the library's client, which tells why it cannot connect instead of trying for ever."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import time
from typing import Any

from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from adapters.base import DeliveryError, TryLater, Unauthorized
from adapters.http import text
from adapters.slack.web import SlackRefusal, SlackWeb

PING_SECONDS = 5.0
_TRIES = 5


class _Client(SocketModeClient):
    """`failed` is told of every failure to get an address to connect to."""

    failed: Callable[[DeliveryError], None]
    asks: Callable[[], Awaitable[str]]

    async def issue_new_wss_url(self) -> str:
        try:
            return await self.asks()
        except DeliveryError as error:
            self.failed(error)
            raise


class Socket:
    """`check` tries the app token. `run` receives until cancelled. Both raise DeliveryError when the connection cannot be made."""

    def __init__(self, app: AsyncApp, web: SlackWeb, app_token: str) -> None:
        self._app = app
        self._web = web
        self._app_token = app_token
        self._client: _Client | None = None
        self._failures = 0
        self._address = ""

    async def check(self) -> None:
        """Asks Slack where to connect, which needs a good app token. The next `run` connects there: Slack lets an app ask about once a minute."""
        try:
            self._address = await self._ask()
        except TryLater as error:
            if error.after is None:  # else it was asked too often, which is no fault of the token
                raise

    async def _ask(self) -> str:
        try:
            address = text(await self._web.call("apps.connections.open"), "url")
        except DeliveryError as error:
            raise _explained(error) from None
        if not address:
            raise TryLater("Slack opens a socket, and does not say where.")
        return address

    def last_pong(self) -> float | None:
        """Returns the wall-clock seconds of the last sign that the connection lives."""
        return None if self._client is None else self._client.last_ping_pong_time

    async def run(self, alive: Callable[[], None]) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failures = 0
        address, self._address = self._address or await self._ask(), ""

        def failed(error: DeliveryError) -> None:
            self._failures += 1
            if not ended.done() and (isinstance(error, Unauthorized) or self._failures >= _TRIES):
                ended.set_exception(error)

        async def on_message(_: Any) -> None:
            self._failures = 0
            alive()

        logger = logging.getLogger("slack_sdk.socket_mode")
        client = _Client(
            app_token=self._app_token,
            logger=logger,
            web_client=self._web.client(),
            ping_interval=PING_SECONDS,
            trace_enabled=False,
        )
        client.failed, client.asks, client.wss_uri = failed, self._ask, address
        client.on_message_listeners.append(on_message)
        client.socket_mode_request_listeners.append(self._dispatch)  # pyright: ignore[reportArgumentType]
        self._client = client
        connecting = asyncio.ensure_future(client.connect())
        # The library reconnects by itself for ever; `failed` ends this when that makes no sense.
        try:
            await ended
        finally:
            connecting.cancel()
            await _closed(client.close)
            self._client = None

    async def _dispatch(self, client: SocketModeClient, request: SocketModeRequest) -> None:
        """Handles an event as the library's own handler does, which would make a client of its own."""
        await send_async_response(client, request, await run_async_bolt_app(self._app, request), time())


def _explained(error: DeliveryError) -> DeliveryError:
    if isinstance(error, Unauthorized):
        return Unauthorized(
            "Slack does not accept the app-level token. Make one with connections:write (api.slack.com/apps → Basic Information → "
            "App-Level Tokens) and set platforms.slack.app_token."
        )
    if isinstance(error, SlackRefusal):
        return Unauthorized(
            f"Slack opens no socket for this app: {error.error}. Switch Socket Mode on in the app's settings."
        )
    return TryLater(str(error), after=getattr(error, "after", None))


async def _closed(close: Callable[[], Awaitable[None]]) -> None:
    try:
        await close()
    except (OSError, RuntimeError, AttributeError):  # it was not open, or not any more
        return
