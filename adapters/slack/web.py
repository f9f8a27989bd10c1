"""Calls of Slack's Web API through its library, over one pool of connections; files up and down.

Every failure becomes an error of the contract. No message of an error holds a token.
"""

import asyncio
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from adapters.base import DeliveryError, TryLater, Unauthorized, Undeliverable
from adapters.http import Json, as_object, part, parts, read_at_most, seconds_to_wait, text, without_answer
from sessions.messages import Attachment

_TOKEN = {
    "account_inactive",
    "invalid_auth",
    "not_authed",
    "org_login_required",
    "token_expired",
    "token_revoked",
    "team_access_not_granted",
}
_OUTAGE = {
    "accesslimited",
    "fatal_error",
    "internal_error",
    "request_timeout",
    "service_unavailable",
    "team_added_to_org",
}
REJECTED = (
    "Slack does not accept the token. Install the app again (api.slack.com/apps → OAuth & Permissions) and set "
    "platforms.slack.bot_token."
)


class SlackRefusal(Undeliverable):
    """Slack refuses this call as it is. `error` is its own word for why."""

    def __init__(self, error: str) -> None:
        super().__init__(f"Slack refuses this: {error}.")
        self.error = error


@contextmanager
def translated() -> Generator[None]:
    """Turns errors of the library into those of the contract while the block lasts."""
    try:
        yield
    except SlackApiError as error:
        raise _translate(error) from None
    except (aiohttp.ClientError, asyncio.TimeoutError, SlackClientError) as error:  # noqa: UP041  # the library names both
        raise without_answer("Slack", error) from None


def _translate(error: SlackApiError) -> DeliveryError:
    response: Any = error.response  # the library's, or where it could not read the body, that of aiohttp
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0))
    headers: Mapping[str, str] = getattr(response, "headers", {})
    data = as_object(getattr(response, "data", None))
    said = text(data, "error")
    if status == 429 or said in {"ratelimited", "rate_limited", "message_limit_exceeded"}:
        return TryLater("Slack asks to wait.", after=seconds_to_wait(headers.get("Retry-After")) or 5.0)
    if said in _TOKEN:
        return Unauthorized(REJECTED)
    if said == "missing_scope":
        return MissingScope(text(data, "needed") or "one that it needs")
    if status >= 500 or said in _OUTAGE:
        return TryLater(f"Slack has an outage ({said or status}).", after=seconds_to_wait(headers.get("Retry-After")))
    if said:
        return SlackRefusal(said)
    return TryLater(f"Slack gave an answer that cannot be read ({status}).", ambiguous=True)


class MissingScope(SlackRefusal):
    """The app lacks a permission. That is said once for all, when the setup is checked."""

    def __init__(self, needed: str) -> None:
        super().__init__("missing_scope")
        self.args = (scope_advice([needed]),)


def scope_advice(missing: list[str]) -> str:
    listed = ", ".join(missing)
    return (
        f"The Slack app lacks the permission {listed}. Add it at api.slack.com/apps → OAuth & Permissions → Scopes, "
        "or paste the manifest of docs/platforms/slack.md, then install the app again."
    )


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
        """Returns status, media type and contents of an address, fetched with the token; no contents without success. Raises Undeliverable
        when they are larger than `limit` bytes.
        """
        headers = {"Authorization": f"Bearer {self._token}"}
        with translated():
            async with self._open().get(url, headers=headers, allow_redirects=False) as answer:
                data = await read_at_most(answer, limit) if answer.status == 200 else b""
                return answer.status, answer.content_type, data


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


async def upload(web: SlackWeb, channel: str, thread: str | None, name: str, data: bytes, comment: str) -> str:
    """Uploads the file and returns its id. The last of three calls shares it into the chat; before that nobody sees it."""
    try:
        place = await web.query("files.getUploadURLExternal", filename=name, length=len(data))
        status = await web.post(text(place, "upload_url"), data=data)
    except TryLater as error:  # not ambiguous any more: up to here nobody sees anything
        raise TryLater(str(error), after=error.after) from None
    if status != 200:
        raise TryLater(f"Slack did not take the file ({status}).")
    shared = await web.query(
        "files.completeUploadExternal",
        files=json.dumps([{"id": text(place, "file_id"), "title": name}]),
        channel_id=channel,
        thread_ts=thread,
        initial_comment=comment or None,
    )
    found = parts(shared, "files")
    return text(found[0], "id") if found else text(place, "file_id")


async def download(web: SlackWeb, attachment: Attachment, limit: int) -> bytes:
    """Raises Undeliverable where the file is gone, larger, or lies at a host that must not see the token."""
    file_id, _, address = attachment.ref.partition("|")
    if not address:
        found = await web.query("files.info", file=file_id)
        address = text(part(found, "file"), "url_private_download")
    if not web.is_slacks(address):
        raise Undeliverable("Slack names an address for the file that is not Slack's.")
    status, mime, data = await web.get(address, limit)
    if status >= 500 or status == 429:
        raise TryLater(f"Slack has an outage ({status}).", after=5.0)
    # Without the permission Slack answers 200 with its login page.
    if status != 200 or (mime == "text/html" and attachment.mime != "text/html"):
        raise Undeliverable("Slack does not give the file. The app may lack the permission files:read.")
    return data
