"""Opens the HTTP server while a block lasts, and closes it in order."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.api import health, jobs, webhooks
from gateway.api.http.callers import CallerKey
from gateway.api.http.connection import Runner
from gateway.api.http.endpoint import DECLARED, Endpoint
from gateway.api.http.middleware import add_common_headers, middleware
from gateway.api.http.server_state import ServerState
from gateway.api.openai import chat, responses, stored_responses
from gateway.api.threads import deployments, runs
from gateway.config.sections import KEY_LENGTH, is_loopback
from sessions.errors import Invalid

_MODULES = (chat, responses, stored_responses, deployments, runs, jobs, health, webhooks)
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
async def serving(server: ServerState, host: str, port: int) -> AsyncGenerator[ServerAddress]:
    """Serves while the block lasts. `port` 0: any free port. Raises Invalid when it may not or cannot listen there."""
    refuse_unsafe(server.app.keys, host)
    app, shutdown = _application(server, ENDPOINTS), server.intervals.shutdown
    runner = Runner(app, limits=server.connections, idle=server.idle, shutdown_timeout=shutdown)
    await runner.setup()
    try:
        yield await _listen(runner, host, port)
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


def _application(server: ServerState, endpoints: Sequence[Endpoint]) -> web.Application:
    known: dict[Handler, Endpoint] = {}
    app = web.Application(middlewares=[middleware(server, known)])
    app.on_response_prepare.append(add_common_headers)
    for endpoint in endpoints:
        # Each route gets a function of its own, by which the middleware finds the endpoint that the router has chosen.
        async def handler(request: web.Request) -> web.StreamResponse:
            raise AssertionError(f"{request.path} is answered by the middleware")

        known[handler] = endpoint
        for method in (endpoint.method, *(("HEAD",) if _has_head(endpoint) else ())):
            app.router.add_route(method, endpoint.path, handler, expect_handler=_expect_nothing)
    return app


def _has_head(endpoint: Endpoint) -> bool:
    return endpoint.method == "GET" and endpoint.responses.get(200) != "text/event-stream"


async def _expect_nothing(_: web.Request) -> None:
    """Whoever waits for `100 Continue` is told so when the body is read, after the key; other expectations count for nothing."""


async def _listen(runner: web.AppRunner, host: str, port: int) -> ServerAddress:
    site = web.TCPSite(runner, host.strip("[]"), port, backlog=_BACKLOG)
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
