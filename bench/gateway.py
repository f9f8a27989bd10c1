"""Messages from their admission to the answer in the outbox, with the model in a process of its own that answers at once."""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from sqlalchemy import Connection, func, select

from bench.corpus import texts
from bench.table import ResultTable
from gateway.app import open_app, running
from gateway.config.model import AgentSection
from gateway.config.reading import load
from gateway.context import App
from gateway.observe import heap, logging
from sessions import runs, store
from sessions.clock import now_ms
from sessions.db.schema import runs as runs_table
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.records import EndReason, InboxRow, Message, Role, Route, RunStatus, Source
from sessions.search import message_index
from sessions.topics import Topic, Touch, ids_of

SESSIONS = 32
MANY, BLOCK, SMALL = 200, 1_024, 16_384
NAME = "fake-model"
QUESTION = "Please tell me in one sentence what we decided about the release on Monday."
IMPORTS = "import aiohttp, openai, sqlalchemy, pydantic, pydantic_settings, ruamel.yaml, structlog, alembic"
READY = """
import asyncio, sys
from pathlib import Path
from gateway.app import open_app, running
from gateway.config.reading import load
async def ready():
    home = Path(sys.argv[1])
    async with open_app(home, load(home, {})) as app, running(app):
        pass
asyncio.run(ready())
"""


