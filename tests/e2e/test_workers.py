"""Several processes of one home on PostgreSQL, as its owner starts, kills and ends them."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from click.testing import CliRunner

from gateway.cli.main import hermes
from sessions import workers
from sessions.clock import now_ms
from sessions.db import open_database
from sessions.lease_owners import this_owner
from sessions.workers import WorkerRow, WorkerState
from tests.machine import free_port, is_alive

PROGRAM = [sys.executable, "-m", "gateway.cli.main"]


async def start(home: Path, *arguments: str, url: str, port: int = 0) -> asyncio.subprocess.Process:
    home.mkdir(exist_ok=True)
    config = {"model": {"provider": "practice"}, "api": {"port": port}, "database": {"url": url}}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    quiet = asyncio.subprocess.DEVNULL
    command = [*PROGRAM, "--home", str(home), "gateway", "run", *arguments]
    return await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=quiet, stderr=asyncio.subprocess.PIPE)


async def status(home: Path) -> Any:
    command = [*PROGRAM, "--home", str(home), "gateway", "status", "--json"]
    asked = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asked.communicate()
    return json.loads(out)


async def until(home: Path, wanted: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(60):
        while not wanted(found := await status(home)):
            await asyncio.sleep(0.2)
    return found


def ready(found: Any) -> list[Any]:
    return [row for row in found["workers"] if row["state"] == "ready"]


@pytest.mark.parametrize("arguments", [["--workers", "2"], ["--role", "worker"]], ids=" ".join)
async def test_on_sqlite_one_process_does_everything(home, arguments):
    refused = await start(home, *arguments, url="")
    _, said = await refused.communicate()
    assert refused.returncode == 2
    assert b"database.url" in said


async def test_workers_share_a_port_are_started_again_and_end_together(home, postgres_url):
    port = free_port()
    parent = await start(home, "--workers", "2", url=postgres_url, port=port)
    other = await start(home.with_name("other"), "--role", "worker", url=postgres_url)
    try:
        found = await until(home, lambda found: len(ready(found)) == 3)
        roles = sorted((row["role"], row["url"]) for row in found["workers"])
        assert roles == [("all", f"http://127.0.0.1:{port}")] * 2 + [("worker", "")]
        assert len({row["name"] for row in found["workers"]}) == 3
        assert [lease["name"] for lease in found["leases"]] == ["house"]
        assert len({row["config"]["digest"] for row in found["workers"]}) == 1
        assert found["engine"]["stalled"] == 0
        key = (home / "api_key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}", "X-Hermes-Session-Id": "s"}
        async with aiohttp.ClientSession(headers=headers) as http:
            for number in range(4):  # on new connections: the kernel spreads them
                body = {"model": "hermes", "messages": [{"role": "user", "content": f"hello {number}"}]}
                async with http.post(
                    f"http://127.0.0.1:{port}/v1/chat/completions", json=body, headers={"Connection": "close"}
                ) as answer:
                    assert answer.status == 200, await answer.text()
        killed = next(row["pid"] for row in found["workers"] if row["role"] == "all")
        os.kill(killed, signal.SIGKILL)
        again = await until(
            home, lambda found: len(ready(found)) == 3 and killed not in {row["pid"] for row in ready(found)}
        )
        children = [row["pid"] for row in ready(again) if row["role"] == "all"]
        lines = [line for file in (home / "sessions").glob("*.jsonl") for line in file.read_text().splitlines()]
        assert len(lines) == len(set(lines))  # one of them writes the transcripts
        parent.terminate()
        await asyncio.wait_for(parent.communicate(), 30)
        assert parent.returncode == 0
        assert not any(map(is_alive, children))
        assert [row["role"] for row in ready(await status(home))] == ["worker"]
    finally:
        for each in (parent, other):
            if each.returncode is None:
                each.terminate()
                await asyncio.wait_for(each.communicate(), 30)


def test_the_status_names_workers_that_are_configured_otherwise(home):
    database, now = open_database(home), now_ms()
    for name, digest in {"a": "0a0b0c0d", "b": "0a0b0c0d", "c": "99999999", "older": None}.items():
        row = WorkerRow(
            name=name,
            owner=this_owner(),
            host="here",
            pid=1,
            version="1",
            role="all",
            state=WorkerState.READY,
            started_at=now,
            last_seen=now,
            report={"config": {"digest": digest} if digest else {}},
        )
        database.write_now(workers.report, row)
    database.close()
    said = CliRunner().invoke(hermes, ["--home", str(home), "gateway", "status"]).stdout
    told = re.findall(r"its configuration is not that of (.+):", said)
    assert sorted(told) == ["a, b", "c", "c"]
