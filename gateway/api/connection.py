"""One connection, before a request of it reaches the gate: heads that are no HTTP, or never end."""

import asyncio
from typing import Any

from aiohttp import web

from gateway.api.errors import invalid, unavailable
from gateway.observe.logging import get_logger

log = get_logger(__name__)


class Connection(web.RequestHandler):
    """Refuses in the usual shape. What strangers send is neither echoed nor worth a line in the log."""

    def __init__(self, manager: web.Server, *, head_seconds: float, **options: Any) -> None:
        super().__init__(manager, **options)
        self._head_seconds = head_seconds
        self._too_slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._too_slow = self._loop.call_later(self._head_seconds, self.force_close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._request_count:
            self._be_patient()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._be_patient()
        super().connection_lost(exc)

    def _be_patient(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None

    def handle_error(  # `message` would echo what was sent
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        if status == 400:
            log.debug("request.unreadable", remote=request.remote, error=type(exc).__name__)
            refusal = invalid("This is no HTTP request that can be read. Check its first line and its headers.")
        else:
            log.error("request.failed", exc_info=exc)
            refusal = unavailable("Something went wrong inside. The gateway's log says what.", code="internal_error")
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        answer = refusal.response()
        answer.headers["Server"] = "hermes-gateway"  # no hook of the application sees this answer
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """A body that cannot be unpacked is the caller's affair too."""
        error = kw.get("exc_info")
        if isinstance(error, web.RequestPayloadError):
            log.debug("request.unreadable", error=type(error).__name__)
        else:
            super().log_exception(*args, **kw)


_IDLE_SECONDS = 180
"""Between two requests of a connection; longer than proxies keep theirs, or they would send into a closing one."""


class _Server(web.Server):
    def __init__(self, like: web.Server, head_seconds: float) -> None:
        super().__init__(like.request_handler, request_factory=like.request_factory)
        self._head_seconds = head_seconds

    def __call__(self) -> Connection:
        return Connection(
            self, head_seconds=self._head_seconds, loop=self._loop, access_log=None, keepalive_timeout=_IDLE_SECONDS
        )


class Runner(web.AppRunner):
    """Runs an application on connections of our own."""

    def __init__(self, app: web.Application, *, head_seconds: float, shutdown_timeout: float) -> None:
        super().__init__(app, handle_signals=False, shutdown_timeout=shutdown_timeout)
        self._head_seconds = head_seconds

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self._head_seconds)
