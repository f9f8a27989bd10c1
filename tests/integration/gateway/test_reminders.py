"""Questions that wait are put once more after a day, alone with somebody, and never again."""

import pytest

from gateway.chats.approvals import AFTER_MS, Reminders
from sessions import runs
from sessions.keys import ChatKind
from tests.integration.gateway.intake_in_process import DM, DM_KEY, GROUP, GROUP_KEY, IntakeHarness


async def run_once(intake: IntakeHarness) -> None:
    """One look at what waits."""
    await Reminders(intake.app).send()


async def test_after_a_day_it_is_asked_once_more_and_then_left(intake: IntakeHarness):
    await intake.comes("hello")
    intake.waits(DM_KEY)
    before = len(intake.sent())
    intake.clock.now += AFTER_MS - 1
    await run_once(intake)
    assert len(intake.sent()) == before
    intake.clock.now += 2
    await run_once(intake)
    await run_once(intake)
    intake.clock.now += 5 * AFTER_MS
    await run_once(intake)
    (reminder,) = intake.sent()[before:]
    assert reminder.startswith("Still waiting")
    assert "rm -rf *" in reminder


@pytest.mark.parametrize(("kind", "key", "answered"), [(GROUP, GROUP_KEY, False), (DM, DM_KEY, True)])
async def test_nobody_is_reminded_in_a_group_or_of_what_is_answered(
    intake: IntakeHarness, kind: ChatKind, key: str, *, answered: bool
):
    await intake.comes("hello", kind)
    number = intake.waits(key)
    if answered:
        active = intake.database.read_now(runs.active, key)
        assert active is not None
        intake.database.write_now(runs.answer, active.id, "yes", "Ann", intake.clock(), ask_id=int(number))
    before = len(intake.sent())
    intake.clock.now += 2 * AFTER_MS
    await run_once(intake)
    assert len(intake.sent()) == before
