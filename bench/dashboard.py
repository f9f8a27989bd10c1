"""The page in the browser beside a large database: the processor time of each page, of tabs in which nothing happens, and the memory."""

import argparse
import asyncio
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil
from sqlalchemy import Connection, insert

from bench.corpus import texts
from bench.table import ResultTable
from sessions import sign_ins
from sessions.clock import now_ms
from sessions.db import open_database
from sessions.db.schema import messages, runs, sessions
from sessions.records import Role, RunKind, RunStatus, StopReason
from sessions.search import message_index
from tests.machine import free_port

PAGES = ("", "sessions", "sessions?q=release", "runs", "runs?status=error", "time", "memory", "platforms")
TABS, IDLE_SECONDS, TIMES = 10, 30, 10
_BATCH = 1_000
_GAP_MS = 60_000


def fill(conn: Connection, first: int, count: int, each: int, now: int, corpus: list[str]) -> None:
    """Writes sessions with their messages and runs, as imports do, in one transaction."""
    rows, said, worked = [], [], []
    for number in range(first, first + count):
        at = now - number * _GAP_MS
        session, run = f"20250101_000000_{number:08x}", f"run_{number:024x}"
        key = f"agent:main:telegram:dm:{number // 10}"
        rows.append(
            {
                "id": session,
                "session_key": key,
                "source": "telegram",
                "agent": "main",
                "started_at": at,
                "ended_at": at + 1,
                "end_reason": "idle",
                "last_user_at": at,
                "message_count": each,
                "ns": key,
            }
        )
        worked.append(
            {
                "id": run,
                "session_id": session,
                "session_key": key,
                "kind": RunKind.CHAT,
                "status": RunStatus.COMPLETED,
                "stop_reason": StopReason.DONE,
                "created_at": at,
                "updated_at": at,
            }
        )
        said += [
            {
                "session_id": session,
                "run_id": run,
                "role": Role.ASSISTANT if place % 2 else Role.USER,
                "content": corpus[(number * each + place) % len(corpus)],
                "created_at": at + place,
                "state": "done",
            }
            for place in range(each)
        ]
    conn.execute(insert(sessions), rows)
    conn.execute(insert(runs), worked)
    conn.execute(insert(messages), said)


def prepare(home: Path, count: int, each: int, indexed: int) -> str:
    """Fills the home. Returns the secret of a link. Of the messages so many are indexed, since indexing all of them takes minutes."""
    database, now, corpus = open_database(home), now_ms(), list(texts(20_000))
    for first in range(0, count, _BATCH):
        database.write_now(fill, first, min(_BATCH, count - first), each, now, corpus)
    done = 0
    while done < indexed and database.write_now(message_index.index_some):
        done += 300
    return database.write_now(sign_ins.new_link, "cli:bench", now_ms())


@contextlib.contextmanager
def daemon(home: Path, port: int) -> Iterator[psutil.Process]:
    (home / "config.yaml").write_text(f"api: {{port: {port}}}\nmodel: {{provider: practice}}\n")
    environ = {**os.environ, "HERMES_HOME": str(home)}
    command = [sys.executable, "-m", "gateway.cli.main", "gateway", "run"]
    process = psutil.Popen(command, env=environ, stdin=-3, stdout=-3, stderr=-3)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def seconds(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


async def measure(home: Path, secret: str, table: ResultTable) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with daemon(home, port) as process:
        async with aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"{url}/readyz") as ready:
                        if ready.status == 200:
                            break
                await asyncio.sleep(0.1)
            await asyncio.sleep(5)  # what a start does behind its back
            before = process.memory_info().rss
            form = http.post(f"{url}/ui/login", data={"secret": secret}, headers={"Origin": url}, allow_redirects=False)
            async with form as answer:
                found = re.search(r"hermes_ui=([\w-]+)", answer.headers["Set-Cookie"])
            headers = {"Cookie": found[0] if found else ""}
            for page in PAGES:
                at = 0.0
                for time_no in range(TIMES + 1):
                    if time_no == 1:  # the first loads templates and plans
                        at = seconds(process)
                    async with http.get(f"{url}/ui/{page}", headers=headers) as answer:
                        assert answer.status == 200, page
                        await answer.read()
                table.row(f"/ui/{page}", f"{(seconds(process) - at) / TIMES * 1000:.0f} ms", "", None, "100 ms")
            grown = (process.memory_info().rss - before) / 2**20
            table.row("memory of the daemon", f"+{grown:.1f} MB", "", None, "+10 MB")
            quiet = await idle(process)
            async with contextlib.AsyncExitStack() as open_tabs:
                stream = {**headers, "Accept": "text/event-stream"}
                for page in (*PAGES, "", "sessions")[:TABS]:
                    await open_tabs.enter_async_context(http.get(f"{url}/ui/{page}", headers=stream))
                await asyncio.sleep(3)
                looked_at = await idle(process)
            share = (looked_at - quiet) / IDLE_SECONDS * 100
            table.row(f"{TABS} tabs while nothing happens", f"{share:.2f} % of a core", "", None, "2 %")


async def idle(process: psutil.Process) -> float:
    before = seconds(process)
    await asyncio.sleep(IDLE_SECONDS)
    return seconds(process) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=10, help="in each")
    parser.add_argument("--indexed", type=int, default=100_000, help="messages that a search can find")
    options = parser.parse_args()
    table = ResultTable(
        f"The page in the browser, {options.sessions:,} sessions, {options.sessions * options.messages:,} messages"
    )
    with tempfile.TemporaryDirectory() as folder:
        home, began = Path(folder), time.perf_counter()
        home.chmod(0o700)
        secret = prepare(home, options.sessions, options.messages, options.indexed)
        table.row("filled in", f"{time.perf_counter() - began:.0f} s", "", None, "")
        asyncio.run(measure(home, secret, table))
    print(table)


if __name__ == "__main__":
    main()
