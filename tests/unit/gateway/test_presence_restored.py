"""What a chat sees of a run that an earlier process had shown."""

from dataclasses import replace

import pytest

from gateway.chats.presence import LEFT_SECONDS
from sessions.records import RunStatus
from tests.unit.gateway.scenes import GROUP, RunScene, a_run


@pytest.fixture
async def group() -> RunScene:
    return RunScene(GROUP)


async def test_a_preview_of_an_earlier_process_that_nothing_took_is_taken_away(group: RunScene) -> None:
    left = replace(a_run(GROUP), status=RunStatus.COMPLETED, preview="41", created_at=0)
    group.presence.restore([left], now=5_000)
    await group.time.passes(LEFT_SECONDS - 1)
    assert group.seen == []
    await group.time.passes(2)
    assert [what for _, what in group.seen] == ["erased 41"]


async def test_a_run_that_goes_on_goes_on_in_the_preview_that_was_there(group: RunScene) -> None:
    group.presence.restore([replace(a_run(GROUP), preview="41", created_at=0)], now=5_000)
    group.begins()
    group.ends()
    assert await group.delivers() == "41"


async def test_the_answer_of_a_run_that_took_long_is_new_after_a_restart_too(group: RunScene) -> None:
    left = replace(a_run(GROUP), status=RunStatus.COMPLETED, preview="41", created_at=0)
    group.presence.restore([left], now=120_000)
    assert await group.delivers() is None
    assert [what for _, what in group.seen] == ["answer", "erased 41"]


async def test_signs_of_an_earlier_process_are_taken_off_with_the_answer(group: RunScene) -> None:
    group.presence.restore([replace(a_run(GROUP), noted=("8", "9"), created_at=0)], now=5_000)
    group.begins()
    group.ends()
    await group.delivers()
    await group.time.passes(10)
    assert [what for _, what in group.seen] == ["answer", "8 off", "9 off"]


async def test_signs_of_an_earlier_process_on_a_run_that_is_over_go_at_once(group: RunScene) -> None:
    group.presence.restore([replace(a_run(GROUP), status=RunStatus.COMPLETED, noted=("8",), created_at=0)], now=5_000)
    await group.time.passes(2)
    assert group.seen == [(0.0, "8 off")]
