"""One way to the database: group commit, failures that stay alone, listeners after the commit, consistent reads."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from sessions.db import Database, open_database, touch
from sessions.db.schema import meta
from sessions.errors import Unusable
from sessions.topics import Topic, Touch, ids_of
from tests.conftest import PostgresServer


def put(conn: Connection, key: str, value: str = "") -> str:
    conn.execute(insert(meta), {"key": key, "value": value})
    touch(conn, Topic.KEY, key)
    return key


def keys(conn: Connection) -> set[str]:
    return set(conn.scalars(select(meta.c.key)))


def broken(conn: Connection) -> None:
    put(conn, "half")
    raise LookupError("no such thing")


class WriterGate:
    """Keeps the only writer busy until it is opened, so that what comes meanwhile shares a commit."""

    def __init__(self, database: Database) -> None:
        self._open = threading.Event()
        self._entered = threading.Event()
        self.passed = asyncio.ensure_future(database.write(self._wait))

    def _wait(self, _: Connection) -> None:
        self._entered.set()
        assert self._open.wait(30)

    async def closed(self) -> "WriterGate":
        await asyncio.to_thread(self._entered.wait, 30)
        return self

    async def open(self) -> None:
        self._open.set()
        await self.passed


async def together(database: Database, *works: Callable[[Connection], object]) -> list[object]:
    """Run them in one batch."""
    gate = await WriterGate(database).closed()
    tasks = [asyncio.ensure_future(database.write(work)) for work in works]
    await asyncio.sleep(0)
    await gate.open()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_waits_shares_one_transaction(sqlite: Database) -> None:
    seen: list[object] = []
    await together(sqlite, *[lambda conn: seen.append(conn.get_transaction())] * 20)
    assert len(seen) == 20
    assert len(set(map(id, seen))) == 1


async def test_a_failure_among_others_stays_alone(database: Database) -> None:
    results = await together(
        database, lambda c: put(c, "a"), broken, lambda c: put(c, "b"), broken, lambda c: put(c, "c")
    )
    assert [r for r in results if isinstance(r, str)] == ["a", "b", "c"]
    assert [type(r) for r in results if not isinstance(r, str)] == [LookupError, LookupError]
    assert await database.read(keys) == {"a", "b", "c"}


async def test_a_constraint_that_fails_among_others_stays_alone(database: Database) -> None:
    await database.write(put, "a")
    results = await together(database, lambda c: put(c, "a"), lambda c: put(c, "b"))
    assert isinstance(results[0], IntegrityError)
    assert results[1] == "b"


def test_a_function_that_fails_leaves_nothing(database: Database) -> None:
    with pytest.raises(LookupError, match="no such thing"):
        database.write_now(broken)
    assert database.read_now(keys) == set()


async def test_a_cancelled_waiter_changes_nothing_for_the_others(database: Database) -> None:
    gate = await WriterGate(database).closed()
    tasks = [asyncio.ensure_future(database.write(put, name)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await gate.open()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[::2] == ["a", "c"]
    assert isinstance(results[1], asyncio.CancelledError)
    assert await database.read(keys) >= {"a", "c"}


async def test_listeners_hear_after_the_commit_and_only_of_what_was_committed(database: Database) -> None:
    commits: list[tuple[set[str], bool]] = []

    def on_commit(touched: frozenset[Touch]) -> None:
        names = set(ids_of(Topic.KEY, touched))
        commits.append((names, names <= database.read_now(keys)))

    stop = database.listen(on_commit)
    await together(database, lambda c: put(c, "a"), broken, lambda c: put(c, "b"))
    await together(database, broken)
    with pytest.raises(LookupError):
        await database.write(broken)
    await database.write(put, "c")
    stop()
    await database.write(put, "d")
    assert set().union(*(names for names, _ in commits)) == {"a", "b", "c"}
    assert all(committed for _, committed in commits)


async def test_a_listener_that_fails_stops_nobody(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", "sessions")  # a command of an earlier test may have wanted less
    database.listen(lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    assert await database.write(put, "a") == "a"
    assert await database.write(put, "b") == "b"
    assert "db.listener_failed" in caplog.text


async def test_even_an_exit_inside_a_function_only_ends_that_function(sqlite: Database) -> None:
    def leave(_: Connection) -> None:
        raise SystemExit(3)

    with pytest.raises(BaseException, match="3"):
        await asyncio.to_thread(sqlite.write_now, leave)
    assert await sqlite.write(put, "a") == "a"


async def test_a_read_sees_one_state(database: Database) -> None:
    begun, written = threading.Event(), threading.Event()

    def count_twice(conn: Connection) -> tuple[int, int]:
        query = select(func.count()).select_from(meta)
        first = conn.scalar(query)
        begun.set()
        assert written.wait(30)
        return first or 0, conn.scalar(query) or 0

    reading = asyncio.ensure_future(database.read(count_twice))
    await asyncio.to_thread(begun.wait, 30)
    await database.write(put, "a")
    written.set()
    assert await reading == (0, 0)
    assert await database.read(keys) == {"a"}


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises((DBAPIError, Unusable), match=r"read-?\s?only"):
        await database.read(put, "a")
    assert await database.write(put, "a") == "a"


async def test_a_read_sees_what_was_just_written(database: Database) -> None:
    for number in range(50):
        await database.write(put, str(number))
        assert str(number) in await database.read(keys)


def test_close_finishes_what_waits(home: Path, database_url: str) -> None:
    async def leave() -> list[str]:
        database = open_database(home, database_url)
        tasks = [asyncio.ensure_future(database.write(put, str(number))) for number in range(200)]
        await asyncio.sleep(0)
        await asyncio.to_thread(database.close)
        return await asyncio.gather(*tasks)

    assert len(asyncio.run(leave())) == 200
    database = open_database(home, database_url)
    assert len(database.read_now(keys)) == 200
    database.close()


async def test_a_closed_database_says_so_instead_of_waiting_for_ever(home: Path, database_url: str) -> None:
    database = open_database(home, database_url)
    database.close()
    with pytest.raises(RuntimeError):
        await asyncio.wait_for(database.write(put, "a"), 30)
    database.close()


async def test_a_loop_that_ended_early_does_not_stop_the_writer(sqlite: Database) -> None:
    gate = await WriterGate(sqlite).closed()

    def abandoned() -> None:
        async def start_and_go() -> None:
            task = asyncio.ensure_future(sqlite.write(put, "a"))
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(start_and_go())

    await asyncio.to_thread(abandoned)
    await gate.open()
    assert await sqlite.write(put, "b") == "b"


# --- PostgreSQL ---------------------------------------------------------------------------------------------------------------


def test_a_lost_connection_runs_the_function_again(home: Path, postgres_url: str) -> None:
    database, other = open_database(home, postgres_url), open_database(home, postgres_url)
    runs: list[int] = []

    def disturbed(conn: Connection) -> str:
        runs.append(conn.scalar(text("SELECT pg_backend_pid()")) or 0)
        if len(runs) == 1:
            other.write_now(lambda c: c.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": runs[0]}))
        return put(conn, "a")

    assert database.write_now(disturbed) == "a"
    assert len(runs) == 2
    assert database.read_now(keys) == {"a"}
    other.close()
    database.close()


async def test_transactions_that_met_are_run_again(home: Path, postgres_url: str) -> None:
    database = open_database(home, postgres_url)
    await database.write(put, "a")
    await database.write(put, "b")
    both_hold_one = threading.Barrier(2, timeout=30)
    tries: list[str] = []

    def crossing(conn: Connection, first: str, second: str) -> None:
        tries.append(first)
        for name in (first, second):
            conn.execute(text("UPDATE meta SET value = value || 'x' WHERE key = :name"), {"name": name})
            if name == first and len(tries) <= 2:
                both_hold_one.wait()

    await asyncio.gather(database.write(crossing, "a", "b"), database.write(crossing, "b", "a"))
    assert len(tries) >= 3  # the server ends one of them, and both when it stood still meanwhile
    values = await database.read(lambda conn: set(conn.scalars(select(meta.c.value))))
    assert values == {"xx"}
    database.close()


async def test_connections_that_were_opened_are_kept_and_one_does_what_comes_alone(
    home: Path, postgres_url: str
) -> None:
    database = open_database(home, postgres_url, connections=2)
    all_there = threading.Barrier(3, timeout=30)

    def process(conn: Connection, *, waits: bool) -> int:
        if waits:
            all_there.wait()
        return conn.scalar(text("SELECT pg_backend_pid()")) or 0

    async def at_once() -> set[int]:
        works = database.write, database.write, database.read
        return set(await asyncio.gather(*(work(process, waits=True) for work in works)))

    opened = await at_once()
    assert len(opened) == 3
    assert await at_once() == opened  # a new one costs as much as several messages
    assert len({await database.write(process, waits=False) for _ in range(4)}) == 1  # its plans are warm
    database.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "Check that its server runs, and that database.url is right."),
        ("nonsense", "no PostgreSQL address"),
        ("postgresql://host.invalid/none?connect_timeout=1", "cannot be reached"),
        ("postgresql://user:secret@127.0.0.1:1/none", "cannot be reached"),
    ],
)
def test_a_database_that_is_not_there_is_explained(home: Path, url: str, sentence: str) -> None:
    with pytest.raises(Unusable, match=sentence) as refusal:
        open_database(home, url)
    assert "secret" not in str(refusal.value)


def test_a_database_that_cannot_keep_every_text_is_refused(home: Path, postgres_server: PostgresServer) -> None:
    postgres_server.run("CREATE DATABASE bytes ENCODING SQL_ASCII LOCALE 'C' TEMPLATE template0")
    with pytest.raises(Unusable, match=r"encoding .* is SQL_ASCII.*--encoding UTF8"):
        open_database(home, postgres_server.url("bytes"))
    postgres_server.run("DROP DATABASE bytes")
