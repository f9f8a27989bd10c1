"""Limits what an endpoint may send, before anything looks at it. Imported with the client library, of which `httpx2` is the other half."""

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2

ERROR_BYTES = 65_536
LEAST_BYTES = 4_194_304
"""Of an answer that comes as a whole, or of one event of a stream."""
_ENDS_OF_EVENTS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class AnswerRefused(Exception):
    """What the endpoint sends is not read. The text continues a sentence that begins with its name."""


def limiting(answer_bytes: int) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Returns the hook that sees the head of every response. `answer_bytes`: of the text that an answer may have."""
    most = max(LEAST_BYTES, 4 * answer_bytes)  # its JSON is larger

    async def limit(response: httpx2.Response) -> None:
        # Unpacked, a megabyte may become a gigabyte.
        if (packed := response.headers.get("content-encoding", "identity").strip().lower()) not in {"", "identity"}:
            raise AnswerRefused(f"packs its answers ({packed[:20]}), although it was asked for plain ones.")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _LimitedStream(response, response.stream, most)

    return limit


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of a response. Of an error only the beginning is of use; an answer that is too large is refused."""

    def __init__(self, response: httpx2.Response, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._is_error = not response.is_success
        self._has_events = "event-stream" in response.headers.get("content-type", "")
        self._most = ERROR_BYTES if self._is_error else most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, tail = 0, b""
        async for piece in self._stream:
            size += len(piece)
            if self._has_events and not self._is_error:
                seen = tail + piece  # what ends an event may arrive in two pieces
                ends = [seen.rfind(end) + len(end) for end in _ENDS_OF_EVENTS if end in seen]
                size, tail = len(seen) - max(ends) if ends else size, seen[-3:]
            if size > self._most:
                if self._is_error:
                    return
                raise AnswerRefused(f"sent more than {self._most:,} bytes in one answer.")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
