"""Jobs fire: each slot once, whoever ticks, and what became of it is known."""

import asyncio
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from gateway.scheduler.jobs import Jobs
from sessions import jobs, runs, store
from sessions.db import Database, open_database
from sessions.db.schema import inbox, outbox
from sessions.errors import Invalid, NotFound
from sessions.jobs import Job, JobState, Slot, SlotOutcome, SlotStatus
from sessions.jobs.firing import BACKOFF_MS
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.records import Role, Route, Run
from sessions.runs import ModelAnswer, Opening
from tests.conftest import HandClock

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
DM = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7"))


class JobHouse:
    def __init__(self, database: Database, clock: HandClock) -> None:
        self.database, self.clock = database, clock
        self.counted: list[str] = []
        self.jobs = Jobs(database, platforms=lambda: ("telegram",), clock=clock, fired=self.counted.append)

    def make(self, schedule: str, **more: Any) -> Job:
        fields = {"name": "report", "prompt": "summarise", "timezone": "UTC", "now": self.clock(), **more}
        return self.database.write_now(jobs.create, jobs.new_job(schedule=schedule, **fields))

    def job(self, job: Job) -> Job:
        return self.database.read_now(jobs.get, job.id)

    def slots(self, job: Job) -> list[Slot]:
        return self.database.read_now(jobs.slots, job.id)

    def queued(self) -> list[str]:
        query = select(inbox.c.dedup_key).where(inbox.c.kind == "job").order_by(inbox.c.id)
        return self.database.read_now(lambda conn: list(conn.scalars(query)))

    def lines(self) -> list[str]:
        query = select(outbox.c.body).order_by(outbox.c.id)
        return self.database.read_now(lambda conn: list(conn.scalars(query)))

    def work(self, key: str, answer: str | None = "done") -> Run:
        """Do what waits for this key; without an answer it fails."""

        def write(conn: Connection) -> Run:
            run = runs.claim(conn, key, "me", Opening(), self.clock(), lease_ms=1_000)
            assert run is not None
            runs.take_in_new_messages(conn, run, self.clock())
            if answer is None:
                runs.fail(conn, run, "The model said no.", self.clock())
            else:
                assert runs.finish(conn, run, ModelAnswer(text=answer), self.clock(), step=0)
            return run

        return self.database.write_now(write)

    async def pass_to(self, job: Job) -> None:
        """To the next slot of this job, and fire it."""
        following = self.job(job).next_run_at
        assert following is not None
        self.clock.now = following
        await self.jobs.tick()


@pytest.fixture
def house(database: Database, clock: HandClock) -> JobHouse:
    return JobHouse(database, clock)


async def test_a_slot_fires_once_and_its_session_accumulates(house: JobHouse):
    job = house.make("0 9 * * 1")
    assert job.session_key == f"agent:main:job:{job.id}"
    await house.jobs.tick()
    assert house.queued() == []
    for week in range(3):
        await house.pass_to(job)
        await house.jobs.tick()
        run = house.work(job.session_key, f"report {week}")
        assert run.kind == "job"
    session = house.database.read_now(store.active, job.session_key)
    assert session is not None
    assert session.ns == "agent:main"
    said = [m.content for m in house.database.read_now(store.read_messages, session.id)]
    assert said == ["summarise", "report 0", "summarise", "report 1", "summarise", "report 2"]
    found = house.job(job)
    assert (found.completed, found.last_status, found.state) == (3, "ok", JobState.SCHEDULED)
    assert [slot.status for slot in house.slots(job)] == [SlotStatus.OK] * 3
    assert len(house.queued()) == len(set(house.queued())) == 3
    assert house.counted == ["ran"] * 3


