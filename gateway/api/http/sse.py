"""The response that carries server-sent events, whatever they are (`Last-Event-ID`: `threads/runs.py`).

It starts late, so that an early error has its own status; comments keep it alive.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

KEEP_ALIVE = b": keep-alive\n\n"


class EventStream:
    """One response that is written event by event. Raises ConnectionError when the reader has left.

    `permit` is called before each event and raises ApiError if the reader may no longer read.
    """

    def __init__(
        self, request: web.Request, permit: Callable[[], object], headers: Mapping[str, str] | None = None
    ) -> None:
        self._request = request
        self._permit = permit
        self.response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache, no-transform",  # a proxy that compresses would hold events back
                "X-Accel-Buffering": "no",  # the same for nginx, which collects answers by default
                **(headers or {}),
            }
        )

    @property
    def started(self) -> bool:
        return self.response.prepared

    async def write(self, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Writes the data, and before the first of it the headers of the response. `headers` count only then."""
        self._permit()
        if not self.started:
            self.response.headers.update(headers or {})
            await self.response.prepare(self._request)
        await self.response.write(data)

    async def keep_alive(self) -> None:
        await self.write(KEEP_ALIVE)

    async def fail(self, data: bytes) -> None:
        """Writes the error as the last event, whatever the reader may still read."""
        await self.response.write(data)
        await self.response.write_eof()

    def abort(self) -> None:
        """Closes the connection now. A write that is under way raises ConnectionError."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def end(self) -> None:
        await self.response.write_eof()


def as_data(value: Mapping[str, Any], event: str | None = None) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {text}\n\n".encode()
