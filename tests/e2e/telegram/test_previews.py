"""An answer that grows, and what may happen to it on its way."""

from pathlib import Path

import pytest

from gateway import presence
from gateway.texts import say
from tests.e2e.telegram.house import Gate, answering, settled
from tests.fakes.model_replies import Reply

WHOLE = "First words of it and the end."


def growing(gate: Gate) -> Reply:
    return Reply(chunks=("First words of it ", "and the end."), between=gate)


async def test_a_limit_on_the_last_edit_delays_the_answer_and_nothing_else(home: Path) -> None:
    gate = Gate()
    async with answering(home, growing(gate)) as (s, _):
        group = s.server.group()
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        await s.server.answered(group.id)
        s.server.rate_limit("editMessageText", retry_after=1)
        gate.open.set()
        await s.server.until(lambda: s.server.answers(group.id) == [WHOLE])
        await settled(s.app.database)
        assert len(s.server.called("sendMessage")) == 1
        assert s.server.faults[-1].times == 0


async def test_a_last_edit_whose_answer_was_lost_is_made_again_and_changes_nothing(home: Path) -> None:
    gate = Gate()
    async with answering(home, growing(gate)) as (s, _):
        group = s.server.group()
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        await s.server.answered(group.id)
        s.server.fail("editMessageText", drop="after")
        gate.open.set()
        await s.server.until(lambda: s.server.answers(group.id) == [WHOLE])
        await settled(s.app.database)
        assert s.server.answers(group.id) == [WHOLE]


async def test_stop_in_the_middle_takes_the_preview_away(home: Path) -> None:
    gate = Gate()
    async with answering(home, growing(gate)) as (s, _):
        group = s.server.group()
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        (preview,) = await s.server.answered(group.id)
        assert preview.startswith("First words")
        s.server.user_says(group, s.ann, "/stop")
        await s.server.until(lambda: s.server.answers(group.id) == [say("run.stopped")])
        gate.open.set()


async def test_stop_in_the_middle_of_a_draft_in_a_direct_message(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    async with answering(home, growing(gate), "Again.") as (s, _):
        s.says("hello")
        await s.server.until(lambda: s.dm.drafts)
        s.says("/stop")
        assert await s.server.answered(s.dm.id) == [say("run.stopped")]
        monkeypatch.setattr(presence, "SOON_SECONDS", 60)  # what follows is quick, on whatever machine
        shown = (len(s.dm.drafts), len(s.dm.actions))
        gate.open.set()
        assert await s.answer_to("once more") == "Again."
        assert (len(s.dm.drafts), len(s.dm.actions)) == shown


async def test_an_answer_that_is_there_at_once_is_not_announced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "SOON_SECONDS", 60)  # at once, on whatever machine
    async with answering(home, "Here.") as (s, _):
        assert await s.answer_to("hello") == "Here."
        assert (s.dm.actions, s.dm.drafts) == ([], [])