@pytest.mark.parametrize(
    ("late", "outcome"),
    [
        (30_000, SlotOutcome.RAN),
        (11 * HOUR, SlotOutcome.MADE_UP),
        (12 * HOUR, SlotOutcome.MISSED),
        (5 * DAY + 11 * HOUR, SlotOutcome.MADE_UP),
        (5 * DAY + 13 * HOUR, SlotOutcome.MISSED),
    ],
)
async def test_what_was_missed_is_made_up_once_if_less_than_half_a_period_late(
    house: JobHouse, late: int, outcome: SlotOutcome
):
    job = house.make("@daily")
    house.clock.now = (job.next_run_at or 0) + late
    await house.jobs.tick()
    await house.jobs.tick()
    (slot,) = house.slots(job)
    assert (slot.outcome, slot.slot) == (outcome, (job.next_run_at or 0) + late // DAY * DAY)
    is_missed = outcome is SlotOutcome.MISSED
    assert house.job(job).last_status == ("missed" if is_missed else None)
    assert len(house.queued()) == (0 if is_missed else 1)
    assert house.job(job).next_run_at == slot.slot + DAY


@pytest.mark.parametrize(("late", "status"), [(59 * MINUTE, None), (HOUR, "missed")])
async def test_a_one_shot_is_made_up_within_an_hour(house: JobHouse, late: int, status: str | None):
    job = house.make("30m")
    house.clock.tick(30 * MINUTE + late)
    await house.jobs.tick()
    found = house.job(job)
    assert (found.state, found.enabled, found.last_status) == (JobState.COMPLETED, False, status)
    assert len(house.queued()) == (1 if status is None else 0)
    house.clock.tick(DAY)
    await house.jobs.tick()
    assert len(house.slots(job)) == 1


async def test_it_runs_as_often_as_was_said(house: JobHouse):
    job = house.make("every 30m", repeat=2)
    for _ in range(2):
        await house.pass_to(job)
        house.work(job.session_key)
    found = house.job(job)
    assert (found.completed, found.state, found.next_run_at) == (2, JobState.COMPLETED, None)
    with pytest.raises(Invalid, match="no run to come"):
        house.database.write_now(jobs.resume, job.id, house.clock())


async def test_a_paused_job_rests_and_makes_nothing_up(house: JobHouse):
    job = house.make("every 30m")
    house.database.write_now(jobs.pause, job.id)
    house.clock.tick(DAY)
    await house.jobs.tick()
    assert house.queued() == []
    resumed = house.database.write_now(jobs.resume, job.id, house.clock())
    assert resumed.next_run_at == house.clock() + 30 * MINUTE
    await house.pass_to(job)
    assert len(house.queued()) == 1


async def test_run_now_is_besides_the_schedule_and_while_it_is_paused(house: JobHouse):
    job = house.make("@daily")
    house.database.write_now(jobs.pause, job.id)
    house.database.write_now(jobs.run_soon, job.id, house.clock())
    await house.jobs.tick()
    await house.jobs.tick()
    house.work(job.session_key)
    (slot,) = house.slots(job)
    assert (slot.outcome, slot.status) == (SlotOutcome.MANUAL, SlotStatus.OK)
    assert (house.job(job).completed, house.job(job).state) == (0, JobState.PAUSED)


async def test_while_one_slot_is_at_work_the_next_is_left_out(house: JobHouse):
    job = house.make("every 30m")
    await house.pass_to(job)
    await house.pass_to(job)
    assert [slot.status for slot in house.slots(job)] == [SlotStatus.MISSED, SlotStatus.QUEUED]
    assert house.job(job).last_error == "the run before was still at work"
    house.work(job.session_key)
    await house.pass_to(job)
    assert len(house.queued()) == 2


async def test_a_slot_that_was_left_out_is_none_of_the_repeats(house: JobHouse):
    job = house.make("every 30m", repeat=2)
    for _ in range(3):
        await house.pass_to(job)
    assert (house.job(job).completed, house.job(job).state) == (1, JobState.SCHEDULED)
    house.work(job.session_key)
    await house.pass_to(job)
    assert (house.job(job).completed, house.job(job).state) == (2, JobState.COMPLETED)


async def test_jobs_that_rest_leave_room_for_others(house: JobHouse):
    resting = house.make("every 30m")
    for _ in range(4):
        house.clock.now = max(house.clock.now, house.job(resting).not_before or 0)
        await house.pass_to(resting)
        house.work(resting.session_key, answer=None)
    house.clock.tick(MINUTE)
    other = house.make("every 30m")
    house.clock.tick(30 * MINUTE)
    now = house.clock()
    assert (house.job(resting).next_run_at or 0) < now < (house.job(resting).not_before or 0)
    assert [job.id for job in house.database.read_now(jobs.due, now, 1)] == [other.id]


async def test_failures_rest_longer_each_time_and_the_owner_hears_of_the_third(house: JobHouse):
    await asyncio.sleep(0)
    house.database.write_now(_talked, house.clock())
    job = house.make("every 1m")
    for count in range(1, 6):
        await house.pass_to(job)
        while not house.database.read_now(jobs.is_pending, job.id):
            house.clock.tick(MINUTE // 4)
            await house.jobs.tick()
        failed_at = house.clock()
        house.work(job.session_key, None)
        found = house.job(job)
        assert (found.failures, found.last_status, found.last_error) == (count, "error", "The model said no.")
        assert found.not_before == failed_at + BACKOFF_MS[min(count, len(BACKOFF_MS)) - 1]
        await house.jobs.tick()
        told = [line for line in house.lines() if "three times in a row" in line]
        assert len(told) == (1 if count >= 3 else 0)
    while not house.database.read_now(jobs.is_pending, job.id):
        house.clock.tick(MINUTE // 4)
        await house.jobs.tick()
    house.work(job.session_key)
    assert (house.job(job).failures, house.job(job).told) == (0, False)


def _talked(conn: Connection, now: int) -> None:
    """The owner has talked with the bot, so it is known where they are."""
    session = runs.open_session(conn, SessionKey.parse("agent:main:telegram:dm"), Opening(), now)
    run = runs.start_again(conn, session, Opening(), DM, now)
    runs.stop(conn, run.id, now)


async def test_a_chat_is_told_of_a_missed_run(house: JobHouse):
    house.make("@daily", deliver="telegram:7", route=DM)
    house.clock.tick(2 * DAY - HOUR)
    await house.jobs.tick()
    (line,) = house.lines()
    assert "was due" in line


async def test_a_job_in_somebodys_session_is_no_sign_of_them(house: JobHouse):
    key = "agent:main:telegram:dm"
    house.database.write_now(_talked, house.clock())
    before = house.database.read_now(store.active, key)
    job = house.make("every 30m", session_key=key)
    await house.pass_to(job)
    house.work(key)
    after = house.database.read_now(store.active, key)
    assert before is not None
    assert after is not None
    assert (after.id, after.last_user_at) == (before.id, before.last_user_at)
    said = [m.content for m in house.database.read_now(store.read_messages, after.id) if m.role is Role.USER]
    assert said == ["summarise"]


async def test_a_deleted_job_takes_what_waits_with_it(house: JobHouse):
    job = house.make("every 30m")
    await house.pass_to(job)
    house.database.write_now(jobs.remove, job.id)
    assert (house.queued(), house.slots(job)) == ([], [])
    with pytest.raises(NotFound):
        house.job(job)


async def test_a_clock_that_is_set_back_fires_nothing_twice(house: JobHouse):
    job = house.make("every 30m")
    await house.pass_to(job)
    house.work(job.session_key)
    house.clock.tick(-2 * HOUR)
    await house.jobs.tick()
    house.clock.tick(2 * HOUR)
    await house.jobs.tick()
    assert len(house.queued()) == 1


FORKS = multiprocessing.get_context("forkserver")
PROCESSES, SLOTS = 10, 6


def tick_on_and_on(url: str, start: int, slots: int) -> None:
    """One process of a team: its own connections, its own timer."""
    database = open_database(Path("/nowhere"), url)
    clock = HandClock(start)
    ticker = Jobs(database, clock=clock)

    async def run() -> None:
        for _ in range(slots * 4):
            clock.tick(15 * MINUTE // 2)
            await ticker.tick()

    asyncio.run(run())
    database.close()


def test_ten_processes_that_tick_fire_each_slot_once(postgres_url: str, clock: HandClock):
    database = open_database(Path("/nowhere"), postgres_url)
    house = JobHouse(database, clock)
    made = [house.make("every 30m", name=f"job {number}") for number in range(5)]
    tickers = [FORKS.Process(target=tick_on_and_on, args=(postgres_url, clock(), SLOTS)) for _ in range(PROCESSES)]
    for ticker in tickers:
        ticker.start()
    for ticker in tickers:
        ticker.join(100)
        assert ticker.exitcode == 0
    for job in made:
        slots = house.slots(job)
        assert sorted(slot.slot for slot in slots) == [clock() + 30 * MINUTE * (i + 1) for i in range(SLOTS)]
        queued = [key for key in house.queued() if job.id in key]
        assert len(queued) == len(set(queued)) == sum(slot.status is SlotStatus.QUEUED for slot in slots) == 1
    database.close()


async def test_a_session_that_is_deleted_does_not_hold_its_job_up(house: JobHouse):
    job = house.make("every 30m")
    await house.pass_to(job)

    def park(conn: Connection) -> None:
        run = runs.claim(conn, job.session_key, "me", Opening(), house.clock(), lease_ms=1_000)
        assert run is not None
        runs.take_in_new_messages(conn, run, house.clock())
        call = {"id": "c", "type": "function", "function": {"name": "files", "arguments": "{}"}}
        (row,) = runs.answered(conn, run, ModelAnswer(text="", tool_calls=[call]), house.clock(), step=0)
        assert runs.park(conn, run, row, "Which?", house.clock())
        store.delete_session(conn, run.session_id)

    house.database.write_now(park)
    await house.pass_to(job)
    assert house.slots(job)[0].status is SlotStatus.QUEUED
