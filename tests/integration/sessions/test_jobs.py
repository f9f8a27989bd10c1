"""Jobs fire: each slot once, whoever ticks, and what became of it is known."""

import asyncio
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select

from gateway.agent.tools.schedule import line_of
from gateway.api.jobs import JobBody
from gateway.scheduler.jobs import Jobs
from sessions import jobs, runs, store
from sessions.db import Database, open_database
from sessions.db.schema import inbox, job_slots, outbox
from sessions.db.schema import jobs as table
from sessions.errors import Invalid, NotFound
from sessions.jobs import Job, JobState, Slot, SlotOutcome, SlotStatus
from sessions.jobs.firing import BACKOFF_MS
from sessions.jobs.records import KEPT_SLOTS
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.records import Role, Route, Run
from sessions.runs import ModelAnswer, Opening
from tests.app import enable, make_app
from tests.conftest import HandClock

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
DM = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7"))


class JobHarness:
    def __init__(self, database: Database, clock: HandClock) -> None:
        self.database, self.clock = database, clock
        self.counted: list[str] = []
        app = make_app(Path("/nonexistent"), database, clock=clock)
        enable(app, "telegram")
        app.metrics.job_slot = self.counted.append
        self.jobs = Jobs(app)

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
def harness(database: Database, clock: HandClock) -> JobHarness:
    return JobHarness(database, clock)


