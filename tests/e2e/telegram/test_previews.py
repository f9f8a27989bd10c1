"""An answer that grows, and what may happen to it on its way."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from gateway.chats import delivery, presence
from gateway.chats.delivery import EDITS
from gateway.texts import say
from sessions import outbox, runs
from sessions.db import Database
from tests.e2e.telegram.daemon import Gate, answering, daemon, process, settled, until_tried
from tests.fakes.model_replies import Reply
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer
from tests.fakes.telegram_world import TelegramChat

WORDS = "First words of it"
WHOLE = f"{WORDS} and the end."


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


@pytest.mark.parametrize("takes_other_calls", [True, False])
async def test_last_edits_without_an_answer_leave_no_doubt(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, takes_other_calls: bool
) -> None:
    """Where the chat takes other calls, the answer is a new message after some tries; in an outage it waits."""
    monkeypatch.setattr(delivery, "_BACKOFF", (0.05,))
    monkeypatch.setattr(delivery, "PROBE_PAUSES", (0.05,))
    monkeypatch.setattr(presence, "REUSED_FOR_SECONDS", 1_000)  # on whatever machine
    gate = Gate()
    async with answering(home, growing(gate)) as (s, _):
        group = s.server.group()
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        await s.server.answered(group.id)
        fault = s.server.fail("editMessageText" if takes_other_calls else "*", drop="before", times=10_000)
        gate.open.set()
        if not takes_other_calls:
            await until_tried(s, "attempts", 1)
            await s.server.until(lambda: fault.times < 10_000 - 2 * EDITS)
            s.server.faults.clear()
        await s.server.until(lambda: s.server.answers(group.id) == [WHOLE])
        await settled(s.app.database)
        await until_tried(s, "attempts", EDITS + 1 if takes_other_calls else 2)
        assert await s.app.database.read(outbox.dead_letters) == []
        assert len(s.server.called("sendMessage")) == (2 if takes_other_calls else 1)


async def test_stop_in_the_middle_keeps_what_was_said(home: Path) -> None:
    gate = Gate()
    async with answering(home, growing(gate)) as (s, _):
        group = s.server.group()
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        (preview,) = await s.server.answered(group.id)
        assert preview.startswith("First words")
        s.server.user_says(group, s.ann, "/stop")
        kept = f"{WORDS}\n\n{say('run.stopped_here')}"
        await s.server.until(lambda: sorted(s.server.answers(group.id)) == sorted([kept, say("run.stopped")]))
        assert s.server.called("deleteMessage") == []
        gate.open.set()


async def test_stop_in_the_middle_of_a_draft_in_a_direct_message(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    async with answering(home, growing(gate), "Again.") as (s, _):
        s.says("hello")
        await s.server.until(lambda: s.dm.drafts)
        s.says("/stop")
        kept = f"{WORDS}\n\n{say('run.stopped_here')}"
        await s.server.until(lambda: sorted(s.server.answers(s.dm.id)) == sorted([kept, say("run.stopped")]))
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


def is_noted(home: Path) -> bool:
    """Between showing a preview and noting its name a crash leaves it, as between any call and its mark."""
    with closing(sqlite3.connect(home / "state.db")) as conn:
        return conn.execute("SELECT count(*) FROM runs WHERE preview IS NOT NULL").fetchone()[0] > 0


@asynccontextmanager
async def killed_at(home: Path, *, edited: bool) -> AsyncGenerator[tuple[TelegramServer, TelegramChat, dict[str, Any]]]:
    """After kill -9: with the preview half grown, or with the answer in its place and nobody who has heard of it."""
    gate, never = Gate(), asyncio.Event()
    async with ModelServer([growing(gate), WHOLE]) as model, TelegramServer() as server:
        sections = {"model": {"base_url": model.url, "name": "big", "api_key": "k"}}
        group = server.group()
        server.user_says(group, server.user(7, "Ann"), "@hermes_bot hello")
        killed = await process(home, server, sections=sections)
        assert [text.startswith("First") for text in await server.answered(group.id, timeout=60)] == [True]
        await server.until(lambda: is_noted(home))
        if edited:
            server.fail("editMessageText", drop="after", wait=never)
            gate.open.set()
            await server.until(lambda: server.answers(group.id) == [WHOLE])
        killed.kill()
        await killed.wait()
        never.set()
        gate.open.set()
        yield server, group, sections
        assert server.violations == []


@pytest.mark.parametrize("edited", [False, True])
async def test_after_kill_9_the_answer_takes_the_place_of_the_preview_that_was_there(
    home: Path, *, edited: bool
) -> None:
    async with killed_at(home, edited=edited) as (server, group, sections):
        async with daemon(home, server, sections=sections) as (app, _):
            await server.until(lambda: server.answers(group.id) == [WHOLE])
            await settled(app.database)
            assert await noted(app.database) == 0
        assert len(server.called("sendMessage")) == 1
        assert server.called("deleteMessage") == []


async def noted(database: Database) -> int:
    """Previews that the next start would look for."""
    return len(await database.read(runs.still_shown))
