"""The library's HTTP calls over aiohttp, which needs a fifth of the CPU of the library's own client."""

from functools import lru_cache
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from telegram.error import NetworkError, TimedOut
from telegram.request import BaseRequest, RequestData

CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
TRANSFER_SECONDS = 300.0
"""For files, which may be long; and the longest that anything can hang."""

# Failures before the first byte was written. All others may have reached Telegram, so the send is doubtful.
_NEVER_WRITTEN = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)

_URL_ENCODED = {"Content-Type": "application/x-www-form-urlencoded"}


class NeverSent(NetworkError):
    """Telegram cannot have received the request."""


class Connections(BaseRequest):
    """A pool of connections to this address. It opens with the first call, also after `shutdown`."""

    def __init__(self, address: str, size: int) -> None:
        self._address = address
        self._size = size
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float:
        return READ_SECONDS

    async def initialize(self) -> None:
        """Does nothing: the pool opens with the first call."""

    async def shutdown(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: object = None,
        write_timeout: object = None,  # noqa: ARG002  # the time to answer is counted from the last byte written
        connect_timeout: object = None,  # noqa: ARG002
        pool_timeout: object = None,  # noqa: ARG002
    ) -> tuple[int, bytes]:
        seconds = read_timeout if isinstance(read_timeout, int | float) else READ_SECONDS
        session = self._session or self._open()
        body, headers = _body(request_data)
        try:
            async with session.request(
                method, url, data=body, headers=headers, timeout=_timeout(seconds), allow_redirects=False
            ) as response:
                return response.status, await response.read()
        except _NEVER_WRITTEN as error:
            raise NeverSent(type(error).__name__) from error
        except TimeoutError as error:
            raise TimedOut from error
        except aiohttp.ClientError as error:
            raise NetworkError(type(error).__name__) from error

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._size),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self.USER_AGENT},
            proxy=_proxy(self._address),  # aiohttp ignores the environment by default
        )
        return self._session


def _proxy(address: str) -> str | None:
    """Returns the environment's proxy, looked up once; aiohttp's `trust_env` would do it for every call, in a thread."""
    parts, known = urlsplit(address), getproxies()
    return None if proxy_bypass(parts.hostname or "") else known.get(parts.scheme) or known.get("all")


@lru_cache
def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=seconds + TRANSFER_SECONDS, connect=2 * CONNECT_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=seconds
    )


def _body(data: RequestData | None) -> tuple[bytes | aiohttp.FormData | None, dict[str, str]]:
    if data is None:
        return None, {}
    if not data.contains_files:
        return data.url_encoded_parameters().encode(), _URL_ENCODED
    form = aiohttp.FormData(data.json_parameters)
    for name, (filename, content, mime) in data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=mime)
    return form, {}
