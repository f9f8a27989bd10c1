"""One HTTP connection, and how many may be open: in all, without a key from one address, and with one key.

Requests that are not HTTP or never complete, data after an answer, and idle connections end it.
A caller without a key never keeps anybody out: where all connections are taken, the address that has most of them without a key
loses its oldest. Those with a key leave a quarter free, in which `/healthz` and new callers come in.
"""

import asyncio
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.api.http.callers import network_of
from gateway.api.http.errors import common_headers, invalid, unavailable
from gateway.observe.logging import get_logger

log = get_logger(__name__)

_LOG_SECONDS = 60
_OTHER_FILES = 160
"""Databases, logs, connections to the model and to platforms, and connections that wait to be accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionShares:
    """`per_address`: without a key. Those with a key may have three quarters of `total`, of which one key gets three quarters."""

    total: int = 1_000
    per_address: int = 500

    @property
    def with_key(self) -> int:
        return max(1, self.total * 3 // 4)

    @property
    def one_key(self) -> int:
        return max(1, self.with_key * 3 // 4)


def possible_connections(wanted: int) -> int:
    """Returns as many as wanted, or fewer where the process may not have as many files open; some are for everything else."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY or wanted + _OTHER_FILES <= allowed:
        return wanted
    found = max(16, allowed - _OTHER_FILES)
    log.warning("api.few_files", connections=found, wanted=wanted, open_files=allowed)
    return found


class ConnectionLimits:
    """Decides which connection is closed when there are too many. Made for one server."""

    def __init__(self, shares: ConnectionShares, clock: Callable[[], float] = time.monotonic) -> None:
        self._shares = shares
        self._clock = clock
        # Whether a key is known, and the key or else the address; in the order in which they came.
        self._callers: dict[Connection, tuple[bool, str]] = {}
        self._next_log_at = 0.0
        self._displaced = 0

    @property
    def count(self) -> int:
        return len(self._callers)

    def opened(self, connection: "Connection") -> None:
        """Registers a new connection, of which only the address is known. Closes the oldest one of its kind if there are too many, an idle one
        if possible."""
        self._callers[connection] = (False, connection.address)
        groups = self._groups(have_key=False)
        crowd = groups[connection.address]
        if len(crowd) <= self._shares.per_address:
            if self.count <= self._shares.total:
                return
            crowd = max(groups.values(), key=len)
        others = [other for other in crowd if other is not connection]
        if not self._close_idle(others):
            self._close(next(iter(others), connection))

    def identified(self, connection: "Connection", key: str) -> bool:
        """Registers the key of a connection. Returns False when the key, or all keys together, have too many connections in use."""
        if self._callers.get(connection) == (True, key):
            return True
        groups, crowd = self._groups(have_key=True), None
        if len(groups[key]) >= self._shares.one_key:
            crowd = groups[key]
        elif sum(map(len, groups.values())) >= self._shares.with_key:
            crowd = max(groups.values(), key=len)
        # An idle connection makes room, because clients keep some open between calls; only those in use count against a caller.
        if crowd is not None and not self._close_idle(crowd):
            return False
        self.closed(connection)
        self._callers[connection] = (True, key)
        return True

    def closed(self, connection: "Connection") -> None:
        self._callers.pop(connection, None)

    def _groups(self, *, have_key: bool) -> Mapping[str, "list[Connection]"]:
        """Returns the connections of each key, or of each address without one; the oldest come first."""
        found = defaultdict[str, list[Connection]](list)
        for connection, (has_key, name) in self._callers.items():
            if has_key is have_key:
                found[name].append(connection)
        return found

    def _close_idle(self, candidates: "Iterable[Connection]") -> bool:
        idle = next((other for other in candidates if not other.busy), None)
        if idle is not None:
            self._close(idle)
        return idle is not None

    def _close(self, connection: "Connection") -> None:
        self.closed(connection)
        connection.force_close()
        self._displaced += 1
        if self._clock() >= self._next_log_at:  # whoever goes on must not fill the log
            self._next_log_at = self._clock() + _LOG_SECONDS
            log.warning("connections.too_many", closed=self._displaced, open=self.count, remote=connection.address)
            self._displaced = 0


_LINGER_SECONDS = 2.0
"""How long the rest of a body is read and thrown away after a refusal: a close at once would take the answer away from a caller who still sends."""
_READ_AT_ONCE = 65_536
_MOST_UNASKED_BYTES = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTimes:
    """Seconds. `head`: until the first request is there. The others: between two requests, with and without a key."""

    head: float = 10
    with_key: float = 75
    without_key: float = 5


