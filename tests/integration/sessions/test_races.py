"""Two transactions want to put in the same row at the same moment, on a real PostgreSQL: each must come to its end, and the row be there once."""

import asyncio
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Table, func, select

from sessions import deployments, memory, overheard, people, runs, spending, store
from sessions.db import Database, open_database, postgres
from sessions.db.schema import deployments as deployments_table
from sessions.db.schema import observations, pairings, sessions, usage
from sessions.db.schema import overheard as overheard_table
from sessions.db.schema import people as people_table
from sessions.export import ImportedSession, import_session
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.records import EndReason, Session, Source
from sessions.runs import Opening

AT_ONCE = 5
ROUNDS = 10
KEY = "agent:main:telegram:group:"
CHAT = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7")

Work = Callable[[Connection, int], object]


@pytest.fixture
def team(home: Path, postgres_url: str) -> Generator[Database]:
    opened = open_database(home, postgres_url)
    yield opened
    opened.close()


async def race(database: Database, work: Work, number: int) -> list[object]:
    """Run the work in so many transactions, all of which have begun before the first goes on."""
    start = threading.Barrier(AT_ONCE, timeout=30)

    def begin_together() -> Callable[[Connection], object]:
        waited = False

        def run(conn: Connection) -> object:
            nonlocal waited
            if not waited:  # a transaction that is run again does not wait again
                waited = True
                start.wait()
            return work(conn, number)

        return run

    return await asyncio.gather(*(database.write(begin_together()) for _ in range(AT_ONCE)))


def count(table: Table) -> Callable[[Connection], int]:
    return lambda conn: conn.scalar(select(func.count()).select_from(table)) or 0


async def test_who_stands_still_in_a_transaction_loses_its_locks_and_runs_it_again(
    home: Path, postgres_url: str, team: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "IDLE_SECONDS", 0.2)
    still = open_database(home, postgres_url)
    stands, goes_on, tries = threading.Event(), threading.Event(), list[int]()

    def count_one(conn: Connection) -> None:
        spending.add(conn, "day", "ann", messages=1)

    def stand_still(conn: Connection) -> None:
        count_one(conn)
        stands.set()
        goes_on.wait()
        tries.append(conn.scalar(select(1)) or 0)

    late = asyncio.create_task(still.write(stand_still))
    await asyncio.to_thread(stands.wait)
    try:
        async with asyncio.timeout(5):
            await team.write(count_one)
    finally:
        goes_on.set()
        await late
    assert (await team.read(spending.of_person, "day", "ann")).messages == 2
    assert len(tries) == 1  # the first time it came no further
    still.close()


async def test_the_first_answers_of_a_day_are_all_counted(team: Database) -> None:
    for number in range(ROUNDS):
        await race(
            team, lambda conn, n: spending.add(conn, f"day {n}", "ann", input_tokens=10, output_tokens=1), number
        )
        assert await team.read(spending.of_day, f"day {number}") == (10 * AT_ONCE, AT_ONCE)
    assert await team.read(count(usage)) == ROUNDS


def note(conn: Connection, number: int) -> int:
    return memory.note(conn, "agent:main", f"note {number}", number).id


def overhear(conn: Connection, number: int) -> None:
    overheard.add(conn, KEY, f"message {number}", "Ann", "hello", number)


def open_it(conn: Connection, number: int) -> str:
    return runs.open_session(conn, SessionKey.parse(f"{KEY}{number}"), Opening(), 1_750_000_000_000).id


def admit(conn: Connection, number: int) -> str:
    return people.admit(conn, "telegram", f"user {number}", "Ann", number).user_id


def bring_in(conn: Connection, number: int) -> bool:
    given = {
        "id": f"20250305_091523_a1b2c3{number:02d}",
        "session_key": f"agent:main:cli:{number}",
        "source": "cli",
        "agent": "main",
        "started_at": 1,
    }
    return import_session(conn, ImportedSession.model_validate(given), "cli:ann")


@pytest.mark.parametrize(
    ("work", "table"),
    [
        (note, observations),
        (overhear, overheard_table),
        (open_it, sessions),
        (admit, people_table),
        (bring_in, sessions),
    ],
)
async def test_what_many_put_in_at_once_is_there_once(team: Database, work: Work, table: Table) -> None:
    for number in range(ROUNDS):
        results = await race(team, work, number)
        assert await team.read(count(table)) == number + 1
        assert sum(result is True for result in results) == (work is bring_in)


async def test_of_those_who_come_in_first_together_one_is_the_owner(team: Database) -> None:
    await asyncio.gather(*(team.write(people.admit, "telegram", f"user {number}", "Ann", 1) for number in range(20)))
    assert [person.owner for person in await team.read(people.everybody)].count(True) == 1


async def test_strangers_who_ask_together_get_no_more_codes_than_one_after_the_other(team: Database) -> None:
    asking = (people.request_access, "telegram")
    await asyncio.gather(*(team.write(*asking, f"user {number}", "Ann", CHAT, 1) for number in range(20)))
    assert await team.read(count(pairings)) == people.MAX_PENDING


async def test_the_deployment_that_is_always_there_is_made_once(team: Database) -> None:
    await race(team, deployments.ensure_main, 1)
    assert await team.read(count(deployments_table)) == 1


async def test_a_message_and_the_way_back_to_an_old_conversation_leave_one_active(team: Database) -> None:
    key = SessionKey.parse(f"{KEY}1")
    for _ in range(ROUNDS):
        old = await team.write(_ended, key)
        both = [team.write(lambda c, s=old: store.reopen(c, s, 5)), team.write(lambda c: open_it(c, 1))] * 2
        await asyncio.gather(*both)
        active = select(func.count()).where(sessions.c.session_key == str(key), sessions.c.ended_at.is_(None))
        assert await team.read(lambda conn, query=active: conn.scalar(query)) == 1


def _ended(conn: Connection, key: SessionKey) -> Session:
    if (current := store.active(conn, str(key))) is not None:
        store.end(conn, current.id, EndReason.USER, 3)
    made = store.start(conn, key, 1_750_000_000_000, source=Source.TELEGRAM)
    store.end(conn, made.id, EndReason.USER, 4)
    return made
