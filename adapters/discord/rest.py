"""Calls of Discord's API through its library, which keeps to the rate limit of every route, and its errors as those of the contract.

No message of an error holds the token.
"""

import asyncio
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from adapters.base import DeliveryError, TryLater, Unauthorized, Undeliverable
from adapters.http import Json, read_at_most, seconds_to_wait, without_answer

BAD_TOKEN = (
    "Discord does not accept the token. Make a new one (discord.com/developers → your app → Bot → Reset Token) "  # noqa: S105
    "and set platforms.discord.token."
)
NO_INTENT = (
    "Discord cannot read messages: the intent “Message Content” is off. Switch it on: discord.com/developers → your app → Bot → "
    "Message Content Intent."
)


class DiscordRefusal(Undeliverable):
    """Discord refuses this call as it is. `code` is its own number for why, `status` that of HTTP."""

    def __init__(self, status: int, code: int, said: str) -> None:
        super().__init__(f"Discord refuses this: {said} ({code or status}).")
        self.status = status
        self.code = code


@contextmanager
def translated() -> Generator[None]:
    """Turns errors of the library into those of the contract while the block lasts."""
    try:
        yield
    except discord.DiscordException as error:
        raise _translate(error) from None
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:  # noqa: UP041  # the library names both
        raise without_answer("Discord", error) from None


def _translate(error: discord.DiscordException) -> DeliveryError:
    match error:
        case discord.RateLimited():
            return TryLater("Discord asks to wait.", after=error.retry_after)
        case discord.LoginFailure():
            return Unauthorized(BAD_TOKEN)
        case discord.PrivilegedIntentsRequired():
            return Unauthorized(NO_INTENT)
        case discord.ConnectionClosed():
            if error.code == 4014:  # disallowed intents
                return Unauthorized(NO_INTENT)
            if error.code == 4004:  # authentication failed
                return Unauthorized(BAD_TOKEN)
            return TryLater(f"Discord has closed the connection ({error.code}).")
        case discord.GatewayNotFound():
            return TryLater("Discord has an outage.")
        case discord.HTTPException():
            if error.status == 401:
                return Unauthorized(BAD_TOKEN)
            if error.status == 429:
                return TryLater(
                    "Discord asks to wait.", after=seconds_to_wait(error.response.headers.get("Retry-After")) or 5.0
                )
            if error.status >= 500:
                return TryLater(f"Discord has an outage ({error.status}).")
            return DiscordRefusal(error.status, error.code, (error.text or "no reason given").splitlines()[0][:200])
        case _:
            return TryLater(f"Discord gave an answer that cannot be read ({type(error).__name__}).", ambiguous=True)


_LONGEST_WAIT = 30.0
"""Seconds that the library waits by itself when Discord asks to."""

_GUILDS_WAIT = 0.5
"""Seconds without a further guild after which all are there."""


def point_at(api_base: str, gateway_url: str) -> None:
    """Sets the addresses of API and gateway, for the whole process, as the library has them."""
    Route.BASE = api_base.rstrip("/")
    if gateway_url:
        DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(gateway_url)


def new_client(intents: discord.Intents) -> discord.Client:
    """Returns a client without caches, which pings nobody."""
    return discord.Client(
        intents=intents,
        allowed_mentions=discord.AllowedMentions.none(),
        max_messages=None,
        chunk_guilds_at_startup=False,
        member_cache_flags=discord.MemberCacheFlags.none(),
        max_ratelimit_timeout=_LONGEST_WAIT,
        guild_ready_timeout=_GUILDS_WAIT,
    )


class Rest:
    """Calls the API. Logs in with the first call, also after `close`."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._client: discord.Client | None = None
        self._opening = asyncio.Lock()

    async def client(self) -> discord.Client:
        async with self._opening:
            # A client without intents: it never opens the gateway connection, which is the listener's.
            if self._client is None:
                client = new_client(discord.Intents.none())
                try:
                    with translated():
                        await client.login(self._token)
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def call(
        self,
        method: str,
        path: str,
        ids: Mapping[str, Any] | None = None,
        body: Any = None,
        *,
        file: tuple[str, bytes] | None = None,
    ) -> Any:
        """Calls `path`, with `{channel_id}` and the like, by which the library counts rates."""
        http = (await self.client()).http
        route = Route(method, path, **(ids or {}))
        with translated():
            if file is not None:
                name, data = file
                described: Json = {**(body or {}), "attachments": [{"id": "0", "filename": name}]}
                payload = {"name": "payload_json", "value": json.dumps(described), "content_type": "application/json"}
                kind = "application/octet-stream"
                content = {"name": "files[0]", "value": data, "filename": name, "content_type": kind}
                return await http.request(route, form=[payload, content])
            return await (http.request(route) if body is None else http.request(route, json=body))

    async def download(self, url: str, limit: int, *, base: str) -> bytes | None:
        """Returns the file; None: the address has run out. Raises Undeliverable where the file is larger or lies elsewhere."""
        given, own = urlsplit(url), urlsplit(base)
        # No redirects and no other host: the address comes in a message, which others may shape.
        is_discords = given.scheme == "https" and (given.hostname or "").endswith(
            (".discordapp.com", ".discordapp.net")
        )
        if not is_discords and given.netloc != own.netloc:
            raise Undeliverable("Discord names an address for the file that is not Discord's.")
        timeout = aiohttp.ClientTimeout(total=300, sock_connect=10, sock_read=30)
        with translated():
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, allow_redirects=False) as answer,
            ):
                if answer.status in {401, 403, 404}:  # the signature in the address is valid for a day
                    return None
                if answer.status != 200:
                    raise TryLater(f"Discord has an outage ({answer.status}).", after=5.0)
                return await read_at_most(answer, limit)


def without(piece: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in piece.items() if key not in names}
