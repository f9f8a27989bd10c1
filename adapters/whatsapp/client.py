"""Calls of the Cloud API. Every failure becomes an error of the contract."""

from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from adapters.base import TryLater, Undeliverable
from adapters.payload import as_object
from adapters.whatsapp.errors import refusal

_NEVER_WRITTEN = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
_TIMEOUT = aiohttp.ClientTimeout(total=330, connect=20, sock_connect=10, sock_read=30)


class CloudApi:
    """Calls the Cloud API. Its session opens with the first call, also after `close`."""

    def __init__(self, base: str, token: str) -> None:
        self._base = base.rstrip("/")
        self._authorization = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(self, path: str, **query: str) -> Mapping[str, Any]:
        return await self._call("GET", path, params=query)

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._call("POST", path, json=body)

    async def upload(self, number: str, data: bytes, name: str, mime: str) -> str:
        """Uploads the file and returns its id, which a message can name for thirty days."""
        form = aiohttp.FormData({"messaging_product": "whatsapp", "type": mime})
        form.add_field("file", data, filename=name, content_type=mime)
        try:
            found = await self._call("POST", f"{number}/media", data=form)
        except TryLater as error:  # a file that was uploaded twice harms nobody
            raise TryLater(str(error), after=error.after) from None
        return str(found.get("id"))

    async def download(self, url: str, limit: int, *, trusted: Callable[[str], bool]) -> bytes:
        """Raises Undeliverable where the file is gone or larger, or lies at a host that must not see the token."""
        if not trusted(url):
            raise Undeliverable("WhatsApp names an address for the file that is not Meta's.")
        try:
            async with self._open().get(
                url, headers=self._authorization, timeout=_TIMEOUT, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise _download_refusal(answer.status)
                # `read(n)` returns what is there, so it is called until the file ends, or is larger than the limit.
                data = await answer.content.read(limit + 1)
                while len(data) <= limit and (more := await answer.content.read(limit + 1 - len(data))):
                    data += more
        except (TimeoutError, aiohttp.ClientError) as error:
            raise TryLater(f"WhatsApp cannot be reached ({type(error).__name__}).") from None
        if len(data) > limit:
            raise Undeliverable(f"The file is larger than {limit} bytes.")
        return data

    async def _call(self, method: str, path: str, **how: Any) -> Mapping[str, Any]:
        try:
            async with self._open().request(
                method,
                f"{self._base}/{path}",
                headers=self._authorization,
                timeout=_TIMEOUT,
                allow_redirects=False,
                **how,
            ) as answer:
                return await self._read(answer)
        except _NEVER_WRITTEN as error:
            raise TryLater(f"WhatsApp cannot be reached ({type(error).__name__}).") from None
        except (TimeoutError, aiohttp.ClientError) as error:
            raise TryLater(f"WhatsApp did not answer ({type(error).__name__}).", ambiguous=True) from None

    @staticmethod
    async def _read(answer: aiohttp.ClientResponse) -> Mapping[str, Any]:
        try:
            body = await answer.json(content_type=None)
        except (ValueError, RecursionError):
            body = None
        if answer.status == 200 and (found := as_object(body)):
            return found
        raise refusal(answer.status, body, answer.headers.get("Retry-After"))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=32), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
        return self._session


def _download_refusal(status: int) -> Exception:
    if status >= 500 or status == 429:
        return TryLater(f"WhatsApp has an outage ({status}).", after=5.0)
    return Undeliverable(f"WhatsApp does not give the file any more ({status}).")
