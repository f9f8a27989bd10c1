"""What is used of procrastinate, and what it promises."""

import asyncio
import hashlib
import time
from pathlib import Path

import pytest
from procrastinate.schema import SchemaManager
from sqlalchemy import Connection, text

from sessions import wakeups
from sessions.db import Database, open_database
from sessions.db.engine import touch
from sessions.errors import DatabaseUnavailable
from sessions.topics import Topic
from sessions.wakeups import REST, RUNS, Wakeup

KEY, OTHER = "agent:main:telegram:dm", "agent:main:telegram:dm:8"
BOTH = (RUNS, REST)
PLACES = 6
"""How many jobs a group has in the first queue at most."""
SCHEMA = "c70ec4b400a60ad9592787653aae5ae77ae41bf801d56b5bd2712751a07f2009"


@pytest.fixture
def database(postgres_url: str):
    opened = open_database(Path("/nowhere"), postgres_url)
    yield opened
    opened.close()


def count(database: Database) -> int:
    return database.read_now(lambda conn: conn.scalar(text("SELECT count(*) FROM procrastinate_jobs"))) or 0


def fetch(database: Database, worker: int) -> Wakeup | None:
    return database.write_now(wakeups.fetch, worker, BOTH)


def stop_heart(database: Database, worker: int) -> None:
    stopped = text("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '7 seconds' WHERE id = :id")
    database.write_now(lambda conn: conn.execute(stopped, {"id": worker}) and None)


def test_its_schema_is_the_one_that_was_tried():
    """Another one needs a migration of ours, and a look at the statements of `wakeups` on its tables."""
    assert hashlib.sha256(SchemaManager.get_schema().encode()).hexdigest() == SCHEMA


def test_a_job_is_there_with_the_commit_and_undone_with_it(database: Database):
    def fail(conn: Connection) -> None:
        touch(conn, Topic.INBOX, KEY)
        wakeups.defer(conn, [(KEY, None)], PLACES)
        raise DatabaseUnavailable("rolled back")

    with pytest.raises(DatabaseUnavailable):
        database.write_now(fail)
    assert count(database) == 0
    database.write_now(touch, Topic.INBOX, KEY)
    assert count(database) == 1


def test_one_works_on_a_key_and_its_successor_is_there_at_once(database: Database):
    first, second = (database.write_now(wakeups.register, PLACES) for _ in range(2))
    for _ in range(2):
        database.write_now(wakeups.defer, [(KEY, None)], PLACES)
    held = fetch(database, first)
    assert held is not None
    assert fetch(database, second) is None
    database.write_now(wakeups.defer, [(OTHER, None)], PLACES)
    assert (fetch(database, second) or held).session_key == OTHER
    database.write_now(wakeups.finish, first, [held.job])
    began = time.monotonic()
    assert (fetch(database, second) or held).session_key == KEY
    assert time.monotonic() - began < 0.1


def test_who_is_stalled_loses_its_job_once_and_can_end_it_no_more(database: Database):
    zombie, *rescuers = (database.write_now(wakeups.register, PLACES) for _ in range(3))
    database.write_now(wakeups.defer, [(KEY, None)], PLACES)
    held = fetch(database, zombie)
    assert held is not None
    assert database.read_now(wakeups.stalled) == []
    stop_heart(database, zombie)
    seen = database.read_now(wakeups.stalled)
    assert seen == [held]

    async def race() -> list[int]:
        return await asyncio.gather(*(database.write(wakeups.rescue, seen, PLACES) for _ in range(8)))

    assert sorted(asyncio.run(race())) == [0] * 7 + [1]
    again = fetch(database, rescuers[0])
    assert again is not None
    assert again.job != held.job
    database.write_now(wakeups.finish, zombie, [held.job, again.job])
    assert database.read_now(wakeups.held, rescuers[0]) == [again.job]


def test_who_has_ended_in_order_leaves_its_jobs_at_once(database: Database):
    worker = database.write_now(wakeups.register, PLACES)
    database.write_now(wakeups.defer, [(KEY, None)], PLACES)
    held = fetch(database, worker)
    database.write_now(wakeups.unregister, worker, PLACES)
    assert database.read_now(wakeups.ended, database.read_now(wakeups.stalled)) == [held]


