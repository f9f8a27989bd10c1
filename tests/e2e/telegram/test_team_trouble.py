"""Gateways of a team in trouble: their PostgreSQL is restarted and cut off, one of them dies in another namespace, and several are connected with
Discord in turn, and earlier ones run beside those of this version.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import psutil
import pytest
from sqlalchemy import Connection, select

from adapters.testing.discord import DiscordServer
from sessions import store
from sessions.db import Database, open_database
from sessions.db.schema import leases, outbox, workers
from sessions.records import Role
from tests.conftest import PostgresServer
from tests.e2e.platforms import scene as platforms
from tests.e2e.platforms.discord import DiscordDriver
from tests.e2e.telegram.daemon import of_a_team, process, write_config
from tests.fakes.model_replies import Reply
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer
from tests.machine import free_port

CHATS, EVERY_SECONDS = 3, 1.5
TAKEOVER_SECONDS = 8.0
EARLIER = "313a492"

pytestmark = pytest.mark.chaos


class Relay:
    """Stands between the gateways and the socket of a PostgreSQL."""

    def __init__(self, url: str, folder: Path) -> None:
        parsed = urlsplit(url)
        (server,) = parse_qs(parsed.query)["host"]
        self.url = f"postgresql://{parsed.netloc}{parsed.path}?host={folder}"
        self._to, self._socket = Path(server) / ".s.PGSQL.5432", folder / ".s.PGSQL.5432"
        self._writers: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self._flows = asyncio.Event()
        self._flows.set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._serve, self._socket):
            yield
            self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._refuses:
                return
            there, back = await asyncio.open_unix_connection(self._to)
            self._writers.add(back)
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.transport.abort()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def refuse(self, seconds: float) -> None:
        """Every connection is cut, and no new one comes about."""
        self._refuses = True
        self.cut()
        await asyncio.sleep(seconds)
        self._refuses = False

    async def swallow(self, seconds: float) -> None:
        """Nothing arrives any more, in either direction, and nobody is told; then every connection is cut."""
        self._flows.clear()
        await asyncio.sleep(seconds)
        self.cut()
        self._flows.set()


def holder(conn: Connection, platform: str) -> int | None:
    query = select(workers.c.pid).join(leases, leases.c.owner == workers.c.owner)
    return conn.scalar(query.where(leases.c.name == f"platform:{platform}"))


def reporting(conn: Connection) -> list[int]:
    return list(conn.scalars(select(workers.c.pid)))


def unsent(conn: Connection) -> int:
    return len(conn.execute(select(outbox.c.id).where(outbox.c.state.not_in(("sent", "dead")))).all())


def journal(conn: Connection, user: str) -> tuple[list[str], list[str]]:
    """What was said in this person's chat, and what was answered."""
    key = "agent:main:telegram:dm" if user == "7" else f"agent:main:telegram:dm:{user}"
    session = store.active(conn, key)
    assert session is not None
    said = [(each.role, each.content or "") for each in store.read_messages(conn, session.id)]
    return [text for role, text in said if role is Role.USER], [text for role, text in said if role is Role.ASSISTANT]


async def until(database: Database, read: Any, wanted: Any, *values: Any) -> Any:
    async with asyncio.timeout(90):
        while not wanted(found := await database.read(read, *values)):
            await asyncio.sleep(0.05)
    return found


@asynccontextmanager
async def gateways(started: list[asyncio.subprocess.Process]) -> AsyncIterator[dict[int, asyncio.subprocess.Process]]:
    """By process id; those that are left are killed."""
    daemons = {each.pid: each for each in started}
    try:
        yield daemons
    finally:
        for each in daemons.values():
            with contextlib.suppress(ProcessLookupError):
                each.kill()
            await each.wait()


