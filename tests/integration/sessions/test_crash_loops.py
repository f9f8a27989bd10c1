"""A run that takes the process down again and again ends; those that were at work beside it do not."""

import pytest
from sqlalchemy import Connection

from sessions import runs
from sessions.db import Database
from sessions.records import InboxRow, Message, Run, RunStatus
from sessions.runs import MAX_TAKEOVERS, ModelAnswer, Opening

NOW = 1_750_000_000_000
LEASE_MS = 1_000
KEYS = [f"agent:main:telegram:dm:{number}" for number in range(6)]


def accept(conn: Connection, key: str) -> str:
    new = InboxRow(dedup_key=key, session_key=key, messages=[Message(content="go")])
    return runs.accept(conn, new, Opening(), NOW).run_id or ""


def take_all(conn: Connection, owner: str, now: int) -> list[Run]:
    """What a process takes at its start, in its order."""
    found = [
        runs.claim(conn, key, owner, Opening(), now, lease_ms=LEASE_MS) for key in runs.in_flight(conn) if key in KEYS
    ]
    taken = [run for run in found if run is not None]
    for run in taken:
        runs.take_in_new_messages(conn, run, now)
    return taken


@pytest.mark.parametrize("poison", range(len(KEYS)))
def test_only_the_run_that_takes_the_process_down_is_given_up(database: Database, poison: int) -> None:
    ids = [database.write_now(accept, key) for key in KEYS]
    now, given_up = NOW, set[str]()
    for process in range(60):
        now += 2 * LEASE_MS  # the leases of the one before have run out
        at_work = database.write_now(take_all, f"elsewhere:{process}:1", now)
        for run in at_work:
            if run.attempts > MAX_TAKEOVERS:
                given_up.add(run.id)
                database.write_now(runs.fail, run, "given up", now)
        alive = [run for run in at_work if run.id not in given_up]
        if ids[poison] in {run.id for run in alive}:
            continue  # it takes all of them down
        for run in alive:
            assert database.write_now(runs.finish, run, ModelAnswer(text="done"), now, step=0)
    assert given_up == {ids[poison]}
    stand = [database.read_now(runs.get, run_id).status for run_id in ids]
    assert stand.count(RunStatus.COMPLETED) == len(KEYS) - 1


def test_kills_from_outside_give_up_nothing_as_long_as_each_gets_its_turn(database: Database) -> None:
    """Six kills in a row, with all of them at work: nobody is to blame."""
    for key in KEYS:
        database.write_now(accept, key)
    now = NOW
    for process in range(6):
        now += 2 * LEASE_MS
        for run in database.write_now(take_all, f"elsewhere:{process}:1", now):
            assert run.attempts <= MAX_TAKEOVERS
