"""Calls of Slack's Web API through its library, over one pool of connections. Every failure becomes an error of the contract."""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from adapters.payload import Json, as_object
from adapters.slack.errors import translated

_TIMEOUT = aiohttp.ClientTimeout(total=300, connect=20, sock_connect=10, sock_read=30)


class SlackWeb:
    """Calls the Web API, each call once: a message must not be sent twice. Opens with the first call, also after `close`."""

    def __init__(self, base: str, token: str) -> None:
        self.base = base.rstrip("/") + "/"
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._client: AsyncWebClient | None = None

    def client(self) -> AsyncWebClient:
        """The library's client."""
        session = self._open()
        # The library's client keeps its session for good, so a new session needs a new client.
        if self._client is None or self._client.session is not session:
            self._client = AsyncWebClient(token=self._token, base_url=self.base, session=session)
            self._client.retry_handlers.clear()  # by default it repeats a call whose connection broke, and so may send twice
        return self._client

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                timeout=_TIMEOUT, connector=aiohttp.TCPConnector(limit=32), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(self, method: str, **arguments: Any) -> Json:
        """Calls a method that changes something. Arguments that are None are left out."""
        return (await self._call(method, json=_given(arguments)))[0]

    async def query(self, method: str, **arguments: Any) -> Json:
        """Calls a method with its arguments as a form: many that read take no JSON. Not in the address, which proxies write down."""
        return (await self._call(method, data=_given(arguments)))[0]

    async def query_with_headers(self, method: str) -> tuple[Json, Mapping[str, str]]:
        return await self._call(method)

    async def _call(self, method: str, **how: Any) -> tuple[Json, Mapping[str, str]]:
        with translated():
            client: Any = self.client()  # its types are those of its documentation
            answer = await client.api_call(method, **how)
        return as_object(answer.data), cast(Mapping[str, str], answer.headers)

    def is_slacks(self, url: str) -> bool:
        """Returns whether the address is Slack's, or that of the configured server."""
        given, own = urlsplit(url), urlsplit(self.base)
        host = given.hostname or ""
        return given.netloc == own.netloc or (
            given.scheme == "https" and host.endswith((".slack.com", ".slack-files.com"))
        )

    async def post(self, url: str, **how: Any) -> int:
        """Posts to an address that Slack has named, and returns the status."""
        with translated():
            async with self._open().post(url, **how) as answer:
                return answer.status

    async def get(self, url: str, limit: int) -> tuple[int, str, bytes]:
        """Returns status, media type and at most `limit` + 1 bytes of an address, fetched with the token."""
        headers = {"Authorization": f"Bearer {self._token}"}
        with translated():
            async with self._open().get(url, headers=headers, allow_redirects=False) as answer:
                data = await answer.content.read(limit + 1)
                while len(data) <= limit and (more := await answer.content.read(limit + 1 - len(data))):
                    data += more
                return answer.status, answer.content_type, data


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
