"""Reading what a caller sends, in pieces, with a limit and a deadline."""

import asyncio

from aiohttp import ClientError, web

from gateway.api.errors import invalid, too_large

_PIECE = 65_536
_SLOWEST = 65_536
"""Bytes a second, for bodies whose length is told."""


async def read_body(request: web.Request, limit: int, seconds: float) -> bytes:
    """Raises ApiError for what is too large or too slow."""
    if (request.content_length or 0) > limit:
        raise too_large(_too_large(limit))
    seconds += (request.content_length or 0) / _SLOWEST
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.content.iter_chunked(_PIECE):
                size += len(piece)
                if size > limit:
                    raise too_large(_too_large(limit))
                pieces.append(piece)
    except TimeoutError:
        raise invalid(f"The body did not arrive within {seconds:.3g} seconds.", code="too_slow") from None
    except (ClientError, web.RequestPayloadError, ConnectionError) as error:
        raise invalid(f"The body cannot be read: {error}", code="bad_body") from error
    return b"".join(pieces)


def _too_large(limit: int) -> str:
    return f"The body is larger than {limit:,} bytes. Send less at once."


def require_json(request: web.Request) -> None:
    """Forms and plain text are what a page can send without asking; so only JSON is taken."""
    if request.content_type != "application/json":
        raise invalid("Send the body as JSON, with Content-Type: application/json.", code="not_json")
