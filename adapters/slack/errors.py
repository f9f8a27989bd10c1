"""Turns errors of Slack's library into those of the contract. No message holds a token."""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

from adapters.base import DeliveryError, TryLater, Unauthorized, Undeliverable
from adapters.payload import as_object, text

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
_NEVER_WRITTEN = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
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
    except _NEVER_WRITTEN as error:
        raise TryLater(f"Slack cannot be reached ({type(error).__name__}).") from None
    except (aiohttp.ClientError, asyncio.TimeoutError, SlackClientError) as error:  # noqa: UP041  # the library names both
        raise TryLater(f"Slack did not answer ({type(error).__name__}).", ambiguous=True) from None


def _translate(error: SlackApiError) -> DeliveryError:
    response: Any = error.response  # the library's, or where it could not read the body, that of aiohttp
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0))
    headers: Mapping[str, str] = getattr(response, "headers", {})
    data = as_object(getattr(response, "data", None))
    said = text(data, "error")
    if status == 429 or said in {"ratelimited", "rate_limited", "message_limit_exceeded"}:
        return TryLater("Slack asks to wait.", after=_seconds(headers.get("Retry-After")) or 5.0)
    if said in _TOKEN:
        return Unauthorized(REJECTED)
    if said == "missing_scope":
        return MissingScope(text(data, "needed") or "one that it needs")
    if status >= 500 or said in _OUTAGE:
        return TryLater(f"Slack has an outage ({said or status}).", after=_seconds(headers.get("Retry-After")))
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


def _seconds(retry_after: object) -> float | None:
    value = str(retry_after or "")
    return float(value) if value.isdigit() else None
