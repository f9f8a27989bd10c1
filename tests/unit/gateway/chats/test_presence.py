"""What a chat sees while the agent works, second by second."""

from dataclasses import replace
from itertools import pairwise

import pytest

from adapters.base import TryLater, Undeliverable
from gateway.chats.presence import LEFT_SECONDS, READ, SOON_SECONDS
from gateway.runs.live import LiveEvent
from sessions.keys import Address, Platform
from sessions.records import Route
from tests.unit.gateway.scenes import DM, GROUP, RunScene, a_run, asked


@pytest.fixture
async def dm() -> RunScene:
    return RunScene(DM)


@pytest.fixture
async def group() -> RunScene:
    return RunScene(GROUP)


async def test_an_answer_that_is_there_at_once_is_not_announced(dm: RunScene) -> None:
    dm.begins()
    dm.says("All of it.")
    await dm.time.passes(SOON_SECONDS - 0.1)
    dm.ends()
    await dm.delivers()
    await dm.time.passes(30)
    assert dm.seen == [(0.3, "answer")]


async def test_typing_is_renewed_and_ends_with_the_run(dm: RunScene) -> None:
    dm.begins()
    await dm.time.passes(9)
    assert [what for _, what in dm.seen] == ["typing"] * 3
    assert all(later - earlier > 3.98 for (earlier, _), (later, _) in zip(dm.seen, dm.seen[1:], strict=False))
    dm.ends()
    await dm.time.passes(60)
    assert len(dm.seen) == 3


async def test_typing_stops_where_text_is_shown(group: RunScene) -> None:
    group.begins()
    await group.time.passes(1)
    for number in range(40):
        group.says(f"{number} ")
        await group.time.passes(0.5)
    kinds = ["typing" if what == "typing" else "text" for _, what in group.seen]
    assert kinds == ["typing"] + ["text"] * (len(kinds) - 1)
    times = [at for at, _ in group.seen[1:]]
    assert all(later - earlier > group.chat.pace.edit - 0.02 for earlier, later in pairwise(times))


@pytest.mark.parametrize(("address", "after"), [(DM, 10), (GROUP, 30)])
async def test_a_line_of_progress_when_there_is_no_text_for_long(address: Address, after: float) -> None:
    scene = RunScene(address)
    scene.begins()
    scene.live.publish(LiveEvent("r", "tool", "session_search"))
    await scene.time.passes(after + 2)
    (at, line) = next(seen for seen in scene.seen if seen[1] != "typing")
    assert after <= at <= after + 1.5
    assert line == "_is looking through earlier conversations…_"


async def test_silence_is_never_shown(group: RunScene) -> None:
    group.begins()
    for piece in ("NO", "_REP", "LY"):
        group.says(piece)
        await group.time.passes(2)
    assert {what for _, what in group.seen} == {"typing"}


async def test_a_draft_that_fades_is_renewed(dm: RunScene) -> None:
    dm.begins()
    dm.says("Some words")
    await dm.time.passes(50)
    drawn = [at for at, what in dm.seen if what == "Some words"]
    assert len(drawn) == 3
    assert all(20 < later - earlier < 22 for earlier, later in pairwise(drawn))