@pytest.mark.timeout(400)
async def test_a_database_that_is_restarted_and_cut_off_costs_time_and_nothing_else(
    home: Path, postgres_url: str, postgres_server: PostgresServer, record_property
) -> None:
    asked = Counter[str]()

    def script(call: Any) -> Any:
        asked[json.dumps([each["content"] for each in call["messages"][1:]])] += 1
        text = call["messages"][-1]["content"].rpartition("\n")[2]
        return Reply(text=f"answer to {text}", before=lambda: asyncio.sleep(0.5))

    relay = Relay(postgres_url, home)
    async with TelegramServer() as server, ModelServer(script) as model, relay.open():
        people = [server.user(7 + number, f"Ann {number}") for number in range(CHATS)]
        dms = [server.dm(each) for each in people]
        sections = of_a_team(model, relay.url)
        for name in "abc":
            (home / name).mkdir()
        allowed = [str(each.id) for each in people]
        started = [await process(home / name, server, sections=sections, allowed_users=allowed) for name in "abc"]
        database = open_database(home, postgres_url)
        async with gateways(started) as daemons:
            await until(database, reporting, lambda pids: len(pids) == len(daemons))
            said: list[list[str]] = [[] for _ in people]

            async def talk() -> None:
                number = 0
                while True:
                    chat = number % CHATS
                    said[chat].append(f"message {number}")
                    server.user_says(dms[chat], people[chat], said[chat][-1])
                    number += 1
                    await asyncio.sleep(EVERY_SECONDS / CHATS)

            talking = asyncio.create_task(talk())
            await asyncio.sleep(3)
            await relay.refuse(5)
            await asyncio.sleep(8)
            with postgres_server.away():
                await asyncio.sleep(3)
            await asyncio.sleep(8)
            await relay.refuse(40)
            await asyncio.sleep(8)
            await relay.swallow(40)
            await asyncio.sleep(5)
            talking.cancel()
            began = time.monotonic()
            for chat, dm in enumerate(dms):
                # What is said while a run works is answered with it.
                last = f"answer to {said[chat][-1]}"
                await server.until(lambda dm=dm, last=last: last in server.answers(dm.id)[-1:], 90)
            record_property("seconds until all was answered", round(time.monotonic() - began, 1))
            await until(database, unsent, lambda count: count == 0)
            assert all(each.returncode is None for each in daemons.values())
        # Nothing is lost, in another order, or there twice; what was paid for is kept until it can be stored.
        for chat, dm in enumerate(dms):
            heard, answers = await database.read(journal, str(people[chat].id))
            assert heard == said[chat]
            assert server.answers(dm.id) == answers
        database.close()
        record_property("messages", sum(map(len, said)))
        record_property("answers", sum(len(server.answers(dm.id)) for dm in dms))
        assert max(asked.values()) == 1, [text for text, count in asked.items() if count > 1]
        assert server.violations == []


async def test_the_work_of_one_that_died_in_another_namespace_goes_on(
    home: Path, postgres_url: str, record_property
) -> None:
    """Its process ids and its host's name say nothing here: only its heartbeat tells."""
    apart = ["unshare", "-p", "-u", "-f", "--mount-proc"]
    if await (await asyncio.create_subprocess_exec(*apart, "true", stderr=asyncio.subprocess.DEVNULL)).wait():
        pytest.skip("making namespaces is not permitted")
    began: list[float] = []

    def script(_: Any) -> Any:
        began.append(time.monotonic())
        return Reply(text="done", before=(lambda: asyncio.sleep(60)) if len(began) == 1 else None)

    async with TelegramServer() as server, ModelServer(script) as model:
        ann = server.user(7, "Ann")
        dm = server.dm(ann)
        sections = of_a_team(model, postgres_url)
        database = open_database(home, postgres_url)

        async def start(name: str, role: str, *before: str) -> asyncio.subprocess.Process:
            (home / name).mkdir()
            write_config(home / name, server, sections=sections)
            program = [*before, sys.executable, "-m", "gateway.cli.main", "gateway", "run", "--role", role]
            quiet, environ = asyncio.subprocess.DEVNULL, {**os.environ, "HERMES_HOME": str(home / name)}
            count = len(await database.read(reporting))
            made = await asyncio.create_subprocess_exec(*program, env=environ, stdin=quiet, stdout=quiet, stderr=quiet)
            await until(database, reporting, lambda pids: len(pids) == count + 1)
            return made

        here = await start("a", "ingress")
        inside = f'hostname {os.uname().nodename}; exec "$@"'
        there = await start("b", "worker", *apart, "sh", "-c", inside, "sh")
        async with gateways([here, there]) as daemons:
            server.user_says(dm, ann, "do it")
            await server.until(lambda: len(began) == 1, 30)
            third = await start("c", "worker")
            daemons[third.pid] = third
            (init,) = psutil.Process(there.pid).children()
            killed = time.monotonic()
            os.kill(init.pid, signal.SIGKILL)
            await server.until(lambda: len(began) > 1, 30)
            took = began[1] - killed
            assert await server.answered(dm.id, timeout=30) == ["done"]
        database.close()
    record_property("took", round(took, 1))
    assert took < TAKEOVER_SECONDS
    assert len(began) == 2


