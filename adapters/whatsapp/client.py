"""Calls of the Cloud API. Every failure becomes an error of the contract, in a sentence that says what to do. No message of an error holds the access token."""

from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from adapters.base import DeliveryError, TryLater, Unauthorized, Undeliverable
from adapters.http import Json, as_object, part, read_at_most, seconds_to_wait, without_answer

_WAIT = {4: 60.0, 80007: 60.0, 130429: 5.0, 131048: 60.0, 131056: 12.0, 133016: 60.0}
"""Codes of rate limits, and the seconds to wait. 131056: too many messages to one person, who may get one every six seconds.
One that is refused counts too: tried again after six seconds, it would be refused for ever."""
_OUTAGE = {1, 2, 131000, 131016, 131057, 133004, 135000}
_LATER_KNOWN = {
    131026: "WhatsApp could not deliver it: the person has no WhatsApp, an old version, or has not accepted the terms.",
    131047: "More than 24 hours have passed since this person last wrote. WhatsApp delivers nothing but templates until they write again.",
    131049: "WhatsApp held it back, to keep the person from too many messages.",
    131050: "The person does not want messages from this number any more.",
    130472: "WhatsApp held it back: the person's number is part of an experiment of Meta.",
    131051: "WhatsApp does not know this kind of message.",
}


class WhatsAppRefusal(Undeliverable):
    """The Cloud API refuses this call as it is."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def refusal(status: int, body: Any, retry_after: str | None) -> DeliveryError:
    """Returns the error of an answer that is no success."""
    error = part(body, "error")
    code = error.get("code")
    if isinstance(code, int):
        return _known(status, code, error, retry_after)
    if status >= 500:
        return TryLater(f"WhatsApp has an outage ({status}).", after=seconds_to_wait(retry_after))
    if status == 429:
        return TryLater("WhatsApp asks to wait.", after=seconds_to_wait(retry_after) or 5.0)
    return TryLater(f"WhatsApp gave an answer that cannot be read ({status}).", ambiguous=True)


def _known(status: int, code: int, error: Json, retry_after: str | None) -> DeliveryError:
    # 190: the access token; 102: the session. 3, 10 and 200 to 299: permissions.
    if code in {190, 102} or (code == 0 and status == 401):
        return Unauthorized(
            "WhatsApp does not accept the access token. Make one for a system user in Meta's Business settings, which does not "
            "expire, and set platforms.whatsapp.access_token."
        )
    if code in {3, 10} or 200 <= code <= 299:
        return Unauthorized(
            "The access token lacks a permission. Give its system user the app and the WhatsApp account, and make the token with "
            "whatsapp_business_messaging and whatsapp_business_management."
        )
    if code in _WAIT:
        return TryLater("WhatsApp asks to wait.", after=seconds_to_wait(retry_after) or _WAIT[code])
    if code in _OUTAGE or status >= 500:
        return TryLater(f"WhatsApp has an outage ({code}).", after=seconds_to_wait(retry_after))
    return WhatsAppRefusal(_LATER_KNOWN.get(code) or f"WhatsApp refuses this: {_details(error)} ({code})", code)


def failure_reason(error: Json) -> str:
    """Returns why a message that was accepted did not arrive."""
    code = error.get("code")
    known = _LATER_KNOWN.get(code) if isinstance(code, int) else None
    return known or f"WhatsApp could not deliver it: {_details(error)} ({code})"


def _details(error: Json) -> str:
    said = part(error, "error_data").get("details") or error.get("message") or error.get("title") or "no reason given"
    return str(said).strip().rstrip(".")[:300]


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
                    if answer.status >= 500 or answer.status == 429:
                        raise TryLater(f"WhatsApp has an outage ({answer.status}).", after=5.0)
                    raise Undeliverable(f"WhatsApp does not give the file any more ({answer.status}).")
                return await read_at_most(answer, limit)
        except (TimeoutError, aiohttp.ClientError) as error:
            raise TryLater(f"WhatsApp cannot be reached ({type(error).__name__}).") from None

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
                try:
                    body = await answer.json(content_type=None)
                except (ValueError, RecursionError):
                    body = None
                if answer.status == 200 and (found := as_object(body)):
                    return found
                raise refusal(answer.status, body, answer.headers.get("Retry-After"))
        except (TimeoutError, aiohttp.ClientError) as error:
            raise without_answer("WhatsApp", error) from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=32), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
        return self._session
