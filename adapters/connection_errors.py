"""What a call over aiohttp that failed without an answer means for a message."""

import aiohttp

from adapters.base import TryLater

NEVER_WRITTEN = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
"""Failures before the first byte was written. All others may have reached the platform, so the send is doubtful."""


def without_answer(platform: str, error: Exception) -> TryLater:
    """Returns the error of the contract for a call that got no answer; `platform`: its name for people."""
    if isinstance(error, NEVER_WRITTEN):
        return TryLater(f"{platform} cannot be reached ({type(error).__name__}).")
    return TryLater(f"{platform} did not answer ({type(error).__name__}).", ambiguous=True)
