"""A daemon that is attacked over HTTP, and what an ordinary caller notices of it."""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import yaml

from tests.machine import free_port

CHAT: Any = {"messages": [{"role": "user", "content": "hello"}]}
ALICE, MALLORY = "alice-" + "a" * 32, "mallory-" + "m" * 32


@dataclass
class Victim:
    url: str
    port: int
    process: psutil.Process
    http: aiohttp.ClientSession
    log: Path

    async def ask(self, key: str = ALICE, body: Any = CHAT, path: str = "/v1/chat/completions") -> int:
        headers = {"Authorization": f"Bearer {key}"}
        async with self.http.post(self.url + path, json=body, headers=headers) as answer:
            await answer.read()
            return answer.status

    async def p95(self, calls: int = 40, until: asyncio.Future[Any] | None = None) -> float:
        """Seconds of an ordinary call: so many one after the other, and on until this is done."""
        took: list[float] = []
        while len(took) < calls or (until is not None and not until.done()):
            began = time.perf_counter()
            status = await self.ask()
            assert status == 200, status
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.005)  # an ordinary caller stays below the limit of its key
        return statistics.quantiles(took, n=20)[-1]

    def memory(self) -> float:
        """Resident, in MB."""
        return self.process.memory_info().rss / 2**20

    async def settled(self, most: float, seconds: float = 30) -> float:
        """Memory when it is below `most`, or after so many seconds."""
        until = time.monotonic() + seconds
        while self.memory() > most and time.monotonic() < until:
            await asyncio.sleep(0.2)
        return self.memory()


@asynccontextmanager
async def victim(home: Path, *, files: int = 0, model: str = "", **limits: Any) -> AsyncGenerator[Victim]:
    """`files`: as many may the daemon have open. `model`: the endpoint, if not the practice model."""
    port, log = free_port(), home / "log"
    keys = [{"name": "alice", "key": ALICE}, {"name": "mallory", "key": MALLORY}]
    answers = {"base_url": model, "name": "big", "api_key": "k"} if model else {"provider": "practice"}
    config = {"model": answers, "api": {"port": port, "keys": keys}, "limits": limits}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    program = [sys.executable, "-m", "gateway.cli.main", "gateway", "run"]
    if files:
        program = ["bash", "-c", f"ulimit -n {files}; exec {' '.join(program)}"]
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *program,
            env={**os.environ, "HERMES_HOME": str(home)},
            stdin=asyncio.subprocess.DEVNULL,
            stderr=sink,
            stdout=sink,
        )
    try:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as http:
            found = Victim(f"http://127.0.0.1:{port}", port, psutil.Process(process.pid), http, log)
            await _until_ready(found)
            yield found
    finally:
        process.terminate()
        await process.wait()


async def _until_ready(found: Victim) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with found.http.get(f"{found.url}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Seen:
    usual: float
    during: float
    before: float
    after: float

    def __str__(self) -> str:
        return (
            f"ordinary call p95 {self.usual * 1000:.0f} ms, during {self.during * 1000:.0f} ms ({self.during / self.usual:.1f} x);"
            f" memory {self.before:.0f} MB, after {self.after:.0f} MB"
        )


async def under(found: Victim, attack: Callable[..., object], *args: object) -> Seen:
    """What an ordinary caller notices while this goes on, in a process of its own."""
    await found.p95(20)
    usual, before = await found.p95(), found.memory()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
        await asyncio.wrap_future(elsewhere.submit(abs, 1))  # it has started
        task = asyncio.wrap_future(elsewhere.submit(attack, found.port, *args))
        during = await found.p95(40, until=task)
        await task
    return Seen(usual=usual, during=during, before=before, after=await found.settled(before + 25))
