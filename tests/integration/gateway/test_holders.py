"""What one process of a team does at a time: connected with a platform, keeping the house. Two apps on one PostgreSQL stand for two processes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from gateway import maintenance
from gateway.context import App
from gateway.dispatch import holders as holding
from gateway.maintenance import Maintenance
from sessions import leases, store
from sessions.db import open_database
from sessions.errors import DatabaseUnavailable
from sessions.keys import SessionKey
from sessions.lease_owners import of_worker
from sessions.leases import HOUSE
from sessions.records import Message, Role, Source
from sessions.search import message_index
from tests.app import make_app

NAME = "platform:telegram"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """All times a tenth of the real ones."""
    monkeypatch.setattr(holding, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(holding, "LOST_SECONDS", 0.5)
    monkeypatch.setattr(leases, "LEASE_MS", 800)


class HeldPlatform:
    """A platform that must never be held by two. `spans`: who held it from when to when."""

    def __init__(self) -> None:
        self.who: set[str] = set()
        self.spans: list[tuple[str, float, float]] = []
        self.most = 0

    async def hold(self, app: App, name: str) -> None:
        async def connected() -> None:
            self.who.add(name)
            self.most = max(self.most, len(self.who))
            began = time.monotonic()
            try:
                await asyncio.Event().wait()
            finally:
                self.who.discard(name)
                self.spans.append((name, began, time.monotonic()))

        while True:
            await app.holders.hold(NAME, connected)

    async def until(self, *who: str) -> float:
        began = time.monotonic()
        async with asyncio.timeout(20):
            while self.who != set(who):
                await asyncio.sleep(0.005)
        return time.monotonic() - began


@asynccontextmanager
async def team(home: Path, url: str, count: int) -> AsyncIterator[list[App]]:
    async with AsyncExitStack() as stack:
        apps: list[App] = []
        for number in range(count):
            database = await asyncio.to_thread(open_database, home, url)
            stack.push_async_callback(asyncio.to_thread, database.close)
            app = make_app(home, database, clock=database.clock)
            app.owner = of_worker(number)
            assert database.bus is not None
            database.bus.open()
            apps.append(app)
        yield apps


async def until(ready) -> None:
    async with asyncio.timeout(20):
        while not ready():
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("quick")
async def test_one_holds_a_platform_and_hands_it_over_at_once_when_it_is_drained(home, postgres_url):
    connection = HeldPlatform()
    async with team(home, postgres_url, 2) as (a, b), AsyncExitStack() as stay:
        await stay.enter_async_context(b.holders.taking())
        async with a.holders.taking():
            first = asyncio.create_task(connection.hold(a, "a"))
            await connection.until("a")
            await until(lambda: a.holders.is_held(HOUSE) or b.holders.is_held(HOUSE))
            second = asyncio.create_task(connection.hold(b, "b"))
            stay.callback(second.cancel)
            await asyncio.sleep(1.5)  # longer than a lease: it is renewed
            assert connection.who == {"a"}
            assert a.holders.is_held(NAME) != b.holders.is_held(NAME)
            assert a.holders.is_held(HOUSE) != b.holders.is_held(HOUSE)
            first.cancel()
            assert await connection.until("b") < 0.5
        await until(lambda: b.holders.is_held(HOUSE))
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
    assert connection.most == 1


@pytest.mark.usefixtures("quick")
async def test_whoever_cannot_renew_it_stops_before_another_begins(home, postgres_url, monkeypatch):
    connection = HeldPlatform()
    async with team(home, postgres_url, 2) as (a, b), a.holders.taking(), b.holders.taking():
        tasks = [asyncio.create_task(connection.hold(a, "a"))]
        await connection.until("a")
        tasks.append(asyncio.create_task(connection.hold(b, "b")))

        async def away(*_: object, **__: object) -> None:
            raise DatabaseUnavailable("cut off")

        monkeypatch.setattr(a.database, "write", away)
        await connection.until()
        assert not a.holders.is_held(NAME)
        assert await connection.until("b") < 1.0
        monkeypatch.undo()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert connection.most == 1


async def test_where_nobody_else_can_be_everything_is_held(home, sqlite):
    app = make_app(home, sqlite)
    async with app.holders.taking():
        assert app.holders.is_held(HOUSE)
        done: list[str] = []

        async def work() -> None:
            done.append("done")

        await app.holders.hold(NAME, work)
        assert done == ["done"]


@pytest.mark.usefixtures("quick")
async def test_who_keeps_the_house_indexes_what_all_have_stored(home, postgres_url, monkeypatch):
    monkeypatch.setattr(maintenance, "INDEX_SECONDS", 0.02)
    indexed_by, index_some = [], message_index.index_some

    def noted(conn: Connection) -> bool:
        indexed_by.append(conn.engine)
        return index_some(conn)

    monkeypatch.setattr(message_index, "index_some", noted)

    def say(conn: Connection) -> None:
        session = store.start(conn, SessionKey.cli("kitchen"), 1, source=Source.CLI)
        store.append(conn, session.id, [Message(role=Role.USER, content="The marmalade is on the shelf.")], 2)

    def is_found(conn: Connection) -> bool:
        return bool(conn.scalar(text("SELECT count(*) FROM message_search")))

    async with team(home, postgres_url, 2) as (a, b), a.holders.taking():
        await until(lambda: a.holders.is_held(HOUSE))
        async with b.holders.taking():
            upkeep = [asyncio.create_task(Maintenance(app).run()) for app in (a, b)]
            await until(lambda: indexed_by)
            await b.database.write(say)
            async with asyncio.timeout(20):
                while not await a.database.read(is_found):
                    await asyncio.sleep(0.005)
            assert len(set(indexed_by)) == 1
            for task in upkeep:
                task.cancel()
            await asyncio.gather(*upkeep, return_exceptions=True)
