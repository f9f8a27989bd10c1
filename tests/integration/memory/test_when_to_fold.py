"""When a session is folded: it has grown, nobody has written for a while, or it has ended."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.memory.fold_worker import FIRST_SCAN_SECONDS
from sessions import memory, store
from sessions.db import Database
from sessions.records import EndReason
from tests.app import configure
from tests.integration.memory.folding import KEY, NS, extractor, folding


async def due(it: Any, *sessions: Any) -> dict[str, int]:
    it.worker._watched = {session.id: 0 for session in sessions}
    return {each.session_id: keep for each, keep in await it.worker._due()}


async def test_it_is_due_when_much_is_unfolded_after_a_silence_and_at_the_end(database: Database) -> None:
    async with folding(database, extractor()) as it:
        much = it.say(*["word " * 800] * 5, key=f"{KEY}:1")
        some = it.say(*["word " * 500] * 2, key=f"{KEY}:2")
        little = it.say("hello", "hi", key=f"{KEY}:3")
        terminal = it.say("hello", "hi", key="agent:main:cli:20250305_091523_a1b2c3d4")
        assert await due(it, much, some, little, terminal) == {much.id: 2_000}
        it.clock.tick(10 * 60_000)
        everybody = (much, some, little, terminal)
        assert await due(it, *everybody) == {much.id: 2_000, some.id: 0, terminal.id: 0}
        database.write_now(store.end, little.id, EndReason.IDLE, it.clock())
        assert await due(it, *everybody) == {much.id: 2_000, some.id: 0, terminal.id: 0, little.id: 0}
        wish = it.say("Please remember that I like tea", "I have noted that.", key=f"{KEY}:4")
        assert wish.id not in await due(it, wish)
        it.clock.tick(60_000)
        assert await due(it, wish) == {wish.id: 0}, "it may only have said so"
        told = it.say("I like coffee too", "I've noted that for you.", key=f"{KEY}:5")
        assert await due(it, told) == {}
        it.clock.tick(60_000)
        assert await due(it, told) == {told.id: 0}, "without being asked"
        configure(it.app, memory={"enabled": False})
        assert await due(it, *everybody) == {}


async def test_the_worker_hears_by_itself(sqlite: Database) -> None:
    async with folding(sqlite, extractor(tea={"text": "Likes tea"})) as it:
        task = asyncio.create_task(it.worker.run())
        await asyncio.sleep(0)
        session = it.say("I like tea", "ok")
        sqlite.write_now(store.end, session.id, EndReason.USER, it.clock())
        async with asyncio.timeout(20):
            while not it.texts():
                await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(it.server.folded) == 1


async def test_sessions_of_one_person_that_end_together_are_folded_one_after_the_other(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.agent.memory.fold_worker.GROUP_SECONDS", 0.02)
    notes = extractor(tea={"text": "Likes tea"}, piano={"text": "Plays the piano"}, oslo={"text": "Lives in Oslo"})
    async with folding(sqlite, notes) as it:
        task = asyncio.create_task(it.worker.run())
        await asyncio.sleep(0)
        said = {
            KEY: "I like tea",
            "agent:main:discord:dm": "I play the piano",
            "agent:main:cli:20250305_091523_a1b2c3d4": "I live in oslo",
        }
        for session in [it.say(text, "ok", key=key) for key, text in said.items()]:
            sqlite.write_now(store.end, session.id, EndReason.DAILY, it.clock())
        async with asyncio.timeout(FIRST_SCAN_SECONDS - 2):
            while len(it.texts()) < 3:
                await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(it.server.folded) == 3


async def test_a_very_long_session_continues_in_a_child(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CHAIN_LENGTH", 40)
    async with folding(database, extractor()) as it:
        session = it.say(*["hi"] * 42)
        database.write_now(store.choose_model, session.id, "big-model")
        await it.fold(session, keep=10)
        parent = database.read_now(store.get, session.id)
        child = database.read_now(store.active, KEY)
        assert child is not None
        assert (parent.end_reason, child.parent_session_id) == (EndReason.COMPRESSED, parent.id)
        assert (child.chosen_model, child.session_key, child.ns) == ("big-model", KEY, NS)


async def test_what_was_imported_is_not_summarised_unasked(database: Database, home: Path) -> None:
    from sessions import export

    async with folding(database, extractor()) as it:
        session = it.say(*["word " * 900] * 8)
        exported = json.dumps(database.read_now(export.export_session, session.id))
        database.write_now(store.delete_session, session.id)
        [line] = export.parse_lines([exported])
        assert database.write_now(export.import_session, line, "cli:ann")
        assert database.read_now(memory.unfolded) == []
