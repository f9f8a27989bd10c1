"""Opens the HTTP server while a block lasts, and closes it in order.

What every request passes before its endpoint: host check, key, scope, throttle; every error gets its format here.
"""

import asyncio
import contextlib
import errno
import math
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from structlog.contextvars import bind_contextvars, clear_contextvars

from gateway.api import jobs, operations
from gateway.api.http.callers import NOBODY, CallerKey, find_key, from_this_machine, network_of
from gateway.api.http.connection import Runner, connection_of
from gateway.api.http.endpoint import DECLARED, Endpoint, EndpointAccess, handle
from gateway.api.http.errors import REQUEST_ID, ApiError, common_headers, invalid, new_request_id, unavailable
from gateway.api.http.server_state import ServerState
from gateway.api.openai import chat, responses, stored_responses
from gateway.api.threads import deployments, runs
from gateway.config.sections import KEY_LENGTH, is_loopback
from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import audit, spending
from sessions.errors import Busy, DayLimitReached, Invalid, MayNotApprove, NotFound, Unusable

log = get_logger(__name__)


_MODULES = (chat, responses, stored_responses, deployments, runs, jobs, operations)
ENDPOINTS = [each for module in _MODULES for each in DECLARED if each.function.__module__ == module.__name__]
"""In the order in which they are described."""

_BACKLOG = 64
"""How many connections are accepted at once, before the oldest ones are closed."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@contextlib.asynccontextmanager
async def serving(
    server: ServerState, host: str, port: int, pages: Handler | None = None, *, shares_port: bool = False
) -> AsyncGenerator[ServerAddress]:
    """Serves while the block lasts. `port` 0: any free port. `pages`: answers what comes below /ui, and checks by itself who may see it.
    `shares_port`: other processes of this machine listen there, too. Raises
    Invalid when it may not or cannot listen there."""
    refuse_unsafe(server.app.keys, host)
    shutdown = server.intervals.shutdown
    runner = Runner(_application(server, pages), limits=server.connections, idle=server.idle, shutdown_timeout=shutdown)
    await runner.setup()
    try:
        yield await _listen(runner, host, port, shares_port=shares_port)
    finally:
        # Streams first: aiohttp waits for requests that go on, and a stream would go on until it is cut off.
        server.closing.set()
        server.hub.wake_readers()  # its readers end at once and resume later
        await runner.cleanup()
        server.close()


def refuse_unsafe(keys: Sequence[CallerKey], host: str) -> None:
    """Raises Invalid where other machines could get in with a key that can be guessed."""
    if is_loopback(host):
        return
    if not keys or any(key.name == "local" or len(key.secret) < KEY_LENGTH for key in keys):
        raise Invalid(
            f"{host} can be reached from other machines: configure api.keys with keys of {KEY_LENGTH} characters"
            " or more, or listen on 127.0.0.1."
        )


def _application(server: ServerState, pages: Handler | None) -> web.Application:
    known: dict[Handler, Endpoint] = {}
    app = web.Application(middlewares=[middleware(server, known, pages)])
    app.on_response_prepare.append(add_common_headers)

    async def expect_nothing(_: web.Request) -> None:
        """Whoever waits for `100 Continue` is told so when the body is read, after the key; other expectations count for nothing."""

    for endpoint in ENDPOINTS:
        # Each route gets a function of its own, by which the middleware finds the endpoint that the router has chosen.
        async def handler(request: web.Request) -> web.StreamResponse:
            raise AssertionError(f"{request.path} is answered by the middleware")

        known[handler] = endpoint
        has_head = endpoint.method == "GET" and endpoint.responses.get(200) != "text/event-stream"
        for method in (endpoint.method, *(("HEAD",) if has_head else ())):
            app.router.add_route(method, endpoint.path, handler, expect_handler=expect_nothing)
    if pages is not None:
        app.router.add_route("*", "/ui{below:(/.*)?}", pages, expect_handler=expect_nothing)
    return app


async def _listen(runner: web.AppRunner, host: str, port: int, *, shares_port: bool) -> ServerAddress:
    site = web.TCPSite(runner, host.strip("[]"), port, backlog=_BACKLOG, reuse_port=shares_port or None)
    try:
        await site.start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            holder = await asyncio.to_thread(who_listens, port)
            by = f" by {holder}" if holder else ""
            ours = (
                "If that is the service, `hermes gateway stop` stops it; otherwise stop" if "hermes" in by else "Stop"
            )
            raise Invalid(f"Port {port} is taken{by}. {ours} that program, or set api.port to another.") from error
        raise Invalid(f"Cannot listen on {host}:{port}: {error.strerror or error}. Check api.host.") from error
    bound = runner.addresses[0]
    return ServerAddress(str(bound[0]), int(bound[1]))


def who_listens(port: int) -> str:
    """Returns the program that listens on this port; empty where the system does not tell it. Blocks."""
    inodes = {inode for name in ("tcp", "tcp6") for inode in _listening(Path("/proc/net") / name, port)}
    if not inodes:
        return ""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if any(str(link.readlink()) in wanted for link in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return ""


def _listening(table: Path, port: int) -> list[str]:
    with contextlib.suppress(OSError):
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
        # See proc(5): column 1 is the local address, 3 the state (0A: listening), 9 the inode of the socket.
        return [row[9] for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port]
    return []


# --- what every request passes ---


def identify(server: ServerState, request: web.Request) -> CallerKey:
    """Returns the key of the request. Raises ApiError when there is no valid one."""
    scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not presented.strip():
        raise _denied("Send the key as Authorization: Bearer KEY. A browser can open /ui and /docs.")
    key = find_key(server.app.keys, presented.strip())
    if key is not None:
        return key
    where = network_of(request.remote or "")
    already_logged = server.wrong_keys.is_throttled(where)
    wait = server.wrong_keys.take(where)
    if not already_logged:  # whoever goes on must not fill the log
        log.warning("auth.throttled" if wait else "auth.denied", remote=request.remote, path=request.path)
    if wait:
        raise _slow_down("Too many wrong keys from this address.", wait, code="too_many_wrong_keys")
    raise _denied("This key is not known. It is in the file api_key of the home, or among api.keys.")


def _denied(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _slow_down(message: str, seconds: float, *, code: str) -> ApiError:
    return ApiError(429, message, code=code, headers={"Retry-After": str(max(1, math.ceil(seconds)))})


def admit(server: ServerState, endpoint: Endpoint | None, request: web.Request) -> CallerKey:
    """Returns the key of the caller. Raises ApiError when it may not call this. Unknown paths need a key too, so that nobody can probe."""
    access = EndpointAccess.KEY if endpoint is None else endpoint.access
    if access is EndpointAccess.HOOK:  # a proxy may pass it on under any host; the platform signs what it sends
        return NOBODY
    server.host_check.check(request)
    if access is EndpointAccess.OPEN or (access is EndpointAccess.HERE and from_this_machine(request)):
        return NOBODY
    key = identify(server, request)
    if not connection_of(request).admit(key.name):
        raise _slow_down("This key has too many connections open.", 1, code="too_many_connections")
    if wait := server.calls.take(key.name):
        raise _slow_down("This key calls too often.", wait, code="rate_limited")
    if endpoint is not None and endpoint.scopes and not key.scopes.intersection(endpoint.scopes):
        raise ApiError(403, f"This key lacks the scope {' or '.join(endpoint.scopes)}.", code="scope_missing")
    return key


def middleware(server: ServerState, endpoints: Mapping[Handler, Endpoint], pages: Handler | None = None) -> Middleware:
    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        endpoint = endpoints.get(request.match_info.handler)
        request[REQUEST_ID] = new_request_id()
        clear_contextvars()
        bind_contextvars(request_id=request[REQUEST_ID])  # each request is a task of its own
        if pages is not None and request.match_info.handler is pages:
            return await handler(request)
        key = NOBODY
        try:
            key = admit(server, endpoint, request)
            if endpoint is None:
                return await handler(request)  # it raises what the router found: 404 or 405
            return await handle(endpoint, server, request, key)
        except ConnectionError:  # nobody is there to be answered
            raise
        except (MayNotApprove, DayLimitReached) as error:
            await record_refusal(server.app, error, key.account)
            return error_response(error, request).response()
        except Exception as error:  # noqa: BLE001  # the edge: whatever it is, the caller gets an answer and the daemon goes on
            return error_response(error, request).response()

    return guarded


async def record_refusal(app: App, error: MayNotApprove | DayLimitReached, who: str) -> None:
    """Writes what the audit has of a refusal, whose own transaction was rolled back."""
    match error:
        case MayNotApprove():
            await app.database.write(audit.record, app.clock(), who, "approval.refused", error.about, "no scope for it")
        case DayLimitReached():
            await app.database.write(spending.record_reached, error, app.clock())


async def add_common_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the headers that every answer has, just before it is sent."""
    response.headers.update(common_headers(request.get(REQUEST_ID)))