def test_a_job_whose_fetch_was_committed_without_a_word_is_found_by_its_own_worker(database: Database):
    worker = database.write_now(wakeups.register, PLACES)
    database.write_now(wakeups.defer, [(KEY, None), (OTHER, None)], PLACES)
    known, unknown = fetch(database, worker), fetch(database, worker)
    assert known is not None
    assert unknown is not None
    lost = database.read_now(wakeups.lost, worker, [known.job])
    assert lost == [unknown]
    assert database.write_now(lambda conn: wakeups.rescue(conn, lost, PLACES, me=worker)) == 1
    assert (fetch(database, worker) or known).session_key == unknown.session_key


def test_a_crowd_of_one_group_leaves_a_queue_for_the_others(database: Database):
    crowd = [(f"agent:main:api:laptop:{number}", None) for number in range(PLACES + 3)]
    database.write_now(wakeups.defer, crowd, PLACES)
    database.write_now(
        wakeups.defer, [(KEY, None), (KEY, "run_farewell"), ("agent:main:cli:20260101_000000_0a0b0c0d", None)], PLACES
    )
    worker = database.write_now(wakeups.register, PLACES)
    taken = [database.write_now(wakeups.fetch, worker, [RUNS]) for _ in range(PLACES + 2)]
    assert [each.session_key for each in taken if each] == [key for key, _ in crowd[:PLACES]] + [KEY]
    rest = [database.write_now(wakeups.fetch, worker, [REST]) for _ in range(5)]
    # Farewells last, and what is a terminal's is for that terminal.
    assert [(each.session_key, each.farewell) for each in rest if each] == [
        *crowd[PLACES:],
        (KEY, "run_farewell"),
    ]


def test_a_worker_has_a_queue_of_its_own_for_keys_that_nobody_else_works_on(database: Database):
    mine, other = (database.write_now(wakeups.register, PLACES) for _ in range(2))

    def defer(key: str) -> None:
        database.write_now(wakeups.defer, [(key, None)], PLACES, mine)

    def fetch_own(worker: int) -> Wakeup | None:
        return database.write_now(wakeups.fetch, worker, [wakeups.own_queue(worker), *BOTH])

    defer(KEY)
    assert fetch_own(other) is None
    assert database.read_now(wakeups.in_queues_of_others, mine) == set()
    held = fetch_own(mine)
    assert held is not None
    defer(KEY)  # whoever has the key is told when it is free
    database.write_now(wakeups.finish, mine, [held.job])
    assert fetch_own(other) is None
    assert (fetch_own(mine) or held).job != held.job

    database.write_now(wakeups.defer, [(OTHER, None)], PLACES)
    held = fetch_own(other)
    assert held is not None
    defer(OTHER)
    database.write_now(wakeups.finish, other, [held.job])
    assert (fetch_own(other) or held).job != held.job


def test_what_waits_in_a_queue_of_its_own_is_everybodys_once_it_is_offered(database: Database):
    mine, other = (database.write_now(wakeups.register, PLACES) for _ in range(2))
    keys = [f"{KEY}:{number}" for number in range(3)]
    for key in keys:
        database.write_now(wakeups.defer, [(key, None)], PLACES, mine)
    lying = database.read_now(wakeups.in_queues_of_others, other)
    assert len(lying) == len(keys)
    database.write_now(wakeups.offer, None, [min(lying)], PLACES)
    taken = fetch(database, other)
    assert taken is not None
    assert taken.session_key == keys[0]
    database.write_now(wakeups.offer, None, [min(lying)], PLACES)  # once more, by another one
    assert fetch(database, other) is None
    database.write_now(wakeups.unregister, mine, PLACES)
    assert [(fetch(database, other) or taken).session_key for _ in range(2)] == keys[1:]
    forgotten = database.write_now(wakeups.register, PLACES)
    database.write_now(wakeups.defer, [(f"{KEY}:4", None)], PLACES, forgotten)
    long_ago = text("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '2 days' WHERE id = :id")
    database.write_now(lambda conn: conn.execute(long_ago, {"id": forgotten}) and None)
    database.write_now(wakeups.register, PLACES)
    assert (fetch(database, other) or taken).session_key == f"{KEY}:4"
