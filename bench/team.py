"""One, two, four and eight workers on one PostgreSQL, with the same calls: what a message costs the processors of the workers and of the server
together, whether a session stays in order, and what runs that only wait cost.

The client, the model and PostgreSQL share the machine with the workers, so what counts is the processor time of a message; messages a second
say how much the machine as a whole can do. The more workers, the longer they are warmed up: each has connections of its own, with plans of their
own. `--apart` measures as many gateways that share nothing but the machine, too: the same calls cost more in several processes than in one that is
never idle, whatever these tell each other, and the more the fewer cores they share.
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from sqlalchemy import Connection, text

from bench.gateway import model_server
from bench.table import ResultTable
from sessions import store
from sessions.db import Database, open_database
from sessions.records import Role
from tests.conftest import PostgresServer
from tests.fakes.model_replies import Reply
from tests.fakes.model_server import ModelServer
from tests.machine import free_port

AIMS = {1: None, 2: 1.15, 4: 1.2, 8: 1.3}
LINES = 32
"""Sessions that call at the same time, each as soon as it was answered."""
MODEL_SECONDS = 0.05
HELD, HOLD_SECONDS, WINDOW_SECONDS = 24, 22.0, 6.0
IN_A_ROW = 10
KEY = "bench-" + "k" * 32
IN_ORDER = "agent:main:api:bench:in order"


def reply(body: dict[str, Any]) -> Reply:
    said = body["messages"][-1]["content"]
    seconds = HOLD_SECONDS if said.endswith("hold") else MODEL_SECONDS
    return Reply(text="Yes, on Monday.", before=partial(asyncio.sleep, seconds))


async def serve_model() -> None:
    async with ModelServer(reply, keeps=False) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


@contextlib.contextmanager
def postgres(*, durable: bool = True) -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="hermes-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), durable=durable)
        try:
            yield server
        finally:
            server.stop()


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """Used by these processes, the living ones below them, and those that they have outlived."""
    found = 0.0
    for process in processes:
        used = process.cpu_times()
        found += used.user + used.system + used.children_user + used.children_system
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                used = child.cpu_times()
                found += used.user + used.system
    return found


@dataclass
class Team:
    """So many workers of one home, and a client of them."""

    url: str
    process: psutil.Popen
    server: PostgresServer
    database: Database
    http: aiohttp.ClientSession

    async def call(self, session: str, said: str) -> float:
        began = time.perf_counter()
        body = {"model": "hermes", "messages": [{"role": "user", "content": said}]}
        headers = {"Authorization": f"Bearer {KEY}", "X-Hermes-Session-Id": session}
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        return time.perf_counter() - began

    async def load(self, count: int, lines: int = LINES) -> list[float]:
        async def line(number: int) -> list[float]:
            return [await self.call(f"line {number}", "What did we decide?") for _ in range(count // lines)]

        return [took for line in await asyncio.gather(*map(line, range(lines))) for took in line]

    def cpu(self) -> tuple[float, float]:
        """Of the workers, and of PostgreSQL."""
        return cpu_seconds([self.process]), cpu_seconds([psutil.Process(self.server.pid)])

    async def in_order(self) -> bool:
        """Calls on one session, each sent when the one before is stored, over connections of their own."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as self.http:
            calls: list[asyncio.Task[float]] = []
            for number in range(IN_A_ROW):
                calls.append(asyncio.create_task(self.call("in order", f"message {number}")))
                while await self.database.read(_arrived) <= number:  # noqa: ASYNC110  # other processes
                    await asyncio.sleep(0.005)
            await asyncio.gather(*calls)
        return await self.database.read(_said) == [f"message {number}" for number in range(IN_A_ROW)]

    async def transactions(self) -> float:
        """A second, by everybody: the least of three windows, since PostgreSQL may count what a connection did up to ten seconds later."""
        found: list[float] = []
        for _ in range(3):
            before, began = await self.database.read(_transactions), time.perf_counter()
            await asyncio.sleep(WINDOW_SECONDS)
            found.append((await self.database.read(_transactions) - before) / (time.perf_counter() - began))
        return min(found)


def _arrived(conn: Connection) -> int:
    return conn.scalar(text("SELECT count(*) FROM inbox WHERE session_key = :key"), {"key": IN_ORDER}) or 0


def _said(conn: Connection) -> list[str]:
    session = store.active(conn, IN_ORDER)
    assert session is not None
    return [each.content or "" for each in store.read_messages(conn, session.id) if each.role is Role.USER]


def _transactions(conn: Connection) -> int:
    query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    return conn.scalar(text(query)) or 0


