"""A farewell that is interrupted, or fails, is owed and given later."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection, update

from gateway.runs.farewell import OWED_MS
from sessions import runs, store
from sessions.db import Database
from sessions.db.schema import runs as runs_table
from sessions.records import EndReason, InboxRow, Message, Run, RunStatus, StopReason
from sessions.runs import MAX_TAKEOVERS, ModelAnswer, Opening, farewells
from tests.conftest import HandClock
from tests.fakes.model_replies import Failure
from tests.integration.runs.worker_in_process import WorkerHarness, worker_in_process

KEYS = [f"agent:main:telegram:dm:{number}" for number in range(6)]
LEASE_MS = 1_000


def ended_session(conn: Connection, key: str, now: int) -> str:
    """A conversation that was reset, with its farewell under way. Returns the id of that."""
    new = InboxRow(dedup_key=key, session_key=key, messages=[Message(content="hello")])
    assert runs.accept(conn, new, Opening(), now).fresh
    run = runs.claim(conn, key, "elsewhere:0:1", Opening(), now, lease_ms=LEASE_MS)
    assert run is not None
    runs.take_in_new_messages(conn, run, now)
    assert runs.finish(conn, run, ModelAnswer(text="hi"), now, step=0)
    session = store.get(conn, run.session_id)
    farewell = farewells.begin(conn, session, now)
    assert farewell is not None
    store.end(conn, session.id, EndReason.IDLE, now)
    return farewell.id


def take_all(conn: Connection, owner: str, now: int) -> list[Run]:
    """What a process takes at its start."""
    due = farewells.due(conn, now, 100)
    found = [runs.claim_farewell(conn, run_id, owner, now, lease_ms=LEASE_MS) for run_id, _ in due]
    return [run for run in found if run is not None]


@pytest.mark.parametrize("poison", [0, 3, 5])
def test_suspects_are_worked_on_one_at_a_time(database: Database, clock: HandClock, poison: int) -> None:
    ids = [database.write_now(ended_session, key, clock.tick()) for key in KEYS]
    given_up = set[str]()
    for process in range(40):
        now = clock.tick(2 * LEASE_MS)  # the leases of the process before have run out
        at_work = database.write_now(take_all, f"elsewhere:{process}:1", now)
        given_up |= {run.id for run in at_work if run.attempts > MAX_TAKEOVERS}
        for run in at_work:
            if run.attempts > MAX_TAKEOVERS:
                database.write_now(runs.sleep, run, now, wake_at=now + 900_000, model=None, attempts=MAX_TAKEOVERS)
        alive = [run for run in at_work if run.attempts <= MAX_TAKEOVERS]
        if ids[poison] not in {run.id for run in alive}:  # it takes all of them down
            for run in alive:
                assert database.write_now(runs.finish, run, ModelAnswer(text=""), now, step=0)
    assert given_up == {ids[poison]}
    assert {run.id for run in database.read_now(farewells.owed)} == {ids[poison]}


def test_one_without_words_counts_as_no_message(database: Database, clock: HandClock) -> None:
    run_id = database.write_now(ended_session, KEYS[0], clock())
    session = database.read_now(store.get, database.read_now(runs.get, run_id).session_id)
    (run,) = database.write_now(take_all, "elsewhere:1:1", clock())
    assert database.write_now(runs.finish, run, ModelAnswer(text="", input_tokens=5), clock(), step=0)
    after = database.read_now(store.get, session.id)
    assert after.message_count == session.message_count == len(database.read_now(store.read_messages, session.id))
    assert after.input_tokens == session.input_tokens + 5


async def until_put_off(it: WorkerHarness, run_id: str) -> Run:
    async with asyncio.timeout(30):
        while (run := await it.database.read(runs.get, run_id)).status is RunStatus.RUNNING:
            if run.lease_owner is None and run.wake_at is not None and run.wake_at > it.now():
                break
            await asyncio.sleep(0.01)
    return run


@pytest.mark.parametrize("in_the_way", ["interruptions", "refusal", "fault"])
async def test_what_failed_is_owed_for_a_day(
    home: Path, clock: HandClock, in_the_way: str, monkeypatch: pytest.MonkeyPatch
):
    failing = True

    def answer(_: object) -> str | Failure:
        return Failure(status=400, message="bad transcript") if failing and in_the_way == "refusal" else ""

    async with worker_in_process(home, answer, clock=clock) as it:
        if in_the_way == "fault":
            monkeypatch.setattr(it.app.views, "of", None)
        run_id = await it.database.write(ended_session, KEYS[0], clock())
        if in_the_way == "interruptions":
            await it.database.write(_interrupted, run_id)
        put_off = await until_put_off(it, run_id)
        assert put_off.status is RunStatus.RUNNING
        assert [run.id for run in await it.database.read(farewells.owed)] == [run_id]

        monkeypatch.undo()
        failing = False
        await it.passes(clock, (put_off.wake_at or 0) - clock())
        given = await it.settled(run_id)
        assert (given.status, given.stop_reason) == (RunStatus.COMPLETED, StopReason.DONE)


async def test_one_that_fails_for_longer_is_given_up(home: Path, clock: HandClock):
    def refuses(_: object) -> Failure:
        return Failure(status=400, message="bad transcript")

    async with worker_in_process(home, refuses, clock=clock) as it:
        run_id = await it.database.write(ended_session, KEYS[0], clock())
        await until_put_off(it, run_id)
        await it.passes(clock, OWED_MS + 1)
        assert (await it.settled(run_id)).status is RunStatus.ERROR


def _interrupted(conn: Connection, run_id: str) -> None:
    changed = {"attempts": MAX_TAKEOVERS, "lease_owner": "elsewhere:1:1", "lease_until": 0}
    conn.execute(update(runs_table).where(runs_table.c.id == run_id).values(changed))


async def test_interruptions_while_the_model_is_away_give_up_nothing(home: Path, clock: HandClock):
    is_up = False

    def answers(_: object) -> str | Failure:
        return "here again" if is_up else Failure(status=503)

    async with worker_in_process(home, answers, clock=clock) as it:
        run_id = (await it.accept("hello")).run_id
        assert run_id is not None
        for _ in range(MAX_TAKEOVERS + 2):
            asleep = await until_put_off(it, run_id)
            await it.database.write(_interrupted_once, run_id)
            await it.passes(clock, (asleep.wake_at or 0) - clock())
        is_up = True
        while (await it.database.read(runs.get, run_id)).status is RunStatus.RUNNING:
            await it.passes(clock, 60_000)
            await asyncio.sleep(0.01)
        assert (await it.settled(run_id)).status is RunStatus.COMPLETED


def _interrupted_once(conn: Connection, run_id: str) -> None:
    """The process dies while it asks the model."""
    changed = {"lease_owner": "elsewhere:1:1", "lease_until": 0}
    conn.execute(update(runs_table).where(runs_table.c.id == run_id).values(changed))
