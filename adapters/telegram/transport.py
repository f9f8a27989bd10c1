"""The library's HTTP calls over aiohttp, which needs a fifth of the CPU of the library's own client, and its errors as those of the contract.

No message of an error holds the token, which is part of every URL.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.request import BaseRequest, RequestData

from adapters.base import DeliveryError, TryLater, Unauthorized, Undeliverable
from adapters.http import NEVER_WRITTEN

CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
TRANSFER_SECONDS = 300.0
"""For files, which may be long; and the longest that anything can hang."""

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
        except NEVER_WRITTEN as error:
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


class TelegramRefusal(Undeliverable):
    """Telegram refuses this call as it is. `reason` is its own description."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason.lower()


class Contested(TryLater):
    """Another program polls for this bot. Which of the two gets an update is random."""


class Moved(TryLater):
    """The group became a supergroup. The next try goes there."""

    def __init__(self, chat_id: int) -> None:
        super().__init__("The group became a supergroup; the message goes there.", after=0)
        self.chat_id = str(chat_id)


@dataclass(frozen=True, slots=True)
class Translation:
    """`with translation():` turns errors of the library into those of the contract."""

    token: str

    @contextmanager
    def __call__(self) -> Generator[None]:
        try:
            yield
        except TelegramError as error:
            raise self._translate(error) from None  # the cause's text and frames hold the URL
        except (KeyError, TypeError, ValueError):  # the library parses answers without checking them
            raise TryLater("Telegram gave an answer of an unknown shape.", ambiguous=True) from None

    def _translate(self, error: TelegramError) -> DeliveryError:
        said = error.message.partition(". Parsing the server response ")[0].replace(self.token, "<token>")
        match error:
            case RetryAfter():
                period = error.retry_after
                seconds = period.total_seconds() if isinstance(period, timedelta) else float(period)
                return TryLater(f"Telegram asks to wait {seconds:.0f} seconds.", after=seconds)
            case ChatMigrated():
                return Moved(error.new_chat_id)
            # The library raises it for every 404 too, also of a method that this server does not know.
            case InvalidToken() if "not found" not in said.lower():
                return Unauthorized(
                    "Telegram does not accept the token. Get the present one from @BotFather and set platforms.telegram.token."
                )
            case Forbidden() | BadRequest() | EndPointNotFound() | InvalidToken():
                return TelegramRefusal(f"Telegram refuses this: {said}", said)
            case Conflict():
                return Contested(
                    "Another program receives this bot's messages (409). Stop it, or give one of the two a token of its own."
                )
            case NetworkError() if "too large" in said.lower():  # 413
                return TelegramRefusal("The file is larger than Telegram takes.", said)
            case NetworkError():
                # Without a cause of the transport it is an answer with a 5xx status, readable or not.
                if error.__cause__ is None or isinstance(error.__cause__, TelegramError):
                    return TryLater(f"Telegram has an outage: {said}")
                what = "did not answer in time" if isinstance(error, TimedOut) else "cannot be reached"
                ambiguous = not isinstance(error, NeverSent)
                return TryLater(f"Telegram {what} ({type(error.__cause__).__name__}).", ambiguous=ambiguous)
            case _:
                return TryLater(f"Telegram gave an answer that cannot be read: {said}", ambiguous=True)
