"""What API clients follow: the story of a run, in order, from any point, without a gap."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import Connection

from sessions import events, inbox, runs
from sessions.db import Database
from sessions.records import Event, InboxRow, Message
from sessions.runs import ModelAnswer, Opening

KEY = "agent:dep_1:thread:thr_1"
FOLLOWED = Opening(deployment="dep_1", thread_id="thr_1")
ASK: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "ask_human", "arguments": "{}"}}


def a_talk(conn: Connection) -> str:
    """A question to a human and its answer. Returns the run's id."""
    runs.accept(conn, InboxRow(dedup_key="1", session_key=KEY, messages=[Message(content="go")]), FOLLOWED, 1)
    run = runs.claim(conn, KEY, "me", FOLLOWED, 2, lease_ms=9)
    assert run is not None
    runs.take_in_new_messages(conn, run, 3)
    (call,) = runs.answered(conn, run, ModelAnswer(text="", tool_calls=[ASK]), 4, step=0)
    assert runs.park(conn, run, call, "which?", 5, options=["a", "b"])
    assert runs.answer(conn, run.id, "b", "Ann", 6)
    run = runs.claim(conn, KEY, "me", FOLLOWED, 7, lease_ms=9)
    assert run is not None
    assert runs.finish(conn, run, ModelAnswer(text="done"), 8, step=1)
    return run.id


@pytest.fixture
def stored(database: Database) -> list[Event]:
    database.write_now(a_talk)
    return database.read_now(events.after, "dep_1", 0)


def test_they_tell_the_story_of_a_run_in_order(stored: list[Event]) -> None:
    story = [
        (event.kind, event.data.get("status") or event.data.get("role") or event.data.get("content"))
        for event in stored
    ]
    assert story == [
        ("run_status", "running"),
        ("message", "user"),
        ("tool_call", None),
        ("steering_request", None),
        ("run_status", "waiting_on_human"),
        ("tool_result", "b"),
        ("run_status", "running"),
        ("message", "agent"),
        ("run_status", "completed"),
    ]
    assert len({event.data["run_id"] for event in stored}) == 1


def test_they_can_be_followed_from_any_point(database: Database, stored: list[Event]) -> None:
    assert stored[-1].id == database.read_now(events.last_id, "dep_1")
    for event in stored:
        assert database.read_now(events.after, "dep_1", event.id) == [later for later in stored if later.id > event.id]
    assert database.read_now(events.after, "dep_1", 0, run_id="run_none") == []
    assert database.read_now(events.after, "dep_1", 0, thread_id="thr_1", limit=2) == stored[:2]
    assert database.read_now(events.after, "dep_2", 0) == []


async def test_a_follower_skips_none_of_writers_that_overlap(database: Database) -> None:
    async def one(number: int) -> None:
        key = f"agent:dep_1:thread:{number}"
        message = InboxRow(dedup_key=f"e{number}", session_key=key, messages=[Message(content="x")])
        await database.write(runs.accept, message, FOLLOWED, 1)
        run = await database.write(runs.claim, key, "me", FOLLOWED, 2, lease_ms=9)
        assert run is not None
        await database.write(runs.take_in_new_messages, run, 3)
        await database.write(runs.finish, run, ModelAnswer(text="y"), 4, step=0)

    seen: list[int] = []

    async def read_new() -> None:
        seen.extend(event.id for event in await database.read(events.after, "dep_1", seen[-1] if seen else 0))

    work = asyncio.gather(*(one(number) for number in range(12)))
    while not work.done():
        await read_new()
        await asyncio.sleep(0)
    await work
    await read_new()
    assert seen == [event.id for event in await database.read(events.after, "dep_1", 0)]
    assert len(seen) == 12 * 4


async def test_doubles_that_come_at_once_are_one_row(database: Database) -> None:
    message = InboxRow(dedup_key="same", session_key=KEY, messages=[Message(content="hello")])
    results = await asyncio.gather(*(database.write(runs.accept, message, FOLLOWED, 1) for _ in range(20)))
    assert sum(result.fresh for result in results) == 1
    assert len({result.run_id for result in results}) == 1
    assert len(await database.read(inbox.unread, KEY)) == 1


async def test_messages_that_come_at_once_start_one_run_that_folds_them_all(database: Database) -> None:
    new = [InboxRow(dedup_key=f"m{i}", session_key=KEY, messages=[Message(content=str(i))]) for i in range(20)]
    results = await asyncio.gather(*(database.write(runs.accept, message, FOLLOWED, 1) for message in new))
    assert len({result.run_id for result in results}) == 1
    run = await database.write(runs.claim, KEY, "me", FOLLOWED, 2, lease_ms=9)
    assert run is not None
    assert await database.write(runs.take_in_new_messages, run, 3) == 20