async def test_a_slot_fires_once_and_its_session_accumulates(harness: JobHarness):
    job = harness.make("0 9 * * 1")
    assert job.session_key == f"agent:main:job:{job.id}"
    await harness.jobs.tick()
    assert harness.queued() == []
    for week in range(3):
        await harness.pass_to(job)
        await harness.jobs.tick()
        run = harness.work(job.session_key, f"report {week}")
        assert run.kind == "job"
    session = harness.database.read_now(store.active, job.session_key)
    assert session is not None
    assert session.ns == "agent:main"
    said = [m.content for m in harness.database.read_now(store.read_messages, session.id)]
    assert said == ["summarise", "report 0", "summarise", "report 1", "summarise", "report 2"]
    found = harness.job(job)
    assert (found.completed, found.last_status, found.state) == (3, "ok", JobState.SCHEDULED)
    assert [slot.status for slot in harness.slots(job)] == [SlotStatus.OK] * 3
    assert len(harness.queued()) == len(set(harness.queued())) == 3
    assert harness.counted == ["ran"] * 3


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
    harness: JobHarness, late: int, outcome: SlotOutcome
):
    job = harness.make("@daily")
    harness.clock.now = (job.next_run_at or 0) + late
    await harness.jobs.tick()
    await harness.jobs.tick()
    (slot,) = harness.slots(job)
    assert (slot.outcome, slot.slot) == (outcome, (job.next_run_at or 0) + late // DAY * DAY)
    is_missed = outcome is SlotOutcome.MISSED
    assert harness.job(job).last_status == ("missed" if is_missed else None)
    assert len(harness.queued()) == (0 if is_missed else 1)
    assert harness.job(job).next_run_at == slot.slot + DAY


@pytest.mark.parametrize(("late", "status"), [(59 * MINUTE, None), (HOUR, "missed")])
async def test_a_one_shot_is_made_up_within_an_hour(harness: JobHarness, late: int, status: str | None):
    job = harness.make("30m")
    harness.clock.tick(30 * MINUTE + late)
    await harness.jobs.tick()
    found = harness.job(job)
    assert (found.state, found.enabled, found.last_status) == (JobState.COMPLETED, False, status)
    assert len(harness.queued()) == (1 if status is None else 0)
    harness.clock.tick(DAY)
    await harness.jobs.tick()
    assert len(harness.slots(job)) == 1


async def test_it_runs_as_often_as_was_said(harness: JobHarness):
    job = harness.make("every 30m", repeat=2)
    for _ in range(2):
        await harness.pass_to(job)
        harness.work(job.session_key)
    found = harness.job(job)
    assert (found.completed, found.state, found.next_run_at) == (2, JobState.COMPLETED, None)
    with pytest.raises(Invalid, match="no run to come"):
        harness.database.write_now(jobs.resume, job.id, harness.clock())


async def test_a_paused_job_rests_and_makes_nothing_up(harness: JobHarness):
    job = harness.make("every 30m")
    harness.database.write_now(jobs.pause, job.id)
    harness.clock.tick(DAY)
    await harness.jobs.tick()
    assert harness.queued() == []
    resumed = harness.database.write_now(jobs.resume, job.id, harness.clock())
    assert resumed.next_run_at == harness.clock() + 30 * MINUTE
    await harness.pass_to(job)
    assert len(harness.queued()) == 1


async def test_run_now_is_besides_the_schedule_and_while_it_is_paused(harness: JobHarness):
    job = harness.make("@daily")
    harness.database.write_now(jobs.pause, job.id)
    harness.database.write_now(jobs.run_soon, job.id, harness.clock())
    await harness.jobs.tick()
    await harness.jobs.tick()
    harness.work(job.session_key)
    (slot,) = harness.slots(job)
    assert (slot.outcome, slot.status) == (SlotOutcome.MANUAL, SlotStatus.OK)
    assert (harness.job(job).completed, harness.job(job).state) == (0, JobState.PAUSED)


async def test_while_one_slot_is_at_work_the_next_is_left_out(harness: JobHarness):
    job = harness.make("every 30m")
    await harness.pass_to(job)
    await harness.pass_to(job)
    assert [slot.status for slot in harness.slots(job)] == [SlotStatus.MISSED, SlotStatus.QUEUED]
    assert harness.job(job).last_error == "the run before was still at work"
    harness.work(job.session_key)
    await harness.pass_to(job)
    assert len(harness.queued()) == 2


async def test_a_slot_that_was_left_out_is_none_of_the_repeats(harness: JobHarness):
    job = harness.make("every 30m", repeat=2)
    for _ in range(3):
        await harness.pass_to(job)
    assert (harness.job(job).completed, harness.job(job).state) == (1, JobState.SCHEDULED)
    harness.work(job.session_key)
    await harness.pass_to(job)
    assert (harness.job(job).completed, harness.job(job).state) == (2, JobState.COMPLETED)


async def test_jobs_that_rest_leave_room_for_others(harness: JobHarness):
    resting = harness.make("every 30m")
    for _ in range(4):
        harness.clock.now = max(harness.clock.now, harness.job(resting).not_before or 0)
        await harness.pass_to(resting)
        harness.work(resting.session_key, answer=None)
    harness.clock.tick(MINUTE)
    other = harness.make("every 30m")
    harness.clock.tick(30 * MINUTE)
    now = harness.clock()
    assert (harness.job(resting).next_run_at or 0) < now < (harness.job(resting).not_before or 0)
    assert [job.id for job in harness.database.read_now(jobs.due, now, 1)] == [other.id]


async def test_failures_rest_longer_each_time_and_the_owner_hears_of_the_third(harness: JobHarness):
    await asyncio.sleep(0)
    harness.database.write_now(_talked, harness.clock())
    job = harness.make("every 1m")
    for count in range(1, 6):
        await harness.pass_to(job)
        while not harness.database.read_now(jobs.is_pending, job.id):
            harness.clock.tick(MINUTE // 4)
            await harness.jobs.tick()
        failed_at = harness.clock()
        harness.work(job.session_key, None)
        found = harness.job(job)
        assert (found.failures, found.last_status, found.last_error) == (count, "error", "The model said no.")
        assert found.not_before == failed_at + BACKOFF_MS[min(count, len(BACKOFF_MS)) - 1]
        await harness.jobs.tick()
        told = [line for line in harness.lines() if "three times in a row" in line]
        assert len(told) == (1 if count >= 3 else 0)
    while not harness.database.read_now(jobs.is_pending, job.id):
        harness.clock.tick(MINUTE // 4)
        await harness.jobs.tick()
    harness.work(job.session_key)
    assert (harness.job(job).failures, harness.job(job).told) == (0, False)


def _talked(conn: Connection, now: int) -> None:
    """The owner has talked with the bot, so it is known where they are."""
    session = runs.open_session(conn, SessionKey.parse("agent:main:telegram:dm"), Opening(), now)
    run = runs.start_again(conn, session, Opening(), DM, now)
    runs.stop(conn, run.id, now)


async def test_a_chat_is_told_of_a_missed_run(harness: JobHarness):
    harness.make("@daily", deliver="telegram:7", route=DM)
    harness.clock.tick(2 * DAY - HOUR)
    await harness.jobs.tick()
    (line,) = harness.lines()
    assert "was due" in line


async def test_a_job_in_somebodys_session_is_no_sign_of_them(harness: JobHarness):
    key = "agent:main:telegram:dm"
    harness.database.write_now(_talked, harness.clock())
    before = harness.database.read_now(store.active, key)
    job = harness.make("every 30m", session_key=key)
    await harness.pass_to(job)
    harness.work(key)
    after = harness.database.read_now(store.active, key)
    assert before is not None
    assert after is not None
    assert (after.id, after.last_user_at) == (before.id, before.last_user_at)
    said = [m.content for m in harness.database.read_now(store.read_messages, after.id) if m.role is Role.USER]
    assert said == ["summarise"]


async def test_of_a_job_that_runs_for_ever_the_last_slots_are_kept(
    harness: JobHarness,
):
    query = select(job_slots.c.status).order_by(job_slots.c.id)
    jobs_of = [harness.make("every 30m"), harness.make("every 30m")]
    rows = [
        {"job_id": job.id, "slot": n, "dedup_key": f"{job.id}:{n}", "outcome": "ran", "status": status, "created_at": n}
        for job in jobs_of
        for n, status in enumerate(["queued", *["ok"] * (KEPT_SLOTS + 9)])
    ]
    harness.database.write_now(lambda conn: conn.execute(insert(job_slots), rows))
    await harness.pass_to(jobs_of[0])
    for job in jobs_of:
        left = harness.database.read_now(
            lambda conn, job=job: list(conn.scalars(query.where(job_slots.c.job_id == job.id)))
        )
        assert left == ["queued", *["ok"] * (KEPT_SLOTS - 1), "queued"]


async def test_a_deleted_job_takes_what_waits_with_it(harness: JobHarness):
    job = harness.make("every 30m")
    await harness.pass_to(job)
    harness.database.write_now(jobs.remove, job.id)
    assert (harness.queued(), harness.slots(job)) == ([], [])
    with pytest.raises(NotFound):
        harness.job(job)


async def test_a_clock_that_is_set_back_fires_nothing_twice(harness: JobHarness):
    job = harness.make("every 30m")
    await harness.pass_to(job)
    harness.work(job.session_key)
    harness.clock.tick(-2 * HOUR)
    await harness.jobs.tick()
    harness.clock.tick(2 * HOUR)
    await harness.jobs.tick()
    assert len(harness.queued()) == 1


FORKS = multiprocessing.get_context("forkserver")
PROCESSES, SLOTS = 10, 6


def tick_on_and_on(url: str, start: int, slots: int, together: Any) -> None:
    """One process of a team: its own connections, its own timer. Their clocks agree, as those of one time server do."""
    database = open_database(Path("/nowhere"), url)
    clock = HandClock(start)
    ticker = Jobs(make_app(Path("/nonexistent"), database, clock=clock))

    async def run() -> None:
        for _ in range(slots * 4):
            clock.tick(15 * MINUTE // 2)
            together.wait(100)
            await ticker.tick()

    asyncio.run(run())
    database.close()


def test_ten_processes_that_tick_fire_each_slot_once(postgres_url: str, clock: HandClock):
    database = open_database(Path("/nowhere"), postgres_url)
    harness = JobHarness(database, clock)
    made = [harness.make("every 30m", name=f"job {number}") for number in range(5)]
    together = FORKS.Barrier(PROCESSES)
    args = (postgres_url, clock(), SLOTS, together)
    tickers = [FORKS.Process(target=tick_on_and_on, args=args) for _ in range(PROCESSES)]
    for ticker in tickers:
        ticker.start()
    for ticker in tickers:
        ticker.join(100)
        assert ticker.exitcode == 0
    for job in made:
        slots = harness.slots(job)
        assert sorted(slot.slot for slot in slots) == [clock() + 30 * MINUTE * (i + 1) for i in range(SLOTS)]
        queued = [key for key in harness.queued() if job.id in key]
        assert len(queued) == len(set(queued)) == sum(slot.status is SlotStatus.QUEUED for slot in slots) == 1
    database.close()


async def test_a_session_that_is_deleted_does_not_hold_its_job_up(harness: JobHarness):
    job = harness.make("every 30m")
    await harness.pass_to(job)

    def park(conn: Connection) -> None:
        run = runs.claim(conn, job.session_key, "me", Opening(), harness.clock(), lease_ms=1_000)
        assert run is not None
        runs.take_in_new_messages(conn, run, harness.clock())
        call = {"id": "c", "type": "function", "function": {"name": "files", "arguments": "{}"}}
        (row,) = runs.answered(conn, run, ModelAnswer(text="", tool_calls=[call]), harness.clock(), step=0)
        assert runs.park(conn, run, row, "Which?", harness.clock())
        store.delete_session(conn, run.session_id)

    harness.database.write_now(park)
    await harness.pass_to(job)
    assert harness.slots(job)[0].status is SlotStatus.QUEUED


@pytest.mark.parametrize("schedule", ["9999-12-31T23:59:59-14:00", "9999-12-31T00:00:00"])
def test_a_time_that_no_calendar_shows_is_refused(harness: JobHarness, schedule: str):
    with pytest.raises(Invalid, match="too far away"):
        harness.make(schedule)


@pytest.mark.parametrize(
    "bad",
    [
        {"schedule": '{"kind": "once", "run_at": 253402351199000}', "next_run_at": 253_402_351_199_000},
        {"schedule": '{"kind": "once", "run_at": "soon"}'},
        {"schedule": '{"kind": "cron", "expr": "0 0 31 2 *"}'},
        {"schedule": "{}", "next_run_at": 1},
        {"timezone": "Europe/Nowhere"},
        {"state": "odd"},
    ],
)
async def test_one_bad_row_breaks_no_list(harness: JobHarness, bad: dict[str, Any]):
    good, odd = harness.make("0 9 * * *"), harness.make("0 9 * * *")
    harness.database.write_now(
        lambda conn: conn.execute(table.update().where(table.c.id == odd.id).values(bad)) and None
    )
    assert {job.id for job in harness.database.read_now(jobs.listing)} == {good.id, odd.id}
    for job in harness.database.read_now(jobs.listing):
        assert line_of(job)
        assert JobBody.of(job).id == job.id
    harness.database.read_now(jobs.upcoming, limit=5)
    await harness.pass_to(good)
    assert [slot.status for slot in harness.slots(good)] == [SlotStatus.QUEUED]
    assert harness.slots(odd) == []
    assert harness.database.write_now(jobs.remove, odd.id).id == odd.id


def test_each_creator_has_so_many_jobs_and_all_have_so_many(harness: JobHarness):
    limits = jobs.JobLimits(per_creator=2, total=8)

    def make(origin: str, made_by: str | None = "call", schedule: str = "0 9 * * *") -> Job:
        new = jobs.new_job(name="n", prompt="p", schedule=schedule, timezone="UTC", now=harness.clock(), origin=origin)
        return harness.database.write_now(jobs.create, new, made_by=made_by, limits=limits)

    one, other, response = (
        f"agent:main:{each}" for each in ("api:laptop:user:1", "api:laptop:user:2", "response:laptop:r")
    )
    make(one)
    make(other)
    for origin in (one, other, response):
        with pytest.raises(Invalid, match="jobs_per_creator"):
            make(origin)
    make("agent:main:api:laptop2:x")
    for _ in range(4):
        make("agent:main", made_by=None)
    over = make("agent:main", schedule="30m")
    with pytest.raises(Invalid, match=r"limits\.jobs\)"):
        make("agent:main", made_by=None)
    harness.database.write_now(
        lambda conn: conn.execute(table.update().where(table.c.id == over.id).values(state="completed")) and None
    )
    make("agent:main", made_by=None)  # what is over makes room
    with pytest.raises(NotFound):
        harness.job(over)