async def test_a_quick_answer_takes_the_place_of_its_preview(group: RunScene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.ends()
    assert await group.delivers() == "99"
    await group.time.passes(LEFT_SECONDS + 5)
    assert [what for _, what in group.seen][-1] == "answer"


async def test_after_a_long_run_the_answer_is_new_and_the_preview_goes_in_its_turn(group: RunScene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(70)
    group.ends()
    assert await group.delivers() is None
    (sent, _), (erased, what) = group.seen[-2:]
    assert what == "erased 99"
    assert erased - sent > group.chat.pace.group - 0.02


async def test_a_preview_without_an_answer_goes_after_a_while(group: RunScene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.ends()
    await group.time.passes(LEFT_SECONDS - 1)
    assert "erased 99" not in [what for _, what in group.seen]
    await group.time.passes(5)
    assert [what for _, what in group.seen][-1] == "erased 99"


async def test_a_preview_that_the_answer_is_taking_is_never_erased(group: RunScene) -> None:
    """However long the platform makes the last edit wait."""
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.ends()
    assert await group.presence.take_preview("r", asked(group.address)) == "99"
    await group.time.passes(LEFT_SECONDS - 10)
    assert await group.presence.take_preview("r", asked(group.address)) == "99"
    await group.time.passes(20)
    group.presence.mark_final("r")
    await group.presence.clear("r")
    assert "erased 99" not in [what for _, what in group.seen]


async def test_stop_leaves_the_words_to_the_message_that_keeps_them(group: RunScene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.presence.end_without_answer(["r", "another"])
    group.ends()
    await group.time.passes(1)
    assert await group.presence.take_preview("r", asked(group.address)) == "99"


async def test_stop_takes_a_line_of_progress_away_at_once(group: RunScene) -> None:
    group.begins()
    await group.time.passes(60)
    group.presence.end_without_answer(["r", "another"])
    group.ends()
    await group.time.passes(1)
    assert [what for _, what in group.seen][-1] == "erased 99"
    count = len(group.seen)
    await group.time.passes(LEFT_SECONDS * 2)
    assert len(group.seen) == count


async def test_an_answer_to_a_part_does_not_end_what_is_shown(group: RunScene) -> None:
    group.begins()
    await group.time.passes(1)
    await group.delivers()
    await group.time.passes(10)
    assert [what for _, what in group.seen][2:] == ["typing"] * 3
    group.ends()
    await group.time.passes(10)
    assert [what for _, what in group.seen][2:] == ["typing"] * 3


async def test_a_limit_on_a_preview_holds_the_whole_chat(group: RunScene) -> None:
    group.chat.trouble = [TryLater("wait", after=17)]
    group.begins()
    await group.time.passes(1)
    group.ends()
    await group.delivers()
    assert group.seen == [(SOON_SECONDS, "typing"), (pytest.approx(17 + SOON_SECONDS, abs=0.1), "answer")]


@pytest.mark.parametrize("error", [Undeliverable("no"), TryLater("not reached")])
async def test_a_preview_that_is_refused_holds_up_nothing(group: RunScene, error: Exception) -> None:
    group.chat.trouble = [error]
    group.begins()
    await group.time.passes(4.5)
    assert len(group.seen) == 1
    group.ends()
    await group.delivers()
    assert group.seen[-1] == (4.5, "answer")


async def test_where_a_preview_may_have_been_left_no_second_one_is_begun(group: RunScene) -> None:
    group.begins()
    await group.time.passes(1)
    group.chat.trouble = [TryLater("no answer", ambiguous=True)]
    group.says("Some words")
    await group.time.passes(1)
    group.says(" and more")
    await group.time.passes(20)
    assert [what for _, what in group.seen[:3]] == ["typing", "Some words", "typing"]
    assert {what for _, what in group.seen[2:]} == {"typing"}
    group.ends()
    assert await group.delivers() is None


async def test_a_preview_whose_change_got_no_answer_goes_on(group: RunScene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.chat.trouble = [TryLater("no answer", ambiguous=True)]
    group.says(" and more")
    await group.time.passes(20)
    group.ends()
    assert await group.delivers() == "99"


async def test_what_comes_in_meanwhile_gets_a_reaction_until_the_answer_is_there(group: RunScene) -> None:
    group.begins()
    await group.time.passes(2)
    for number in ("5", "6"):
        await group.marks_read(number)
    await group.time.passes(3)
    group.ends()
    asked = group.time.now - 100
    await group.delivers()
    await group.time.passes(10)
    assert [what for _, what in group.seen] == [
        "typing",
        f"5 {READ}",
        f"6 {READ}",
        "typing",
        "answer",
        "5 off",
        "6 off",
    ]
    assert group.seen[4][0] - asked <= 1, "the answer waits for no reaction"
    times = [at for at, _ in group.seen]
    assert all(later - earlier > 0.98 for earlier, later in pairwise(times)), "one budget for all"


async def test_reactions_that_are_not_permitted_are_left_out(group: RunScene) -> None:
    group.begins()
    await group.time.passes(2)
    group.chat.trouble = [Undeliverable("REACTION_INVALID")]
    await group.marks_read("5")
    await group.time.passes(1)
    assert group.chat.trouble == []


async def test_what_comes_in_too_late_gets_no_reaction(group: RunScene) -> None:
    group.begins()
    await group.time.passes(SOON_SECONDS)
    await group.marks_read("5")
    group.ends()
    await group.delivers()
    await group.time.passes(20)
    assert [what for _, what in group.seen] == ["typing", "answer"]


async def test_runs_of_other_platforms_are_shown_there(dm: RunScene) -> None:
    elsewhere = replace(a_run(DM), route=Route(address=replace(DM, platform=Platform.SLACK)))
    dm.live.publish(LiveEvent("r", "begun", run=elsewhere))
    dm.live.publish(LiveEvent("s", "begun", run=replace(elsewhere, route=None)))
    await dm.time.passes(20)
    assert dm.seen == []


async def test_closing_ends_everything(dm: RunScene) -> None:
    dm.begins()
    await dm.time.passes(1)
    dm.presence.close()
    await dm.time.passes(60)
    assert len(dm.seen) == 1


async def test_a_sign_is_taken_off_when_the_run_is_stopped(group: RunScene) -> None:
    group.begins()
    await group.marks_read("8")
    await group.time.passes(2)
    group.presence.end_without_answer(["r"])
    group.ends()
    await group.time.passes(5)
    assert [what for _, what in group.seen if what != "typing"] == ["8 👀", "8 off"]


async def test_what_grows_under_a_message_rings_once_and_what_only_says_that_somebody_works_does_not(
    group: RunScene,
) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(2)
    assert group.chat.begun == [(asked(group.address), False)]
    assert await group.presence.take_preview("r", asked(group.address)) == "99"


async def test_a_progress_line_is_silent_and_the_answer_a_message_of_its_own(group: RunScene) -> None:
    group.begins()
    await group.time.passes(31)
    group.says("Some words")
    await group.time.passes(5)
    assert group.chat.begun == [(asked(group.address), True)]
    assert await group.delivers() is None


async def test_an_answer_to_another_message_does_not_take_the_preview_of_the_first(group: RunScene) -> None:
    run = replace(a_run(group.address), route=Route(address=group.address, reply_to="5"))
    group.live.publish(LiveEvent("r", "begun", run=run))
    group.says("Some words")
    await group.time.passes(2)
    assert await group.presence.take_preview("r", "another") is None