class Connection(web.RequestHandler):
    """Refuses bad requests in the API's error format. What strangers send is neither echoed nor logged. Bodies are not decompressed: a
    small one may expand to gigabytes.
    """

    def __init__(self, manager: web.Server, *, limits: ConnectionLimits, idle: IdleTimes, **options: Any) -> None:
        super().__init__(
            manager,
            keepalive_timeout=idle.with_key,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,
            read_bufsize=_READ_AT_ONCE // 2,
            **options,
        )
        self._limits = limits
        self._idle = idle
        self._close_timer: asyncio.TimerHandle | None = None
        self._unasked_bytes = 0
        self._has_key = False
        self._when_lost: list[Callable[[], object]] = []
        self.address = ""

    @property
    def busy(self) -> bool:
        """Returns whether a request of this connection is being answered."""
        return self._request_in_progress

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # What is read before a body is asked for lies in memory, for each of up to a thousand connections.
        transport.max_size = _READ_AT_ONCE  # pyright: ignore[reportAttributeAccessIssue]
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = network_of(str(peer[0])) if isinstance(peer, tuple) else ""  # pyright: ignore[reportUnknownArgumentType]
        self._close_after(self._idle.head)
        self._limits.opened(self)

    def data_received(self, data: bytes) -> None:
        # What arrives while no request is answered: a refused body that goes on, a request whose head never ends.
        self._unasked_bytes = 0 if self.busy else self._unasked_bytes + len(data)
        if self._unasked_bytes > _MOST_UNASKED_BYTES:
            self.force_close()
            return
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._cancel_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_close()
        self._limits.closed(self)
        for callback in self._when_lost:
            callback()
        self._when_lost.clear()
        super().connection_lost(exc)

    def when_lost(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Calls `callback` when the caller has left, at once if it has left already. Returns a function that cancels this."""
        if self.transport is None:
            callback()
            return lambda: None
        self._when_lost.append(callback)
        return lambda: self._when_lost.remove(callback) if callback in self._when_lost else None

    def admit(self, key: str) -> bool:
        """Notes the key of the request. Returns False when the key has too many connections open."""
        self._has_key = self._limits.identified(self, key)
        return self._has_key

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):  # raised by aiohttp, before the middleware
            answer = invalid("This request cannot be answered. Check its headers.").response()
            log.debug("request.refused_early", status=resp.status)
            answer.headers.update(common_headers())
            resp = answer
        finished = await super().finish_response(request, resp, start_time)
        if not self._has_key:
            self._close_after(self._idle.without_key)  # aiohttp's own timer has the longer time of callers with a key
        return finished

    def _close_after(self, seconds: float) -> None:
        self._cancel_close()
        self._close_timer = self._loop.call_later(seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self.busy:
            self.force_close()

    def _cancel_close(self) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None

    def handle_error(  # `message` would echo what was sent
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc  # nobody is there to be answered
        if status == 400:
            log.debug("request.unreadable", remote=request.remote, error=type(exc).__name__)
            refusal = invalid("This is no HTTP request that can be read. Check its first line and its headers.")
        else:
            log.error("request.failed", exc_info=exc)
            refusal = unavailable("Something went wrong inside. The gateway's log says what.", code="internal_error")
        if request.writer.output_size > 0:  # a second status line would be read as a part of the body
            raise ConnectionError("a part of the answer is sent already")
        answer = refusal.response()
        answer.headers.update(common_headers())  # no hook of the application sees this answer
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Not logged: a body that cannot be read is the caller's fault."""
        error = kw.get("exc_info")
        if isinstance(error, web.RequestPayloadError):
            log.debug("request.unreadable", error=type(error).__name__)
        else:
            super().log_exception(*args, **kw)


def connection_of(request: web.BaseRequest) -> Connection:
    """Returns the connection on which a request arrived."""
    if not isinstance(request.protocol, Connection):
        raise TypeError("this request was not received by our server")
    return request.protocol


class _Server(web.Server):
    def __init__(self, like: web.Server, limits: ConnectionLimits, idle: IdleTimes) -> None:
        super().__init__(like.request_handler, request_factory=like.request_factory)
        self._limits = limits
        self._idle = idle

    def __call__(self) -> Connection:
        return Connection(self, limits=self._limits, idle=self._idle, loop=self._loop, access_log=None)


class Runner(web.AppRunner):
    """Runs an application on connections of our own."""

    def __init__(
        self, app: web.Application, *, limits: ConnectionLimits, idle: IdleTimes, shutdown_timeout: float
    ) -> None:
        super().__init__(app, handle_signals=False, shutdown_timeout=shutdown_timeout)
        self._limits = limits
        self._idle = idle

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self._limits, self._idle)