@contextlib.contextmanager
def model_server(module: str = "tests.fakes.model_server", *arguments: str) -> Iterator[str]:
    """Runs a model server in a process of its own. Gives its address, which it prints first."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@dataclass
class MeasuredApp:
    """`say` returns when the run of the message is over, with the seconds that this took."""

    app: App
    _ended: dict[str, asyncio.Event] = field(default_factory=dict)
    _number: int = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def on_commit(touched: frozenset[Touch]) -> None:
            if over := ids_of(Topic.RUN, touched):
                loop.call_soon_threadsafe(self._note, over)

        unlisten = self.app.database.listen(on_commit)
        try:
            yield
        finally:
            unlisten()

    def _note(self, over: list[str]) -> None:
        for run_id in over:
            self._ended.setdefault(run_id, asyncio.Event()).set()

    async def say(self, chat: str, text: str = QUESTION) -> float:
        self._number += 1
        route = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id=chat))
        new = InboxRow(
            dedup_key=f"bench:{self._number}",
            session_key=f"agent:main:telegram:dm:{chat}",
            messages=[Message(content=text, sender="Ann")],
            route=route,
        )
        began = time.perf_counter()
        accepted = await self.app.database.write(runs.accept, new, runs.Opening(), now_ms())
        run_id = accepted.run_id or ""
        await self._ended.setdefault(run_id, asyncio.Event()).wait()
        took = time.perf_counter() - began
        del self._ended[run_id]
        if self._number % 500 == 1:
            run = await self.app.database.read(runs.get, run_id)
            assert run.status is RunStatus.COMPLETED, run.error
        return took


@dataclass
class Lag:
    """The longest that the event loop did not come around."""

    worst: float = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            self.worst = max(self.worst, time.perf_counter() - began - 0.005)


async def spread(count: int, work: Callable[[int], Awaitable[object]]) -> tuple[float, float]:
    """`count` calls in 32 lines. Wall and CPU seconds for each."""

    async def line(number: int) -> None:
        for _ in range(count // SESSIONS):
            await work(number)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(line(number) for number in range(SESSIONS)))
    done = count // SESSIONS * SESSIONS
    return (time.perf_counter() - began) / done, (time.process_time() - cpu) / done


async def bare_client(agent: AgentSection, url: str, count: int, *, streams: bool = True) -> float:
    """CPU seconds of the openai client alone, for the answer to a prompt of the same kind."""
    from openai import AsyncOpenAI

    from gateway.agent.tools.registry import Toolbox

    messages = [{"role": "system", "content": agent.system_prompt}, {"role": "user", "content": QUESTION}]
    tools = Toolbox.of(agent.tools).schemas

    async def ask(_: int) -> None:
        answer = await client.chat.completions.create(model=NAME, messages=messages, tools=tools, stream=streams)  # type: ignore[call-overload]
        if streams:
            async for _ in answer:
                pass

    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        await ask(0)
        return (await spread(count, ask))[1]


def megabytes() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def start_once(home: Path) -> None:
    """So that the database is there, as it is at any start but the very first."""
    subprocess.run([sys.executable, "-c", READY, str(home)], check=True)


def seconds_of(*command: str) -> float:
    def once() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, stderr=subprocess.DEVNULL)
        return time.perf_counter() - began

    return min(once() for _ in range(3))


async def cost_of_turns(measured: MeasuredApp, last: int) -> tuple[float, float]:
    """Median CPU seconds of a turn around the 10th and around the last of one long conversation."""
    cost: list[float] = []
    for _ in range(last + 10):
        cpu = time.process_time()
        await measured.say("long")
        cost.append(time.process_time() - cpu)
    return statistics.median(cost[2:20]), statistics.median(cost[-20:])


async def under_load(table: ResultTable, measured: MeasuredApp, url: str, count: int) -> None:
    idle = megabytes()
    lag = Lag()
    watch = asyncio.create_task(lag.watch())
    wall, cpu = await spread(count, lambda number: measured.say(str(number)))
    watch.cancel()
    grown = megabytes() - idle
    bare = await bare_client(measured.app.config.agents["main"], url, min(count, 2_000))
    table.row("CPU for each message", f"{cpu * 1e3:.1f} ms", f"openai {bare * 1e3:.1f} ms", cpu / bare, "<= 5 ms")
    table.row(f"messages a second, {SESSIONS} sessions", f"{1 / wall:,.0f}", "", None, ">= 200")
    table.row("longest stall of the event loop", f"{lag.worst * 1e3:.0f} ms", "", None, "<= 20 ms")
    table.row("memory, idle", f"{idle:.0f} MB", "", None, "<= 90 MB")
    table.row(f"  more after {count:,} messages", f"{grown:.0f} MB", "", None, "<= 15 MB")


def add_old_conversations(conn: Connection, first: int) -> None:
    """About ten megabytes of them, ended."""
    text = "Some words of a conversation that is over. " * 240
    for number in range(first, first + 10):
        key = SessionKey.parse(f"agent:main:telegram:dm:old{number}")
        session = store.start(conn, key, number, source=Source.TELEGRAM)
        store.append(conn, session.id, [Message(role=Role.USER, content=text)] * 100, number)
        store.end(conn, session.id, EndReason.IDLE, number)


async def beside_a_gigabyte(table: ResultTable, measured: MeasuredApp, count: int) -> None:
    """The same load on a database with a long past."""
    for first in range(0, 1_000, 10):
        await measured.app.database.write(add_old_conversations, first)
    while await measured.app.database.read(message_index.unindexed):  # noqa: ASYNC110  # a bench has the time
        await asyncio.sleep(1)
    await asyncio.to_thread(os.sync)  # or the load would share the disk with the making of the past
    lag = Lag()
    watch = asyncio.create_task(lag.watch())
    wall, _ = await spread(count, lambda number: measured.say(str(number)))
    watch.cancel()
    table.row("messages a second on 1 GB", f"{1 / wall:,.0f}", "", None, ">= 200")
    table.row("longest stall of the event loop on 1 GB", f"{lag.worst * 1e3:.0f} ms", "", None, "<= 20 ms")


async def one_by_one(table: ResultTable, measured: MeasuredApp, turns: int) -> None:
    took = [await measured.say(f"single-{number}") for number in range(200)]
    table.row("one message at a time, p50", f"{statistics.median(took) * 1e3:.1f} ms", "", None, "<= 10 ms")
    tenth, late = await cost_of_turns(measured, turns)
    table.row(f"turn {turns}", f"{late * 1e3:.1f} ms", f"turn 10 {tenth * 1e3:.1f} ms", late / tenth, "<= 1.2")


def mean_prompt(conn: Connection, count: int) -> float:
    """Of the last so many runs, in tokens."""
    newest = select(runs_table.c.input_tokens).order_by(runs_table.c.created_at.desc()).limit(count).subquery()
    return conn.scalar(select(func.avg(newest.c.input_tokens))) or 0.0


def usual_work() -> float:
    """CPU seconds of something that is the same each time: others on this machine make all of us slower."""
    began = time.process_time()
    for _ in range(300):
        json.loads(json.dumps({str(number): [QUESTION] for number in range(100)}))
    return time.process_time() - began


async def over_time(home: Path, count: int) -> ResultTable:
    """What a message costs, its folds and its place in the index included, and the memory, over MANY sessions whose recent turns fill their
    window after some thousand messages."""
    table = ResultTable(
        f"gateway: {count:,} messages over {MANY} sessions, a window of {SMALL:,}, folds and index included"
    )
    said, numbers = texts(count, seed=4, mean=40), iter(range(count))
    blocks: list[tuple[int, float, float, float]] = []
    with model_server("bench.context", "--serve") as url:
        model = {"provider": "openai", "base_url": url, "name": NAME, "api_key": "none", "context_window": SMALL}
        (home / "config.yaml").write_text(json.dumps({"model": model, "limits": {"parallel_runs": SESSIONS}}))
        async with open_app(home, load(home, {})) as app, running(app):
            measured = MeasuredApp(app)
            async with measured.open():
                for done in range(BLOCK, count + 1, BLOCK):
                    usual, began = usual_work(), time.process_time()
                    await spread(BLOCK, lambda _: measured.say(str(next(numbers) % MANY), next(said)))
                    while await app.database.read(message_index.unindexed):  # noqa: ASYNC110  # a bench has the time
                        await asyncio.sleep(0.2)
                    cpu = (time.process_time() - began) / BLOCK
                    prompt = await app.database.read(mean_prompt, BLOCK)
                    blocks.append((done, cpu, cpu / (usual + usual_work()), prompt))
                    table.row(
                        f"after {done:,}",
                        f"{cpu * 1e3:.1f} ms, {prompt:,.0f} tokens",
                        f"{megabytes():.0f} MB",
                        None,
                        "",
                    )
    bounded = [block for block in blocks if block[3] >= 0.95 * blocks[-1][3]]
    ends = [statistics.median(block[2] for block in some) for some in (bounded[:3], bounded[-3:])]
    title = f"CPU at the end : where prompts are full, from {bounded[0][0]:,} on"
    table.row(title, "", "by work that is the same", ends[1] / ends[0], "<= 1.2")
    return table


async def measure(count: int, turns: int, home: Path, *, big: bool) -> ResultTable:
    table = ResultTable(
        f"gateway: {count:,} messages from admission to outbox, {SESSIONS} sessions, a model that answers at once"
    )
    with model_server() as url:
        model = {"provider": "openai", "base_url": url, "name": NAME, "api_key": "none"}
        (home / "config.yaml").write_text(json.dumps({"model": model, "limits": {"parallel_runs": SESSIONS}}))
        start_once(home)
        async with open_app(home, load(home, {})) as app, running(app):
            measured = MeasuredApp(app)
            async with measured.open():
                await asyncio.sleep(2)  # the client library is loaded in the background
                first = await measured.say("first")
                table.row("first message after the start", f"{first * 1e3:.0f} ms", "", None, "<= 50 ms")
                await under_load(table, measured, url, count)
                await one_by_one(table, measured, turns)
                if big:
                    await beside_a_gigabyte(table, measured, count)
        ready, imports = seconds_of("-c", READY, str(home)), seconds_of("-c", IMPORTS)
        table.row("ready", f"{ready:.2f} s", f"imports {imports:.2f} s", ready / imports, "<= 1.5")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--over-time", action="store_true", help="instead: what a message costs as sessions grow")
    parser.add_argument("--big", action="store_true", help="also beside a gigabyte of old conversations")
    options = parser.parse_args()
    logging.configure("warning")
    heap.tune()  # as the daemon does
    with tempfile.TemporaryDirectory() as folder:
        if options.over_time:
            print(asyncio.run(over_time(Path(folder), options.messages)))
            return
        print(asyncio.run(measure(options.messages, options.turns, Path(folder), big=options.big)))


if __name__ == "__main__":
    main()
