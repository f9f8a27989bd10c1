"""What a start costs and what rest holds, seen from outside: the daemon and commands as processes, beside a bare import of the libraries."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientSession, web

from bench.table import ResultTable
from bench.wire import cpu_seconds, free_port, ready, resident_mb

IMPORTS = "import aiohttp, openai, sqlalchemy, pydantic"
ROUNDS = 7
REST_SECONDS = 10.0
HERMES = "-m", "gateway.cli.main"


@dataclass
class Home:
    """A home with an endpoint configured. The endpoint is this process, which notes that it was called."""

    path: Path
    port: int
    called: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def process(self, *arguments: str) -> AsyncGenerator[subprocess.Popen[bytes]]:
        quiet, environ = subprocess.DEVNULL, {**os.environ, "HERMES_HOME": str(self.path)}
        started = subprocess.Popen([sys.executable, *arguments], stdin=quiet, stdout=quiet, stderr=quiet, env=environ)
        try:
            yield started
        finally:
            started.terminate()
            await asyncio.to_thread(started.wait)

    async def cost_until(self, moment: Callable[[], Awaitable[object]], *arguments: str) -> float:
        """CPU seconds of a process until then."""
        async with self.process(*arguments) as started:
            await moment()
            return cpu_seconds(started.pid)

    async def cost(self, *arguments: str) -> float:
        """CPU seconds of a whole process."""
        before = os.times()
        async with self.process(*arguments) as started:
            assert await asyncio.to_thread(started.wait) == 0, arguments
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])

    async def until_ready(self) -> None:
        async with ClientSession() as http:
            await ready(http, f"http://127.0.0.1:{self.port}")

    async def until_called(self) -> None:
        self.called.clear()
        await self.called.wait()

    async def answer(self, _: web.Request) -> web.Response:
        self.called.set()
        message = {"role": "assistant", "content": "Good morning."}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


async def measure(table: ResultTable, home: Home) -> None:
    ask = *HERMES, "chat", "-q", "Good morning"
    starts: dict[str, tuple[str, Callable[[], Awaitable[float]]]] = {
        "/readyz": ("<= 1.2", lambda: home.cost_until(home.until_ready, *HERMES, "gateway", "run")),
        "chat -q, its first model call": ("<= 1.3", lambda: home.cost_until(home.until_called, *ask)),
    }
    looks: dict[str, tuple[str, Callable[[], Awaitable[float]]]] = {
        "gateway status": ("<= 0.7", lambda: home.cost(*HERMES, "gateway", "status")),
        "sessions why": ("<= 0.7", lambda: home.cost(*HERMES, "sessions", "why", "agent:main:telegram:dm")),
    }
    await home.cost("-m", "compileall", "-q", "adapters", "gateway", "sessions")  # as an installed package is
    await home.cost_until(home.until_ready, *HERMES, "gateway", "run")  # the first start of a home makes its database
    await compare(table, home, starts)
    async with home.process(*HERMES, "gateway", "run") as daemon:
        await home.until_ready()
        await asyncio.sleep(REST_SECONDS)
        await compare(table, home, looks)
        table.row("memory at rest", f"{resident_mb(daemon.pid):.0f} MB", "", None, "<= 90 MB")


async def compare(table: ResultTable, home: Home, costs: dict[str, tuple[str, Callable[[], Awaitable[float]]]]) -> None:
    """Alternately, as other work of the machine slows all of them down."""
    rounds = [[await home.cost("-c", IMPORTS), *[await cost() for _, cost in costs.values()]] for _ in range(ROUNDS)]
    imports, *found = (statistics.median(column) for column in zip(*rounds, strict=True))
    for (name, (aim, _)), cost in zip(costs.items(), found, strict=True):
        table.row(name, f"{cost:.2f} s", f"imports {imports:.2f} s", cost / imports, aim)


async def main() -> None:
    table = ResultTable("start and rest (CPU)")
    with tempfile.TemporaryDirectory() as folder:
        home, server = Home(Path(folder), free_port()), web.Application()
        server.router.add_post("/v1/chat/completions", home.answer)
        runner = web.AppRunner(server)
        await runner.setup()
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        model = {"base_url": f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "name": "m", "api_key": "k"}
        (home.path / "config.yaml").write_text(json.dumps({"model": model, "api": {"port": home.port}}))
        await measure(table, home)
        await site.stop()
        await runner.cleanup()
    print(table)


if __name__ == "__main__":
    asyncio.run(main())
