"""The daemon as a process, through its doors: HTTP and Telegram, in front of a model that answers at once in a process of its own."""

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from bench.table import Table
from tests.fakes.telegram_server import TelegramServer

ROUNDS = 300
TELEGRAM_USERS = 200
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@asynccontextmanager
async def process(*arguments: str, **environ: str) -> AsyncGenerator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environ},
    )
    try:
        yield started
    finally:
        started.terminate()
        await asyncio.to_thread(started.wait)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Client:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = f"{url}/chat/completions"

    async def ask(self, session: str, *, stream: bool = False) -> float:
        """Seconds to the first byte of text (or to the whole answer)."""
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": stream}
        began = time.perf_counter()
        headers = {"X-Hermes-Session-Id": session} if session else {}
        async with self._http.post(self._url, json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            if not stream:
                await answer.read()
                return time.perf_counter() - began
            first = 0.0
            async for line in answer.content:
                if (
                    not first
                    and b'"content":"' in line.replace(b'": "', b'":"')
                    and b'"content":""' not in line.replace(b": ", b":")
                ):
                    first = time.perf_counter() - began
            return first


async def over_http(table: Table, direct: Client, gateway: Client, pid: int) -> None:
    for _ in range(20):
        await gateway.ask("warm")
    before = cpu_seconds(pid)
    took = [await gateway.ask("one") for _ in range(ROUNDS)]
    table.row("HTTP: p50, one at a time", f"{statistics.median(took) * 1000:.1f} ms", "", None, "<= 10 ms")
    table.row("HTTP: CPU a message", f"{(cpu_seconds(pid) - before) / ROUNDS * 1000:.1f} ms", "", None, "<= 5 ms")
    began = time.perf_counter()
    await asyncio.gather(*(repeat(gateway, f"s{number}", 20) for number in range(32)))
    table.row(
        "HTTP: messages a second, 32 sessions", f"{32 * 20 / (time.perf_counter() - began):.0f}", "", None, ">= 200"
    )
    bare = statistics.median([await direct.ask("", stream=True) for _ in range(100)]) * 1000
    ours = statistics.median([await gateway.ask("stream", stream=True) for _ in range(100)]) * 1000
    table.row("HTTP: first token, p50", f"{ours:.1f} ms", f"model {bare:.1f} ms", ours - bare, "difference <= 10 ms")


async def repeat(client: Client, session: str, times: int) -> None:
    for _ in range(times):
        await client.ask(session)


async def over_telegram(table: Table, telegram: TelegramServer, pid: int) -> None:
    people = [telegram.user(number, f"P{number}") for number in range(1, TELEGRAM_USERS + 1)]
    before = cpu_seconds(pid)
    for person in people:
        telegram.user_says(telegram.dm(person), person, "hello")
    await telegram.until(lambda: all(telegram.answers(person.id) for person in people), timeout=60)
    spent = (cpu_seconds(pid) - before) / TELEGRAM_USERS * 1000
    table.row("Telegram: CPU a message", f"{spent:.1f} ms", "", None, "<= 7 ms")


async def measure(home: Path) -> Table:
    table = Table("through the doors")
    port = free_port()
    async with (
        TelegramServer(check_floods=False) as telegram,
        process("tests.fakes.model_server", "--port", "0") as model,
    ):
        assert model.stdout is not None
        model_url = (await asyncio.to_thread(model.stdout.readline)).strip()
        config = {
            "model": {"base_url": model_url, "name": "m", "api_key": "k"},
            "api": {"port": port, "keys": [{"name": "bench", "key": "b" * 40}]},
            "limits": {"parallel_runs": 64},
            "platforms": {
                "telegram": {"enabled": True, "token": telegram.token, "api_base": telegram.url, "allowed_users": ["*"]}
            },
        }
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        async with (
            process("gateway.cli.main", "gateway", "run", HERMES_HOME=str(home)) as daemon,
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {'b' * 40}"}) as http,
        ):
            url = f"http://127.0.0.1:{port}"
            await ready(http, url)
            await over_http(table, Client(http, model_url), Client(http, f"{url}/v1"), daemon.pid)
            await over_telegram(table, telegram, daemon.pid)
    return table


async def ready(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                async with http.get(f"{url}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        print(asyncio.run(measure(Path(home))))


if __name__ == "__main__":
    main()
