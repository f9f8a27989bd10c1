"""Server-sent events: started late, so that an early error still has its own status, and kept alive by comments."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

KEEP_ALIVE = b": keep-alive\n\n"


class EventStream:
    """One answer that is written bit by bit. Writing raises ConnectionError when the reader has gone.

    `permit` is asked before each bit whether the reader may still have it, and raises ApiError if not.
    """

    def __init__(
        self, request: web.Request, permit: Callable[[], object], headers: Mapping[str, str] | None = None
    ) -> None:
        self._request = request
        self._permit = permit
        self._response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache, no-transform",
                "X-Accel-Buffering": "no",
                **(headers or {}),
            }
        )

    @property
    def begun(self) -> bool:
        return self._response.prepared

    @property
    def response(self) -> web.StreamResponse:
        return self._response

    async def write(self, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """`headers` count only for the first write."""
        self._permit()
        if not self.begun:
            self._response.headers.update(headers or {})
            await self._response.prepare(self._request)
        await self._response.write(data)

    async def keep_alive(self) -> None:
        await self.write(KEEP_ALIVE)

    async def fail(self, data: bytes) -> None:
        """The last words to a reader, whatever it may still have."""
        await self._response.write(data)
        await self._response.write_eof()

    def abort(self) -> None:
        """Now, with whatever the reader has not taken. What is being written raises ConnectionError."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def end(self) -> None:
        await self._response.write_eof()


def as_data(value: Mapping[str, Any], event: str | None = None) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {text}\n\n".encode()