@contextlib.asynccontextmanager
async def team(workers: int, server: PostgresServer, model: str) -> AsyncGenerator[Team]:
    name = f"team{workers}_{secrets.token_hex(2)}"
    server.run(f"CREATE DATABASE {name}")
    with tempfile.TemporaryDirectory() as folder:
        home, port = Path(folder), free_port()
        config = {
            "model": {"provider": "openai", "base_url": model, "name": "fake-model", "api_key": "none"},
            "database": {"url": server.url(name)},
            "memory": {"enabled": False},
            "limits": {"parallel_runs": LINES},
            "api": {"port": port, "keys": [{"name": "bench", "key": KEY, "scopes": ["chat"]}]},
        }
        (home / "config.yaml").write_text(json.dumps(config))
        command = [sys.executable, "-m", "gateway.cli.main", "gateway", "run", "--workers", str(workers)]
        environ = {**os.environ, "HERMES_HOME": str(home)}
        database = open_database(home, server.url(name))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            process = psutil.Popen(command, env=environ, stdin=-3, stdout=-3, stderr=-3)
            try:
                ready = text("SELECT count(*) FROM workers")
                async with asyncio.timeout(120):
                    while await database.read(lambda conn: conn.scalar(ready)) != workers:  # noqa: ASYNC110  # other processes
                        await asyncio.sleep(0.1)
                await asyncio.sleep(3)  # what a start does behind its back
                yield Team(f"http://127.0.0.1:{port}", process, server, database, http)
            finally:
                process.terminate()
                await asyncio.to_thread(process.wait)
                database.close()


async def cpu_apart(server: PostgresServer, model: str, gateways: int, count: int) -> float:
    """Returns the milliseconds for each message of so many gateways of one worker and a database each."""
    async with contextlib.AsyncExitStack() as stack:
        them = [await stack.enter_async_context(team(1, server, model)) for _ in range(gateways)]

        def cpu() -> float:
            return sum(each.cpu()[0] for each in them) + them[0].cpu()[1]

        async def load(count: int) -> int:
            shares = await asyncio.gather(*(each.load(count // gateways, LINES // gateways) for each in them))
            return sum(map(len, shares))

        await load(LINES * 12 * gateways)
        before = cpu()
        done = await load(count)
        return (cpu() - before) / done * 1e3


async def measure(table: ResultTable, count: int, teams: list[int], *, apart: bool) -> None:
    alone: dict[str, float] = {}
    with postgres() as server, model_server("bench.team", "--model") as model:
        for workers in teams:
            async with team(workers, server, model) as it:
                await it.load(LINES * 12 * workers)  # plans of every connection, caches, client libraries
                before, began = it.cpu(), time.perf_counter()
                took = await it.load(count)
                wall, after = time.perf_counter() - began, it.cpu()
                done = len(took)
                ours, theirs = ((late - early) / done * 1e3 for early, late in zip(before, after, strict=True))
                first = alone.setdefault("cpu", ours + theirs)
                many = f"{workers} worker{'s' if workers > 1 else ''}"
                aim = AIMS.get(workers)
                table.row(
                    f"CPU for each message, {many}",
                    f"{ours + theirs:.1f} ms",
                    f"{ours:.1f} + {theirs:.1f} of PostgreSQL",
                    (ours + theirs) / first,
                    f"<= {aim}" if aim else "",
                )
                rate = done / wall
                p50 = statistics.median(took) * 1e3
                table.row(
                    "  messages a second", f"{rate:.0f}", f"p50 {p50:.0f} ms", rate / alone.setdefault("rate", rate), ""
                )
                table.row("  one session in order", "yes" if await it.in_order() else "NO", "", None, "yes")
                if workers == 2:
                    idle = await it.transactions()
                    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as it.http:
                        held = [asyncio.create_task(it.call(f"held {number}", "hold")) for number in range(HELD)]
                        await asyncio.sleep(3)
                        busy = await it.transactions()
                        await asyncio.gather(*held)
                    table.row(
                        f"  transactions a second, {HELD} runs held",
                        f"{busy:.1f}",
                        f"none held {idle:.1f}",
                        None,
                        f"<= {idle + workers:.1f}",
                    )
            if apart and workers > 1:
                cost = await cpu_apart(server, model, workers, count)
                table.row("  CPU of as many that share nothing", f"{cost:.1f} ms", "", cost / alone["cpu"], "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_600)
    parser.add_argument("--workers", type=int, nargs="+", default=list(AIMS))
    parser.add_argument("--apart", action="store_true", help="also as many gateways that share nothing")
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        asyncio.run(serve_model())
        return
    table = ResultTable(
        f"team: {options.messages:,} calls of {LINES} sessions over HTTP, a model that takes {MODEL_SECONDS * 1e3:.0f} ms"
    )
    asyncio.run(measure(table, options.messages, options.workers, apart=options.apart))
    print(table)


if __name__ == "__main__":
    main()
