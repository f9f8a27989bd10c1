"""Which sessions are reset when, what holds that off, and how often the agent is asked to say farewell."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Connection, event, select
from sqlalchemy.engine import Engine

from gateway.scheduler.reset_explanation import explain, next_resets
from gateway.scheduler.resets import Resets
from sessions import inbox, processes, resets, runs, store
from sessions.db import Database
from sessions.db.schema import runs as runs_table
from sessions.keys import ChatKind, SessionKey
from sessions.lease_owners import this_owner
from sessions.policy import Override, ResetMode, ResetPolicy, ResetRules
from sessions.processes import ProcessRow
from sessions.records import EndReason, InboxKind, InboxMode, InboxRow, Message, Role, RunKind, StopReason
from sessions.resets import ResetPolicies
from sessions.runs import ModelAnswer, Opening, farewells
from tests.app import make_app
from tests.conftest import HandClock

KEY = "agent:main:telegram:dm"
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
IDLE = ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60)
ME = "me"


def at(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).timestamp() * 1000)


class ResetHarness:
    def __init__(self, database: Database, clock: HandClock, rules: ResetRules, *, says_farewell: bool = True) -> None:
        self.database, self.clock = database, clock
        app = make_app(Path("/nonexistent"), database, clock=clock)
        self.policies = app.resets = ResetPolicies(rules, says_farewell=says_farewell)
        self.resets = Resets(app)

    def spoke(self, key: str = KEY, moment: int | None = None) -> str:
        """Somebody said something then, and was answered."""
        now = self.clock() if moment is None else moment

        def write(conn: Connection) -> str:
            session = store.active(conn, key) or runs.open_session(conn, SessionKey.parse(key), Opening(), now)
            store.append(conn, session.id, [Message(role=Role.USER, content="hello")], now)
            store.append(conn, session.id, [Message(role=Role.ASSISTANT, content="yes")], now)
            return session.id

        return self.database.write_now(write)

    def ended(self, session_id: str) -> EndReason | None:
        return self.database.read_now(store.get, session_id).end_reason

    async def tick(self, session_id: str) -> EndReason | None:
        """Look, give the farewells that are due, and look again."""
        await self.resets.tick()
        self.say_farewells()
        await self.resets.tick()
        return self.ended(session_id)

    def say_farewells(self) -> int:
        def write(conn: Connection) -> int:
            due = farewells.due(conn, self.clock(), 100)
            for run_id, _ in due:
                run = runs.claim_farewell(conn, run_id, ME, self.clock(), lease_ms=1_000)
                assert run is not None
                assert runs.finish(conn, run, ModelAnswer(text=""), self.clock(), step=0)
            return len(due)

        return self.database.write_now(write)

    def farewells(self) -> list[str]:
        query = select(runs_table.c.session_id).where(runs_table.c.kind == RunKind.FAREWELL)
        return self.database.read_now(lambda conn: list(conn.scalars(query.order_by(runs_table.c.created_at))))

    def accept(self, key: str = KEY, **more: Any) -> runs.Accepted:
        new = InboxRow(dedup_key=f"d{self.clock.tick()}", session_key=key, messages=[Message(content="x")], **more)
        return self.database.write_now(runs.accept, new, self.policies.opening(key), self.clock())


@pytest.fixture
def harness(database: Database, clock: HandClock) -> ResetHarness:
    return ResetHarness(database, clock, ResetRules(default=IDLE))


LONDON = {"at_hour": 4, "timezone": "Europe/London"}
HALF_PAST_ONE = {"at_hour": 1, "timezone": "Europe/London"}
DAILY = ResetPolicy(mode=ResetMode.DAILY, **LONDON)
BOTH = ResetPolicy(mode=ResetMode.BOTH, idle_minutes=60, **LONDON)


@pytest.mark.parametrize(
    ("policy", "spoke", "before", "after", "reason"),
    [
        pytest.param(IDLE, "2025-06-15T10:00", "2025-06-15T11:00", "2025-06-15T11:00:01", "idle", id="idle"),
        pytest.param(DAILY, "2025-06-15T10:00", "2025-06-16T02:59:59", "2025-06-16T03:00", "daily", id="daily"),
        pytest.param(
            BOTH, "2025-06-16T02:30", "2025-06-16T02:59:59", "2025-06-16T03:00", "daily", id="both, the day first"
        ),
        pytest.param(
            BOTH, "2025-06-16T03:30", "2025-06-16T04:30", "2025-06-16T04:30:01", "idle", id="both, the silence first"
        ),
        pytest.param(
            DAILY, "2025-03-29T10:00", "2025-03-30T02:59:59", "2025-03-30T03:00", "daily", id="summer time begins"
        ),
        pytest.param(
            DAILY, "2025-10-25T10:00", "2025-10-26T03:59:59", "2025-10-26T04:00", "daily", id="summer time ends"
        ),
        pytest.param(
            ResetPolicy(mode=ResetMode.DAILY, **HALF_PAST_ONE),
            "2025-03-29T10:00",
            "2025-03-30T00:59:59",
            "2025-03-30T01:00",
            "daily",
            id="an hour that is skipped",
        ),
        pytest.param(
            ResetPolicy(mode=ResetMode.DAILY, **HALF_PAST_ONE),
            "2025-10-25T10:00",
            "2025-10-25T23:59:59",
            "2025-10-26T00:00",
            "daily",
            id="an hour that comes twice",
        ),
    ],
)
async def test_a_second_before_nothing_and_a_second_after_a_reset(
    database: Database, clock: HandClock, policy: ResetPolicy, spoke: str, before: str, after: str, reason: str
):
    harness = ResetHarness(database, clock, ResetRules(default=policy))
    session = harness.spoke(moment=at(spoke))
    clock.now = at(before)
    assert await harness.tick(session) is None
    clock.now = at(after)
    assert await harness.tick(session) == reason
    assert harness.farewells() == [session]
    clock.tick(48 * HOUR)
    await harness.tick(session)
    assert harness.farewells() == [session]


async def test_none_is_never_and_overrides_are_for_those_they_name(database: Database, clock: HandClock):
    rules = ResetRules(
        default=ResetPolicy(mode=ResetMode.NONE),
        overrides=(
            Override(platform="slack", chat=ChatKind.CHANNEL, mode=ResetMode.IDLE, idle_minutes=10),
            Override(platform="api", mode=ResetMode.IDLE, idle_minutes=30),
        ),
    )
    harness = ResetHarness(database, clock, rules)
    dm, channel = harness.spoke(), harness.spoke("agent:main:slack:channel:C1")
    api, cli = harness.spoke("agent:main:api:laptop:x"), harness.spoke("agent:main:cli:x")
    clock.tick(11 * MINUTE)
    assert await harness.tick(channel) is EndReason.IDLE
    assert harness.ended(api) is None
    clock.tick(20 * MINUTE)
    assert await harness.tick(api) is EndReason.IDLE
    clock.tick(1_000 * HOUR)
    await harness.tick(dm)
    assert (harness.ended(dm), harness.ended(cli)) == (None, None)


async def test_a_run_that_works_or_waits_and_an_unread_message_hold_it_off(harness: ResetHarness):
    session = harness.spoke()
    accepted = harness.accept()
    harness.clock.tick(2 * HOUR)
    assert await harness.tick(session) is None
    assert harness.farewells() == []
    harness.database.write_now(runs.stop, accepted.run_id, harness.clock())
    assert await harness.tick(session) is None  # what was said in that run is new
    harness.clock.tick(2 * HOUR)
    assert await harness.tick(session) is EndReason.IDLE


async def test_a_queued_message_that_nobody_has_taken_up_holds_it_off_too(harness: ResetHarness):
    key = "agent:main:telegram:group:-1"
    session = harness.spoke(key)
    new = InboxRow(
        dedup_key="job",
        session_key=key,
        messages=[Message(content="x")],
        mode=InboxMode.QUEUE,
        kind=InboxKind.JOB,
    )
    harness.database.write_now(inbox.put, new, harness.clock())
    harness.clock.tick(2 * HOUR)
    assert await harness.tick(session) is None


async def test_what_else_goes_on_for_a_session_holds_it_off(harness: ResetHarness):
    session = harness.spoke()
    harness.database.write_now(processes.add, build(session, harness.clock()))
    harness.clock.tick(2 * HOUR)
    assert await harness.tick(session) is None
    assert harness.database.read_now(explain, KEY, harness.policies.rules, harness.clock()).held_off == (
        "process p1: npm run build",
    )
    harness.database.write_now(processes.ended, "p1", "exit code 0", harness.clock())
    assert await harness.tick(session) is EndReason.IDLE


async def test_a_message_does_not_reset_what_a_process_holds_off(harness: ResetHarness):
    session = harness.spoke()
    harness.database.write_now(processes.add, build(session, harness.clock()))
    harness.clock.tick(2 * HOUR)
    harness.accept()
    assert harness.ended(session) is None


async def test_processes_of_a_dead_gateway_hold_nothing_off(harness: ResetHarness):
    session = harness.spoke()
    dead = f"{this_owner().partition(':')[0]}:999999999:1"
    harness.database.write_now(processes.add, replace(build(session, harness.clock()), owner=dead))
    harness.database.write_now(processes.close_orphans, harness.clock())
    found = harness.database.read_now(processes.get, "p1")
    assert found is not None
    assert found.outcome == processes.UNKNOWN
    harness.clock.tick(2 * HOUR)
    assert await harness.tick(session) is EndReason.IDLE


def build(session: str, now: int) -> ProcessRow:
    return ProcessRow(
        id="p1", session_id=session, session_key=KEY, owner=this_owner(), command="npm run build", started_at=now
    )


async def test_the_clock_of_a_message_counts_and_not_that_of_the_tick(harness: ResetHarness):
    session = harness.spoke()
    harness.clock.tick(HOUR + 1)
    accepted = harness.accept()
    assert harness.ended(session) is EndReason.IDLE
    run = harness.database.read_now(runs.get, accepted.run_id)
    assert run.session_id != session
    assert run.wake_at == harness.clock() + farewells.WAIT_MS
    assert runs.claim is not None
    assert harness.database.write_now(_claim, harness) is None
    assert harness.say_farewells() == 1
    taken = harness.database.write_now(_claim, harness)
    assert taken is not None
    assert taken.session_id == run.session_id
    assert harness.farewells() == [session]


def _claim(conn: Connection, harness: ResetHarness) -> Any:
    return runs.claim(conn, KEY, ME, harness.policies.opening(KEY), harness.clock(), lease_ms=1_000)


async def test_a_message_waits_for_the_farewell_that_the_tick_began_and_for_none_that_is_over(harness: ResetHarness):
    session = harness.spoke()
    harness.clock.tick(2 * HOUR)
    await harness.resets.tick()
    assert harness.ended(session) is None
    harness.say_farewells()
    accepted = harness.accept()
    assert harness.ended(session) is EndReason.IDLE
    assert harness.database.read_now(runs.get, accepted.run_id).wake_at is None
    assert harness.farewells() == [session]


async def test_an_agent_without_the_tools_says_no_farewell(database: Database, clock: HandClock):
    harness = ResetHarness(database, clock, ResetRules(default=IDLE), says_farewell=False)
    session = harness.spoke()
    clock.tick(2 * HOUR)
    assert await harness.tick(session) is EndReason.IDLE
    assert harness.farewells() == []


async def test_while_the_model_is_away_the_reset_waits_half_an_hour_and_the_farewell_is_owed(harness: ResetHarness):
    session = harness.spoke()
    harness.clock.tick(2 * HOUR)
    await harness.resets.tick()

    def fails(conn: Connection) -> None:
        for run_id, _ in farewells.due(conn, harness.clock(), 10):
            run = runs.claim_farewell(conn, run_id, ME, harness.clock(), lease_ms=1_000)
            assert run is not None
            runs.sleep(conn, run, harness.clock(), wake_at=harness.clock() + 10 * MINUTE, model=None)

    for _ in range(3):
        harness.database.write_now(fails)
        await harness.resets.tick()
        assert harness.ended(session) is None
        harness.clock.tick(10 * MINUTE)
    await harness.resets.tick()
    assert harness.ended(session) is EndReason.IDLE
    assert [run.session_id for run in harness.database.read_now(farewells.owed)] == [session]
    harness.accept()
    harness.clock.tick(10 * MINUTE)
    assert harness.say_farewells() == 1
    assert harness.database.read_now(farewells.owed) == []
    assert harness.farewells() == [session]


async def test_a_resumed_session_stays_and_says_farewell_again_only_for_something_new(harness: ResetHarness):
    session = harness.spoke()
    harness.clock.tick(2 * HOUR)
    await harness.resets.tick()
    reopened = harness.database.read_now(store.get, session)
    harness.database.write_now(store.reopen, reopened, harness.clock())
    harness.say_farewells()
    assert await harness.tick(session) is None
    harness.clock.tick(2 * HOUR)
    assert await harness.tick(session) is EndReason.IDLE
    assert harness.farewells() == [session]


async def test_a_new_policy_counts_for_sessions_that_are_open(harness: ResetHarness):
    session = harness.spoke()
    harness.clock.tick(10 * MINUTE)
    assert await harness.tick(session) is None
    harness.policies.replace(ResetRules(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=5)), says_farewell=True)
    assert await harness.tick(session) is EndReason.IDLE


async def test_a_clock_that_jumps_resets_once_and_one_that_is_set_back_not_at_all(harness: ResetHarness):
    session = harness.spoke()
    harness.clock.tick(-48 * HOUR)
    assert await harness.tick(session) is None
    harness.clock.tick(500 * HOUR)
    assert await harness.tick(session) is EndReason.IDLE
    other = harness.spoke()
    harness.clock.tick(-2 * HOUR)
    assert await harness.tick(other) is None


async def test_several_processes_reset_once(database: Database, clock: HandClock):
    harnesses = [ResetHarness(database, clock, ResetRules(default=IDLE)) for _ in range(4)]
    session = harnesses[0].spoke()
    clock.tick(2 * HOUR)
    for harness in harnesses:
        await harness.resets.tick()
    assert harnesses[0].say_farewells() == 1
    for harness in harnesses:
        await harness.resets.tick()
    assert harnesses[0].ended(session) is EndReason.IDLE
    assert harnesses[0].farewells() == [session]


async def test_sessions_die_and_their_owed_farewells_with_them(harness: ResetHarness):
    session = harness.spoke()
    harness.clock.tick(2 * HOUR)
    await harness.resets.tick()
    harness.database.write_now(store.delete_session, session)
    assert harness.farewells() == []
    assert harness.say_farewells() == 0
    await harness.resets.tick()


@pytest.fixture
def statements() -> Iterator[list[str]]:
    found: list[str] = []

    def note(conn: Connection, cursor: Any, statement: str, *_: object) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


async def test_a_tick_reads_only_those_that_are_due(harness: ResetHarness, statements: list[str]):
    for number in range(400):
        harness.spoke(f"agent:main:telegram:dm:{number}", harness.clock() - (2 * HOUR if number % 4 == 0 else 0))
    pages: list[int] = []
    found = resets.silent_since

    def counting(*args: Any, **more: Any) -> Any:
        page = found(*args, **more)
        pages.append(len(page))
        return page

    resets.silent_since = counting
    try:
        statements.clear()
        await harness.resets.tick()
        assert pages == [100]
        assert len(statements) < 20  # however many are due
        statements.clear()
        await harness.resets.tick()
        assert len(pages) == 1  # nothing has become due since
    finally:
        resets.silent_since = found
    assert harness.say_farewells() == 100


def test_what_a_farewell_did_is_done(harness: ResetHarness):
    session = harness.spoke()
    run = harness.database.write_now(lambda conn: farewells.begin(conn, store.get(conn, session), harness.clock()))
    assert run is not None
    again = harness.database.write_now(lambda conn: farewells.begin(conn, store.get(conn, session), harness.clock()))
    assert again is not None
    assert again.id == run.id
    harness.say_farewells()
    assert harness.database.read_now(runs.get, run.id).stop_reason is StopReason.DONE
    assert harness.database.read_now(runs.active, SessionKey.parse(KEY).__str__()) is None


def test_the_next_ones_are_the_first_to_come(database: Database, clock: HandClock):
    rules = ResetRules(
        default=IDLE,
        overrides=(Override(platform="slack", chat=ChatKind.CHANNEL, mode=ResetMode.IDLE, idle_minutes=10),),
    )
    harness = ResetHarness(database, clock, rules)
    for key in (
        KEY,
        "agent:main:cli:20250305_091523_a1b2c3d4",
        "agent:main:slack:channel:C1",
        "agent:main:slack:channel:C2",
    ):
        harness.spoke(key)
        clock.tick(1_000)
    found = database.read_now(next_resets, rules, clock(), limit=2)
    assert [each.session_key.rpartition(":")[2] for each in found] == ["C1", "C2"]
    assert found[1].at - found[0].at == 1_000
    clock.tick(30 * MINUTE)  # those of the channels are due: whoever carries them out is at them
    assert [each.session_key for each in database.read_now(next_resets, rules, clock(), limit=9)] == [KEY]
