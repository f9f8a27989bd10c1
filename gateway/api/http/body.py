"""Reads request bodies in pieces, with a limit and a least speed. Large bodies are kept in a file until they are complete.

Only so many large ones are read at once: a caller with a key waits for a place, and nothing of its body is read before. Of bodies that
nobody vouches for, because their signature is checked when they are whole, the newest are read and the oldest gives way. A budget of
bytes bounds what is held of all of them.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from aiohttp import ClientError, hdrs, web

from gateway.api.http.errors import ApiError, invalid, too_large, unavailable

_PIECE = 65_536
_IN_MEMORY = 65_536
"""Bytes. Larger bodies are kept in a file."""
_BATCH = 262_144
_PATIENCE = 2
"""Whoever waits for a place outlasts those who hold one and send nothing."""
_SLOWEST = 65_536
"""Bytes a second that a caller has to send at least."""


class ReadingRate:
    """Limits how many bytes of all large bodies are read in a second, so that they leave the event loop and the processor to other calls."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._next = 0.0

    async def wait(self, size: int) -> None:
        """Returns when these bytes had their time."""
        # The time is taken before the sleep, so that bodies that wait at once follow one another.
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now) + size / self._per_second
        await asyncio.sleep(self._next - now)


class ReadingPlaces(Protocol):
    """How many large bodies are read at once."""

    def acquire(self, caller: str, /) -> AbstractAsyncContextManager[None]:
        """Waits for a place and holds it while the block lasts. Raises TimeoutError in a block that has to give it up."""
        ...


class NewestFirst:
    """So many places for callers who are not known yet. Whoever comes gets one, and the oldest gives way: a crowd that never finishes keeps
    nobody out who sends at once.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._reading: dict[asyncio.Timeout, None] = {}  # the oldest first

    @asynccontextmanager
    async def acquire(self, _caller: str, /) -> AsyncGenerator[None]:
        if len(self._reading) >= self._total:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            oldest.reschedule(0)
        async with asyncio.timeout(None) as place:
            self._reading[place] = None
            try:
                yield
            finally:
                self._reading.pop(place, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyRules:
    """How bodies of one caller are read. `folder`: for files without a name. `places`, `rate`: of large ones, how many are read at once, and
    how fast. `seconds`: how long the sender may be behind the least speed. `done`: is called when a large one is not needed any more."""

    folder: Path
    places: ReadingPlaces
    rate: ReadingRate
    caller: str
    limit: int
    seconds: float
    done: Callable[[], None]


class Body:
    """A complete body, in memory or in a file. `size` in bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file: IO[bytes] | None = None
        self.size = 0

    async def add(self, piece: bytes) -> None:
        self._waiting.append(piece)
        self._waiting_bytes += len(piece)
        self.size += len(piece)
        if self._waiting_bytes > (_BATCH if self._file is not None else _IN_MEMORY):
            await asyncio.to_thread(self._write)

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # closed by `close`
        self._file.writelines(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0

    def pieces(self) -> Iterator[bytes]:
        """Yields the whole body in pieces. Blocks."""
        if self._file is None:
            yield from self._waiting
            return
        self._write()
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece

    def read(self) -> bytes:
        """Returns the whole body. Blocks when it is large."""
        return b"".join(self.pieces())

    def close(self) -> None:
        self._waiting.clear()
        if self._file is not None:
            self._file.close()


@asynccontextmanager
async def read_body(request: web.Request, rules: BodyRules) -> AsyncGenerator[Body]:
    """Reads the body of a request and keeps it while the block lasts. Raises ApiError when it is compressed, too large or too slow."""
    # Unpacked, a few kilobytes may become gigabytes; so nothing is unpacked.
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower() != "identity":
        raise ApiError(
            415,
            "Send the body as it is, without Content-Encoding.",
            code="packed_body",
            param="Content-Encoding",
            headers={"Accept-Encoding": "identity", "Connection": "close"},
        )
    if (request.content_length or 0) > rules.limit:
        raise too_large(_too_large(rules.limit))
    body, is_large = Body(rules.folder), False
    try:
        async with AsyncExitStack() as place:
            if is_large := (request.content_length or 0) > _IN_MEMORY:
                await _wait_for_place(rules, place)
            async for piece in _pieces(request, rules):
                if body.size + len(piece) > rules.limit:
                    raise too_large(_too_large(rules.limit))
                if not is_large and body.size + len(piece) > _IN_MEMORY:  # it did not say how long it is
                    is_large = True
                    await _wait_for_place(rules, place)
                await body.add(piece)
                if is_large:
                    await rules.rate.wait(len(piece))
            yield body
    except TimeoutError:
        raise unavailable(
            "Too many large bodies arrive at once. Send fewer at a time.", code="too_much_at_once", after=2
        ) from None
    finally:
        body.close()
        if is_large:
            rules.done()


async def _wait_for_place(rules: BodyRules, place: AsyncExitStack) -> None:
    """Takes a place that is given back when `place` closes. Raises TimeoutError when none becomes free in time."""
    async with asyncio.timeout(_PATIENCE * rules.seconds):
        await place.enter_async_context(rules.places.acquire(rules.caller))


async def _pieces(request: web.Request, rules: BodyRules) -> AsyncIterator[bytes]:
    """Yields the pieces of the body as they arrive. Raises ApiError when the sender is behind the least speed for too long."""
    clock, left = asyncio.get_running_loop().time, rules.seconds
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # not earlier: the key has been checked by now
        request.writer.output_size = 0  # nothing of the answer is sent yet
    try:
        while True:
            began = clock()
            try:
                async with asyncio.timeout(left):
                    piece = await request.content.read(_PIECE)
            except TimeoutError:
                raise invalid(
                    f"The body arrives too slowly: nothing for {left:.3g} seconds.", code="too_slow"
                ) from None
            if not piece:
                return
            # Waiting for a place is not the sender's time.
            left = min(rules.seconds, left - (clock() - began) + len(piece) / _SLOWEST)
            yield piece
    except (ClientError, web.RequestPayloadError, ConnectionError) as error:
        raise invalid(f"The body cannot be read: {error}", code="bad_body") from error


def _too_large(limit: int) -> str:
    return f"The body is larger than {limit:,} bytes. Send less at once."


def require_json(request: web.Request) -> None:
    """Raises ApiError when the content type is not JSON. A web page can send forms and plain text to any address without permission, but not
    JSON."""
    if request.content_type != "application/json":
        raise invalid("Send the body as JSON, with Content-Type: application/json.", code="not_json")


class ByteBudget:
    """`total` bytes, of which one name may hold half (or one single piece, however large)."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = Counter[str]()
        self._freed = asyncio.Condition()

    @property
    def used(self) -> int:
        return self._taken.total()

    def take(self, name: str, size: int) -> bool:
        """Takes the bytes. Returns False when they are not free now."""
        mine = self._taken[name]
        # A name that holds nothing may take a piece of any size while nobody else holds one; else a large body could never be taken.
        if mine and (self.used + size > self._total or mine + size > self._total // 2):
            return False
        if not mine and self.used and self.used + size > self._total:
            return False
        self._taken[name] += size
        return True

    def give_back(self, name: str, size: int) -> None:
        self._taken[name] -= size
        if not self._taken[name]:
            del self._taken[name]

    @asynccontextmanager
    async def acquire(self, name: str, size: int, seconds: float) -> AsyncGenerator[None]:
        """Waits for the bytes and holds them while the block lasts. Raises TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds), self._freed:
            await self._freed.wait_for(lambda: self.take(name, size))
        try:
            yield
        finally:
            self.give_back(name, size)
            async with self._freed:
                self._freed.notify_all()