def _hint(request: web.Request) -> str:
    """Returns where it may be instead, for who has written the base URL without /v1, or twice with it."""
    path = re.sub(r"^(/v1|/api)+(?=/)|/$", "", request.path)
    first = path.split("/")[1] if path else ""
    for prefix in ("/v1", "/api"):
        if any(endpoint.path.split("/")[1:3] == [prefix[1:], first] for endpoint in ENDPOINTS):
            return f"It may be {prefix}{path[:80]}."
    what = "" if request.path.startswith("/v1/") else "The base URL of an OpenAI client ends with /v1. "
    return f"{what}/docs lists all there is, and a browser can open /ui."


def error_response(error: Exception, request: web.Request) -> ApiError:
    match error:
        case ApiError():
            return error
        case web.HTTPMethodNotAllowed():
            headers = {"Allow": error.headers.get("Allow", "")}
            what = (
                f"{request.method} does not work here; {' and '.join(sorted(error.allowed_methods - {'HEAD'}))} does."
            )
            return ApiError(405, what, code="method_not_allowed", headers=headers)
        case web.HTTPNotFound():
            return ApiError(404, f"There is nothing at this address. {_hint(request)}", code="not_found")
        case NotFound():
            return ApiError(404, str(error), code="not_found")
        case Busy():
            return ApiError(409, str(error), code="busy")
        case MayNotApprove():
            return ApiError(403, str(error), code="forbidden")
        case DayLimitReached():
            return ApiError(429, str(error), code="daily_limit", headers={"Retry-After": str(error.seconds)})
        case Invalid():
            return invalid(str(error))
        case Unusable():
            return unavailable(str(error), code="database_unavailable")
        case _:
            log.error("request.failed", path=request.path, exc_info=error)
            return unavailable("Something went wrong inside. The gateway's log says what.", code="internal_error")
