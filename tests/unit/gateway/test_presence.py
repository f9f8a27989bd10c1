"""What a chat sees while the agent works, second by second."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from adapters.base import Deliver, Pace, Reacts, ShowsDrafts, ShowsTyping, TryLater, Undeliverable
from gateway.pacing import Pacer
from gateway.presence import LEFT_SECONDS, READ, SOON_SECONDS, Presence
from gateway.runs.live import Live, Moment
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Inbound, Outbound, Piece, Receipt
from sessions.records import Route, Run, RunKind, RunStatus

DM = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7")
GROUP = Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id="-1")


class Time:
    """Passes when told. Whoever sleeps wakes when it is time, and does what it has to do before any more time passes."""

    def __init__(self) -> None:
        self.now = 100.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    async def passes(self, seconds: float = 0.0) -> None:
        end = self.now + seconds
        await settle()
        while due := [sleeper for sleeper in self._sleepers if sleeper[0] <= end and not sleeper[1].done()]:
            first = min(due, key=lambda sleeper: sleeper[0])
            self._sleepers.remove(first)
            self.now = max(self.now, first[0])
            first[1].set_result(None)
            await settle()
        self.now = end


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Chat(ShowsTyping, ShowsDrafts, Reacts):
    """A platform that writes down what is shown, and when."""

    platform = Platform.TELEGRAM
    pace = Pace(per_second=30, dm=1, group=1, edit=1.5, group_per_minute=20)
    typing_every = 4.0
    draft_renew_every = 20.0

    def __init__(self, time: Time) -> None:
        self._time = time
        self.seen: list[tuple[float, str]] = []
        self.trouble: list[Exception] = []

    async def _see(self, what: str) -> None:
        await asyncio.sleep(0)
        self.seen.append((round(self._time.now - 100, 2), what))
        if self.trouble:
            raise self.trouble.pop(0)

    async def typing(self, address: Address) -> None:
        await self._see("typing")

    async def draft(
        self, address: Address, draft_id: str | None, text: str, *, reply_to: str | None = None
    ) -> str | None:
        await self._see(text)
        return None if address.kind is ChatKind.DM else draft_id or "99"

    async def erase_draft(self, address: Address, draft_id: str) -> None:
        await self._see(f"erased {draft_id}")

    async def react(self, address: Address, message_id: str, emoji: str | None) -> None:
        await self._see(f"{message_id} {emoji or 'off'}")

    async def finish_draft(self, address: Address, draft_id: str, piece: Piece) -> Receipt | None:
        raise NotImplementedError

    async def run(self, deliver: Deliver) -> None:
        raise NotImplementedError

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        raise NotImplementedError

    async def send(self, address: Address, piece: Piece) -> Receipt:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Scene:
    def __init__(self, address: Address) -> None:
        self.time = Time()
        self.chat = Chat(self.time)
        self.pacer = Pacer(self.chat.pace, clock=self.time, sleep=self.time.sleep)
        self.live = Live()
        self.presence = Presence(self.chat, self.pacer, self.live, clock=self.time, sleep=self.time.sleep)
        self.address = address

    def begins(self) -> None:
        self.live.tell(Moment("r", "begun", run=a_run(self.address)))

    def says(self, text: str) -> None:
        self.live.tell(Moment("r", "token", text))

    def ends(self) -> None:
        self.live.tell(Moment("r", "ended"))

    async def hears(self, message_id: str) -> None:
        inbound = Inbound(dedup_key="k", address=self.address, sender=Sender(id="7"), message_id=message_id)
        await self.presence.noted(inbound, "r")

    async def delivers(self) -> str | None:
        """The answer, as the delivery sends it. Returns the preview that it took the place of."""
        await self.waits_for(self.pacer.turn(self.address))
        draft = await self.presence.take("r")
        await self.chat._see("answer")  # the double's own
        if draft is not None:
            self.presence.became("r")
        await self.waits_for(self.presence.clear("r"))
        return draft

    async def waits_for(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        await settle()
        while not task.done():
            await self.time.passes(0.05)

    @property
    def seen(self) -> list[tuple[float, str]]:
        return self.chat.seen


def a_run(address: Address) -> Run:
    known: dict[str, Any] = dict.fromkeys(Run.__slots__)
    known |= {
        "id": "r",
        "kind": RunKind.CHAT,
        "status": RunStatus.RUNNING,
        "route": Route(address=address),
        "noted": (),
    }
    return Run(**known)


@pytest.fixture
async def dm() -> Scene:
    return Scene(DM)


@pytest.fixture
async def group() -> Scene:
    return Scene(GROUP)


async def test_an_answer_that_is_there_at_once_is_not_announced(dm: Scene) -> None:
    dm.begins()
    dm.says("All of it.")
    await dm.time.passes(SOON_SECONDS - 0.1)
    dm.ends()
    await dm.delivers()
    await dm.time.passes(30)
    assert dm.seen == [(0.3, "answer")]


async def test_typing_is_renewed_and_ends_with_the_run(dm: Scene) -> None:
    dm.begins()
    await dm.time.passes(9)
    assert [what for _, what in dm.seen] == ["typing"] * 3
    assert all(later - earlier > 3.98 for (earlier, _), (later, _) in zip(dm.seen, dm.seen[1:], strict=False))
    dm.ends()
    await dm.time.passes(60)
    assert len(dm.seen) == 3


async def test_typing_stops_where_text_is_shown(group: Scene) -> None:
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
    scene = Scene(address)
    scene.begins()
    scene.live.tell(Moment("r", "tool", "session_search"))
    await scene.time.passes(after + 2)
    (at, line) = next(seen for seen in scene.seen if seen[1] != "typing")
    assert after <= at <= after + 1.5
    assert line == "_is looking through earlier conversations…_"


async def test_silence_is_never_shown(group: Scene) -> None:
    group.begins()
    for piece in ("NO", "_REP", "LY"):
        group.says(piece)
        await group.time.passes(2)
    assert {what for _, what in group.seen} == {"typing"}


async def test_a_draft_that_fades_is_renewed(dm: Scene) -> None:
    dm.begins()
    dm.says("Some words")
    await dm.time.passes(50)
    drawn = [at for at, what in dm.seen if what == "Some words"]
    assert len(drawn) == 3
    assert all(20 < later - earlier < 22 for earlier, later in pairwise(drawn))


async def test_a_quick_answer_takes_the_place_of_its_preview(group: Scene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.ends()
    assert await group.delivers() == "99"
    await group.time.passes(LEFT_SECONDS + 5)
    assert [what for _, what in group.seen][-1] == "answer"


async def test_after_a_long_run_the_answer_is_new_and_the_preview_goes_in_its_turn(group: Scene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(70)
    group.ends()
    assert await group.delivers() is None
    (sent, _), (erased, what) = group.seen[-2:]
    assert what == "erased 99"
    assert erased - sent > group.chat.pace.group - 0.02


async def test_a_preview_without_an_answer_goes_after_a_while(group: Scene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.ends()
    await group.time.passes(LEFT_SECONDS - 1)
    assert "erased 99" not in [what for _, what in group.seen]
    await group.time.passes(5)
    assert [what for _, what in group.seen][-1] == "erased 99"


async def test_a_preview_that_the_answer_is_taking_is_never_erased(group: Scene) -> None:
    """However long the platform makes the last edit wait."""
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.ends()
    assert await group.presence.take("r") == "99"
    await group.time.passes(LEFT_SECONDS - 10)
    assert await group.presence.take("r") == "99"
    await group.time.passes(20)
    group.presence.became("r")
    await group.presence.clear("r")
    assert "erased 99" not in [what for _, what in group.seen]


async def test_stop_takes_the_preview_away_at_once(group: Scene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.presence.stopped(["r", "another"])
    group.says(" and more")
    group.ends()
    await group.time.passes(1)
    assert [what for _, what in group.seen][-1] == "erased 99"
    count = len(group.seen)
    await group.time.passes(LEFT_SECONDS * 2)
    assert len(group.seen) == count


async def test_an_answer_to_a_part_does_not_end_what_is_shown(group: Scene) -> None:
    group.begins()
    await group.time.passes(1)
    await group.delivers()
    await group.time.passes(10)
    assert [what for _, what in group.seen][2:] == ["typing"] * 3
    group.ends()
    await group.time.passes(10)
    assert [what for _, what in group.seen][2:] == ["typing"] * 3


async def test_a_limit_on_a_preview_holds_the_whole_chat(group: Scene) -> None:
    group.chat.trouble = [TryLater("wait", after=17)]
    group.begins()
    await group.time.passes(1)
    group.ends()
    await group.delivers()
    assert group.seen == [(SOON_SECONDS, "typing"), (pytest.approx(17 + SOON_SECONDS, abs=0.1), "answer")]


@pytest.mark.parametrize("error", [Undeliverable("no"), TryLater("not reached")])
async def test_a_preview_that_is_refused_holds_up_nothing(group: Scene, error: Exception) -> None:
    group.chat.trouble = [error]
    group.begins()
    await group.time.passes(4.5)
    assert len(group.seen) == 1
    group.ends()
    await group.delivers()
    assert group.seen[-1] == (4.5, "answer")


async def test_where_a_preview_may_have_been_left_no_second_one_is_begun(group: Scene) -> None:
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


async def test_a_preview_whose_change_got_no_answer_goes_on(group: Scene) -> None:
    group.begins()
    group.says("Some words")
    await group.time.passes(5)
    group.chat.trouble = [TryLater("no answer", ambiguous=True)]
    group.says(" and more")
    await group.time.passes(20)
    group.ends()
    assert await group.delivers() == "99"


async def test_what_comes_in_meanwhile_gets_a_reaction_until_the_answer_is_there(group: Scene) -> None:
    group.begins()
    await group.time.passes(2)
    for number in ("5", "6"):
        await group.hears(number)
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


async def test_reactions_that_are_not_permitted_are_left_out(group: Scene) -> None:
    group.begins()
    await group.time.passes(2)
    group.chat.trouble = [Undeliverable("REACTION_INVALID")]
    await group.hears("5")
    await group.time.passes(1)
    assert group.chat.trouble == []


async def test_what_comes_in_too_late_gets_no_reaction(group: Scene) -> None:
    group.begins()
    await group.time.passes(SOON_SECONDS)
    await group.hears("5")
    group.ends()
    await group.delivers()
    await group.time.passes(20)
    assert [what for _, what in group.seen] == ["typing", "answer"]


async def test_runs_of_other_platforms_are_shown_there(dm: Scene) -> None:
    elsewhere = replace(a_run(DM), route=Route(address=replace(DM, platform=Platform.SLACK)))
    dm.live.tell(Moment("r", "begun", run=elsewhere))
    dm.live.tell(Moment("s", "begun", run=replace(elsewhere, route=None)))
    await dm.time.passes(20)
    assert dm.seen == []


async def test_closing_ends_everything(dm: Scene) -> None:
    dm.begins()
    await dm.time.passes(1)
    dm.presence.close()
    await dm.time.passes(60)
    assert len(dm.seen) == 1


async def test_a_preview_of_an_earlier_process_that_nothing_took_is_taken_away(group: Scene) -> None:
    left = replace(a_run(GROUP), status=RunStatus.COMPLETED, preview="41", created_at=0)
    group.presence.restore([left], now=5_000)
    await group.time.passes(LEFT_SECONDS - 1)
    assert group.seen == []
    await group.time.passes(2)
    assert [what for _, what in group.seen] == ["erased 41"]


async def test_a_run_that_goes_on_goes_on_in_the_preview_that_was_there(group: Scene) -> None:
    group.presence.restore([replace(a_run(GROUP), preview="41", created_at=0)], now=5_000)
    group.begins()
    group.ends()
    assert await group.delivers() == "41"


async def test_the_answer_of_a_run_that_took_long_is_new_after_a_restart_too(group: Scene) -> None:
    left = replace(a_run(GROUP), status=RunStatus.COMPLETED, preview="41", created_at=0)
    group.presence.restore([left], now=120_000)
    assert await group.delivers() is None
    assert [what for _, what in group.seen] == ["answer", "erased 41"]


async def test_signs_of_an_earlier_process_are_taken_off_with_the_answer(group: Scene) -> None:
    group.presence.restore([replace(a_run(GROUP), noted=("8", "9"), created_at=0)], now=5_000)
    group.begins()
    group.ends()
    await group.delivers()
    await group.time.passes(10)
    assert [what for _, what in group.seen] == ["answer", "8 off", "9 off"]


async def test_a_sign_is_taken_off_when_the_run_is_stopped(group: Scene) -> None:
    group.begins()
    await group.hears("8")
    await group.time.passes(2)
    group.presence.stopped(["r"])
    group.ends()
    await group.time.passes(5)
    assert [what for _, what in group.seen if what != "typing"] == ["8 👀", "8 off"]


async def test_signs_of_an_earlier_process_on_a_run_that_is_over_go_at_once(group: Scene) -> None:
    group.presence.restore([replace(a_run(GROUP), status=RunStatus.COMPLETED, noted=("8",), created_at=0)], now=5_000)
    await group.time.passes(2)
    assert group.seen == [(0.0, "8 off")]
