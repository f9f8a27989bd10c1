"""Turns errors of Discord's library into those of the contract. No message holds the token."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import aiohttp
import discord

from adapters.base import DeliveryError, TryLater, Unauthorized, Undeliverable

BAD_TOKEN = (
    "Discord does not accept the token. Make a new one (discord.com/developers → your app → Bot → Reset Token) "  # noqa: S105
    "and set platforms.discord.token."
)
NO_INTENT = (
    "Discord cannot read messages: the intent “Message Content” is off. Switch it on: discord.com/developers → your app → Bot → "
    "Message Content Intent."
)
_NEVER_WRITTEN = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)


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
    except _NEVER_WRITTEN as error:
        raise TryLater(f"Discord cannot be reached ({type(error).__name__}).") from None
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:  # noqa: UP041  # the library names both
        raise TryLater(f"Discord did not answer ({type(error).__name__}).", ambiguous=True) from None


def _translate(error: discord.DiscordException) -> DeliveryError:
    match error:
        case discord.RateLimited():
            return TryLater("Discord asks to wait.", after=error.retry_after)
        case discord.LoginFailure():
            return Unauthorized(BAD_TOKEN)
        case discord.PrivilegedIntentsRequired():
            return Unauthorized(NO_INTENT)
        case discord.ConnectionClosed():
            return _closed(error.code)
        case discord.GatewayNotFound():
            return TryLater("Discord has an outage.")
        case discord.HTTPException():
            return _answered(error)
        case _:
            return TryLater(f"Discord gave an answer that cannot be read ({type(error).__name__}).", ambiguous=True)


def _answered(error: discord.HTTPException) -> DeliveryError:
    if error.status == 401:
        return Unauthorized(BAD_TOKEN)
    if error.status == 429:
        return TryLater("Discord asks to wait.", after=_seconds(error) or 5.0)
    if error.status >= 500:
        return TryLater(f"Discord has an outage ({error.status}).")
    return DiscordRefusal(error.status, error.code, (error.text or "no reason given").splitlines()[0][:200])


def _closed(code: int | None) -> DeliveryError:
    if code == 4014:  # disallowed intents; 4004 below: authentication failed
        return Unauthorized(NO_INTENT)
    return Unauthorized(BAD_TOKEN) if code == 4004 else TryLater(f"Discord has closed the connection ({code}).")


def _seconds(error: discord.HTTPException) -> float | None:
    value = error.response.headers.get("Retry-After", "")
    try:
        return float(value)
    except ValueError:
        return None