@pytest.mark.timeout(200)
async def test_discord_sees_one_connection_at_any_moment(home: Path, postgres_url: str, record_property) -> None:
    driver = DiscordDriver()
    server: DiscordServer = driver.server
    asked = 0

    def script(_: Any) -> Any:
        nonlocal asked
        asked += 1
        return f"answer {asked}"

    async with server, ModelServer(script) as model:
        sections = of_a_team(model, postgres_url)
        for name in "abc":
            (home / name).mkdir()
        started = [await platforms.process(home / name, driver, 0, sections=sections) for name in "abc"]
        database, room, took = open_database(home, postgres_url), driver.dm(), dict[str, float]()
        async with gateways(started) as daemons:
            await until(database, reporting, lambda pids: len(pids) == len(daemons))
            await driver.until_ready()
            driver.says(room, "hello")
            await server.answered(room, 1)
            for count, end in enumerate((signal.SIGKILL, signal.SIGTERM), 2):
                first = await until(database, holder, lambda pid: pid in daemons, "discord")
                starts, ended = driver.starts(), time.monotonic()
                os.kill(first, end)
                await server.until(lambda: not server.is_connected(), 30)
                driver.says(room, "while nobody is connected")
                await server.until(lambda now=starts: driver.starts() > now, 30)
                took[end.name] = round(time.monotonic() - ended, 1)
                await server.answered(room, count)
                await daemons.pop(first).wait()
        database.close()
        assert server.answers(room) == ["answer 1", "answer 2", "answer 3"]
        assert server.most_connected == 1
        assert server.violations == []
    record_property("took", took)
    assert took["SIGKILL"] < TAKEOVER_SECONDS + 1, took
    assert took["SIGTERM"] < 5, took


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[Path]:
    """The source of the version with which the engine came."""
    root, there = Path(__file__).parents[3], tmp_path / "earlier"
    git = ["git", "-C", str(root), "worktree"]
    if (
        not shutil.which("git")
        or subprocess.run([*git, "add", "--detach", there, EARLIER], capture_output=True).returncode
    ):
        pytest.skip(f"commit {EARLIER} is not here")
    yield there
    subprocess.run([*git, "remove", "--force", there], check=True)


@pytest.mark.timeout(200)
async def test_two_of_an_earlier_version_and_two_of_this_one_share_the_work(
    home: Path, earlier: Path, fresh_postgres_url: str, record_property
) -> None:
    """The database is brought to this version under those that run."""
    root, key = Path(__file__).parents[3], "k" * 32

    def script(call: Any) -> Any:
        return Reply(text=f"answer to {call['messages'][-1]['content'].rpartition(chr(10))[2]}")

    async with TelegramServer() as server, ModelServer(script) as model:
        ann = server.user(7, "Ann")
        dm, ports, started = server.dm(ann), [free_port() for _ in range(4)], list[asyncio.subprocess.Process]()
        async with AsyncExitStack() as stack:
            daemons = await stack.enter_async_context(gateways([]))
            http = await stack.enter_async_context(aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}))
            for number, source in enumerate([earlier, earlier, root, root]):
                folder = home / str(number)
                folder.mkdir()
                sections = of_a_team(
                    model,
                    fresh_postgres_url,
                    api={
                        "port": ports[number],
                        "keys": [{"name": "laptop", "key": key, "scopes": ["chat", "read"]}],
                    },
                )
                write_config(folder, server, sections=sections)
                program = [sys.executable, "-m", "gateway.cli.main", "gateway", "run"]
                quiet, environ = (
                    asyncio.subprocess.DEVNULL,
                    {**os.environ, "HERMES_HOME": str(folder), "PYTHONPATH": str(source)},
                )
                made = await asyncio.create_subprocess_exec(
                    *program, env=environ, cwd=source, stdin=quiet, stdout=quiet, stderr=quiet
                )
                started.append(made)
                daemons[made.pid] = made
                async with asyncio.timeout(60):
                    while not await is_up(http, ports[number]):
                        await asyncio.sleep(0.1)

            async def call(number: int, text: str) -> str:
                body = {"model": "hermes", "messages": [{"role": "user", "content": text}]}
                url, session = f"http://127.0.0.1:{ports[number]}/v1/chat/completions", {"X-Hermes-Session-Id": "s"}
                async with http.post(url, json=body, headers=session) as answer:
                    assert answer.status == 200, await answer.text()
                    return (await answer.json())["choices"][0]["message"]["content"]

            database = open_database(home, fresh_postgres_url)
            stack.callback(database.close)
            took: list[float] = []
            for turn in range(24):
                began = time.monotonic()
                assert await call(turn % 4, f"call {turn}") == f"answer to call {turn}"
                took.append(time.monotonic() - began)
            said = [f"hello {number}" for number in range(3)]
            for count, text in enumerate(said, 1):
                server.user_says(dm, ann, text)
                await server.answered(dm.id, count)
                await until(database, unsent, lambda waiting: waiting == 0)  # else nobody knows whether it arrived
                daemons.pop(started[count - 1].pid)  # first both of the earlier version leave, then one of this
                started[count - 1].send_signal(signal.SIGKILL if count == 1 else signal.SIGTERM)
                await started[count - 1].wait()
            assert server.answers(dm.id) == [f"answer to {text}" for text in said]
            assert await call(3, "the last one") == "answer to the last one"
            assert server.violations == []
    record_property("the longest call", round(max(took), 2))


async def is_up(http: aiohttp.ClientSession, port: int) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with http.get(f"http://127.0.0.1:{port}/healthz") as answer:
            return answer.status == 200
    return False
