"""A clock that was ahead, and is set back: jobs neither stay in the future nor run twice."""

import pytest

from sessions.db import Database
from tests.conftest import HandClock
from tests.integration.sessions.test_jobs import HOUR, MINUTE, JobHarness


@pytest.fixture
def harness(database: Database, clock: HandClock) -> JobHarness:
    return JobHarness(database, clock)


@pytest.mark.parametrize("schedule", ["every 30m", "0 * * * *"])
async def test_a_clock_that_was_a_day_ahead_leaves_no_job_there(harness: JobHarness, schedule: str):
    start = harness.clock()
    job = harness.make(schedule)
    harness.clock.tick(24 * HOUR)
    await harness.jobs.tick()
    made_ahead = harness.make(schedule)
    harness.clock.now = start
    await harness.jobs.tick()
    for each in (job, made_ahead):
        following = harness.job(each).next_run_at
        assert following is not None
        assert start < following <= start + HOUR


async def test_a_slot_that_was_fired_before_the_clock_was_set_back_is_none_of_the_repeats(harness: JobHarness):
    job = harness.make("every 30m", repeat=3)
    await harness.pass_to(job)
    harness.work(job.session_key)
    harness.clock.tick(-10 * MINUTE)
    await harness.jobs.tick()
    harness.clock.tick(10 * MINUTE)
    await harness.jobs.tick()
    assert (harness.job(job).completed, len(harness.queued())) == (1, 1)
