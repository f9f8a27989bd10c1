"""Folds on both databases: what they write, and every way in which they can fail. The extractor is scripted."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from gateway.agent.memory.fold_worker import ATTEMPTS, FIRST_SCAN_SECONDS
from gateway.runs.history import JournalTails
from sessions import memory, store
from sessions.db import Database, search
from sessions.db.query import any_of_its_words
from sessions.errors import NotFound
from sessions.records import EndReason, Observation, Run, Session
from tests.fakes.model_replies import Failure, Reply, bad_request
from tests.fakes.model_rules import Speaks
from tests.integration.memory.folding import KEY, NS, answer, extractor, folded_lines, folding, noted

JSON = dict[str, Any]
REDIS = {
    "text": "Removed Redis",
    "kind": "decision",
    "cause": "stale prices",
    "asked_as": ["why is there no cache any more?"],
}


async def test_what_was_said_becomes_notes_and_a_digest_in_one_commit(database: Database) -> None:
    async with folding(database, extractor(redis=REDIS)) as it:
        session = it.say("We removed Redis, because of stale prices", "Noted.", "hello", "hi")
        await it.fold(session)
        [note] = it.notes()
        assert (note.kind, note.text, note.cause, note.session_id) == (
            "decision",
            "Removed Redis",
            "stale prices",
            session.id,
        )
        assert note.asked_as == ("why is there no cache any more?",)
        assert (
            database.read_now(store.message_in, NS, note.src[0]).content == "We removed Redis, because of stale prices"
        )
        assert it.state().digest == "1 notes"
        last = database.read_now(store.last_messages, session.id, 1)[0]
        assert database.read_now(memory.folded_to, session.id) == last.id
        assert len(it.server.folded) == 1
        assert it.folds[0][0] == "done"


async def test_nothing_to_fold_calls_nobody(database: Database) -> None:
    async with folding(database, extractor()) as it:
        session = it.say("hello", "hi")
        await it.fold(session)
        await it.fold(session)
        assert len(it.server.folded) == 1


async def test_the_fast_model_folds_and_is_counted(database: Database) -> None:
    async with folding(database, extractor(), fast="small-model") as it:
        session = it.say("hello", "hi")
        await it.fold(session)
        assert it.server.folded[0]["model"] == "small-model"
        counted = database.read_now(store.get, session.id)
        assert counted.input_tokens > 100
        assert counted.output_tokens > 0
        assert it.folds[0][2:] == (counted.input_tokens, counted.output_tokens)


async def test_the_oldest_is_folded_down_to_what_is_to_stay_in_chunks(database: Database) -> None:
    async with folding(database, extractor()) as it:
        session = it.say(*(f"message number {number} {'word ' * 200}" for number in range(80)))  # 20,000 tokens
        await it.fold(session, keep=2_000)
        sizes = [sum(len(text) for _, text in folded_lines(body)) // 4 for body in it.server.folded]
        assert max(sizes) <= 6_000
        assert len(sizes) == 4
        [left] = database.read_now(memory.unfolded, [session.id])
        assert 1_500 < left.tokens <= 2_000
        numbers = [number for body in it.server.folded for number, _ in folded_lines(body)]
        assert numbers == sorted(set(numbers))


async def test_a_reversal_closes_the_old_note_which_stays_searchable(database: Database) -> None:
    known = {
        "graphql is in": {"text": "GraphQL is in use", "kind": "decision"},
        "reverted": {"text": "GraphQL was reverted to REST", "kind": "decision", "was": "GraphQL is in use"},
    }
    async with folding(database, extractor(**{key.replace(" ", "_"): value for key, value in known.items()})) as it:
        session = it.say("GraphQL is in use now", "ok")
        await it.fold(session)
        it.say("We reverted GraphQL to REST", "ok")
        await it.fold(session)
        [note] = it.notes()
        assert note.text == "GraphQL was reverted to REST"
        before = it.database.read_now(memory.replaced, [note])[note.supersedes or 0]
        assert before.closed_by == note.id
        line = memory.render(note, before)
        assert line.endswith("(before: GraphQL is in use, 2025-06-15 – no longer true)")
        query = any_of_its_words("use graphql", 8)
        assert query is not None
        assert set(database.read_now(search.notes, query, NS, limit=9)) == {note.id, before.id}


async def test_a_note_of_another_namespace_cannot_be_replaced(database: Database) -> None:
    other = database.write_now(memory.note, "agent:main:telegram:group:-1", "Redis is in use", 1)
    fold = answer(noted("Redis is gone", 1, replaces=other.id))
    async with folding(database, lambda _: fold) as it:
        await it.fold(it.say("Redis is gone", "ok"))
        assert it.notes()[0].supersedes is None
        assert it.texts("agent:main:telegram:group:-1") == ["Redis is in use"]


async def test_the_same_fact_again_weighs_more_and_is_one_note(database: Database) -> None:
    async with folding(database, extractor(tea={"text": "Likes tea"})) as it:
        session = it.say("I like tea", "ok")
        await it.fold(session)
        it.say("I like tea", "yes, you said so")
        await it.fold(session)
        [note] = it.notes()
        assert note.weight == 2


# --- failures -------------------------------------------------------------------------------------------------------------------


async def test_a_bad_answer_is_asked_for_once_more_with_the_error(database: Database) -> None:
    steps = ["I noted that.", answer(noted("Likes tea", 1))]
    async with folding(database, lambda _: steps.pop(0)) as it:
        await it.fold(it.say("I like tea", "ok"))
        assert it.texts() == ["Likes tea"]
        again = it.server.folded[1]["messages"]
        assert again[-2] == {"role": "assistant", "content": "I noted that."}
        assert "it is no JSON (Expecting value at character 0)" in again[-1]["content"]


async def test_complete_notes_of_two_bad_answers_are_kept_and_the_digest_stays(database: Database) -> None:
    broken = answer(noted("Likes tea", 1), noted("Lives in Oslo", 1))[:-60]
    async with folding(database, lambda _: broken) as it:
        database.write_now(lambda conn: memory.digest.changed(conn, NS, digest="old"))
        session = it.say("I like tea and live in Oslo", "ok")
        await it.fold(session)
        assert it.texts() == ["Likes tea"]
        assert it.state().digest == "old"
        assert database.read_now(memory.unfolded, [session.id]) == []


async def test_after_three_bad_answers_it_goes_on_with_one_line(database: Database) -> None:
    async with folding(database, lambda _: "no") as it:
        session = it.say("I like tea", "ok", "and coffee", "ok")
        for attempt in range(ATTEMPTS):
            await it.fold(session)
            assert it.state().fails == (attempt + 1) % ATTEMPTS
            calls = len(it.server.folded)
            await it.fold(session)
            assert len(it.server.folded) == calls == 2 * (attempt + 1), "not before its time"
            it.clock.tick(60 * 60_000)
        assert it.texts() == ["4 messages of 2025-06-15 are not summarised; session_search finds them"]
        assert database.read_now(memory.unfolded, [session.id]) == []
        assert [fold[0] for fold in it.folds] == ["failed"] * 3


async def test_a_model_that_is_away_costs_no_attempt(database: Database) -> None:
    away = [True]
    async with folding(database, lambda body: Failure(status=503) if away else extractor()(body)) as it:
        session = it.say("I like tea", "ok")
        for _ in range(5):
            await it.fold(session)
            it.clock.tick(60 * 60_000)
        assert (it.state().fails, it.everything()) == (0, [])
        assert it.state().retry_at > 0
        away.clear()
        await it.fold(session)
        assert database.read_now(memory.unfolded, [session.id]) == []


@pytest.mark.parametrize("error", ["structured", "schema and object"])
async def test_an_endpoint_without_schemas_is_asked_in_words_and_that_is_remembered(
    database: Database, error: str
) -> None:
    """json_schema, then json_object, then JSON in a fence."""
    seen: list[str] = []

    def fold(body: JSON) -> Any:
        kind = (body.get("response_format") or {}).get("type", "words")
        seen.append(kind)
        if kind == "json_schema" or (kind == "json_object" and error != "structured"):
            return bad_request(f"'response_format.type' {kind} is not supported", param="response_format")
        return "```json\n" + extractor(tea={"text": "Likes tea"})(body) + "\n```"

    async with folding(database, fold) as it:
        session = it.say("I like tea", "ok")
        await it.fold(session)
        assert it.texts() == ["Likes tea"]
        first = list(seen)
        assert first == (
            ["json_schema", "json_object"] if error == "structured" else ["json_schema", "json_object", "words"]
        )
        it.say("more", "ok")
        await it.fold(session)
        assert seen[len(first) :] == first[-1:]


@pytest.mark.parametrize("names_window", [True, False])
async def test_a_fold_that_is_too_long_is_made_smaller(database: Database, names_window: bool) -> None:
    async with folding(database, extractor(), speaks=Speaks(window=4_096, names_window=names_window)) as it:
        session = it.say(*(f"message {number} {'word ' * 400}" for number in range(12)))
        await it.fold(session)
        assert database.read_now(memory.unfolded, [session.id]) == []


async def test_a_conversation_that_the_service_refuses_counts_against_it(database: Database) -> None:
    async with folding(database, lambda _: bad_request("This content is against our policy: messages")) as it:
        await it.fold(it.say("something", "ok"))
        assert it.state().fails == 1


async def test_a_change_meanwhile_makes_a_fold_count_for_nothing(database: Database) -> None:
    """Somebody forgets a note while the model thinks."""
    async with folding(database, extractor(tea={"text": "Likes tea"})) as it:
        doomed = database.write_now(memory.note, NS, "Likes rum", 1)
        session = it.say("I like tea", "ok")
        material = database.read_now(memory.material, session.id, keep=0, most=6_000)
        assert material is not None
        database.write_now(memory.forget, NS, doomed.id)
        assert database.write_now(memory.commit, material, (), "Ann likes rum", 5) is None
        assert (it.state().digest, it.texts()) == ("", [])
        await it.fold(session)
        assert it.texts() == ["Likes tea"]


async def test_a_fold_that_was_committed_is_not_committed_again(database: Database) -> None:
    async with folding(database, extractor()) as it:
        session = it.say("I like tea", "ok")
        material = database.read_now(memory.material, session.id, keep=0, most=6_000)
        assert material is not None
        new = [memory.NewObservation(kind="fact", text="Likes tea", src=(material.messages[0].id,))]
        assert database.write_now(memory.commit, material, new, "d", 5) == 1
        assert database.write_now(memory.commit, material, new, "d", 6) is None
        assert it.texts() == ["Likes tea"]


async def test_two_workers_never_fold_one_namespace_at_once(database: Database) -> None:
    async with folding(database, extractor()) as it:
        session, other = it.say("one", "ok"), it.say("two", "ok", key="agent:main:discord:dm")
        assert session.ns == other.ns
        now = it.clock()
        assert database.write_now(memory.begin, NS, "somebody:1:2", now, lease_ms=1_000)
        assert not database.write_now(memory.begin, NS, "me:1:2", now, lease_ms=1_000)
        assert await it.worker.fold(session.id) == now + 60_000
        assert it.server.folded == []
        assert database.write_now(memory.begin, NS, "me:1:2", now + 1_001, lease_ms=1_000)
        database.write_now(memory.release, NS, "me:1:2")
        await it.fold(other)
        assert len(it.server.folded) == 1


KILLED = """
import asyncio, sys
from pathlib import Path
from gateway.agent.memory.fold_worker import FoldWorker
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.openai import OpenAIModel
from sessions.db import open_database

async def fold():
    home, url, session_id = sys.argv[1:]
    model = OpenAIModel(ModelSettings(base_url=url, name="fake-model"))
    await FoldWorker(open_database(Path(home)), lambda: model).fold(session_id)

asyncio.run(fold())
"""


async def test_a_fold_that_was_killed_is_repeated_at_once_and_counts_once(home: Path, sqlite: Database) -> None:
    hanging = Reply(text="never", before=asyncio.Event().wait)
    async with folding(sqlite, lambda _: hanging) as it:
        session = it.say("I like tea", "ok")
        command = (sys.executable, "-c", KILLED, str(home), it.server.url, session.id)
        process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[3])
        async with asyncio.timeout(60):
            while not it.server.folded:
                await asyncio.sleep(0.02)
        assert await it.worker.fold(session.id) is not None
        assert len(it.server.folded) == 1, "the other process has the lease"
        process.kill()
        await process.wait()
        it.server.folds = extractor(tea={"text": "Likes tea"})
        await it.fold(session)
        assert it.texts() == ["Likes tea"]
        assert len(it.server.folded) == 2


# --- forgetting -----------------------------------------------------------------------------------------------------------------


async def test_a_forgotten_note_is_not_found_again_by_the_next_fold(database: Database) -> None:
    """Nor by one that says it in other words, nor does it come back in the digest."""
    known = {"peanuts": {"text": "Ann is allergic to peanuts", "asked_as": ["what must Ann not eat?"]}}
    async with folding(database, extractor(**known)) as it:
        session = it.say("Ann is allergic to peanuts and likes jazz", "ok")
        await it.fold(session)
        [note] = it.notes()
        database.write_now(memory.forget, NS, note.id)
        assert (it.everything(), it.state().digest) == ([], "")

        def again(_: JSON) -> str:
            sources = [note.src[0]]
            return answer(
                noted("Ann is allergic to peanuts", *sources),
                noted("A peanut allergy: Ann", *sources),
                noted("Ann likes jazz", *sources),
                digest="We spoke about music. Ann is allergic to peanuts. Berlin is next.",
            )

        it.server.folds = again
        database.write_now(lambda conn: conn.exec_driver_sql("UPDATE folds SET folded_to = 0") and None)
        await it.fold(session)
        assert it.texts() == ["Ann likes jazz"]
        assert it.state().digest == "We spoke about music. Berlin is next."


async def test_what_is_said_anew_or_saved_on_purpose_is_kept_again(database: Database) -> None:
    async with folding(database, extractor(oslo={"text": "Ann lives in Oslo"})) as it:
        session = it.say("Ann lives in Oslo", "ok")
        await it.fold(session)
        database.write_now(memory.forget, NS, it.notes()[0].id)
        it.say("By the way: Ann lives in Oslo", "ok")
        await it.fold(session)
        assert it.texts() == ["Ann lives in Oslo"]
        database.write_now(memory.forget, NS, it.notes()[0].id)
        assert database.write_now(memory.note, NS, "Ann lives in Oslo", 9).text == "Ann lives in Oslo"


async def test_forgetting_takes_what_was_replaced_too(database: Database) -> None:
    first = database.write_now(memory.note, NS, "Lives in Oslo", 1)
    second = database.write_now(memory.note, NS, "Lives in Rome", 2, replaces=first.id)
    third = database.write_now(memory.note, NS, "Lives in Paris", 3, replaces=second.id)
    with pytest.raises(NotFound):
        database.write_now(memory.forget, NS, first.id)
    database.write_now(memory.forget, NS, third.id)
    query = any_of_its_words("lives in oslo rome paris", 8)
    assert query is not None
    assert database.read_now(search.notes, query, NS, limit=9) == []


async def test_undo_takes_back_what_was_learned_from_it(database: Database) -> None:
    async with folding(database, extractor(tea={"text": "Likes tea"}, rum={"text": "Likes rum"})) as it:
        session = it.say("I like tea", "ok", "I like rum", "ok")
        await it.fold(session)
        assert it.texts() == ["Likes tea", "Likes rum"]
        database.write_now(store.take_back, session.id)
        assert it.texts() == ["Likes tea"]
        it.say("I like cake", "ok")
        await it.fold(session)
        assert [text for _, text in folded_lines(it.server.folded[-1])] == ["I like cake", "ok"]


async def test_undo_reaches_back_into_the_session_that_had_grown_too_long(database: Database) -> None:
    async with folding(database, extractor(tea={"text": "Likes tea"}, rum={"text": "Likes rum"})) as it:
        parent = it.say("I like tea", "ok", "I like rum", "ok")
        await it.fold(parent)
        child = it.database.write_now(store.continue_in_child, parent, it.clock())
        it.say("I like cake", "ok")
        tails, undone = JournalTails(), lambda: it.database.write_now(store.take_back, child.id)
        shown = lambda: [said.content for said in it.database.read_now(tails.history, run_of(child))]  # noqa: E731
        assert shown() == ["I like tea", "ok", "I like rum", "ok", "I like cake", "ok"]
        assert undone()
        assert shown() == ["I like tea", "ok", "I like rum", "ok"]
        assert undone()
        assert (shown(), it.texts()) == (["I like tea", "ok"], ["Likes tea"])
        assert undone()
        assert not undone(), "nothing is left"
        ended = it.say("new start", "ok", key="agent:main:telegram:dm:7")
        it.database.write_now(store.end, ended.id, EndReason.USER, it.clock())
        after = it.say(key="agent:main:telegram:dm:7")
        assert not it.database.write_now(store.take_back, after.id), "what was before a reset stays"


def run_of(session: Session) -> Run:
    fields: dict[str, Any] = dict.fromkeys(Run.__slots__)
    return Run(**{**fields, "id": "now", "session_id": session.id})


async def test_a_deleted_session_takes_its_notes_and_the_digest_along(database: Database) -> None:
    async with folding(database, extractor(tea={"text": "Likes tea"})) as it:
        kept = it.say("I like tea", "ok")
        await it.fold(kept)
        database.write_now(store.end, kept.id, EndReason.USER, it.clock())
        gone = it.say("I said I like tea in Oslo", "ok")
        it.server.folds = lambda _: answer(noted("Likes Oslo", folded_lines(_)[0][0]), digest="Oslo")
        await it.fold(gone)
        database.write_now(store.delete_session, gone.id)
        assert (it.texts(), it.state().digest) == (["Likes tea"], "")
        database.write_now(store.delete_session, kept.id)
        assert (it.everything(), it.state()) == ([], memory.MemoryState())


# --- when ------------------------------------------------------------------------------------------------------------------------


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
        it.settings["enabled"] = False
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
        assert database.write_now(export.import_session, line)
        assert database.read_now(memory.unfolded) == []


def test_observations_beyond_the_budget_are_chosen_in_steps(sqlite: Database) -> None:
    """By weight and recency, and the choice stays while up to fifteen more come."""

    def add(conn: Connection, number: int) -> Observation:
        return memory.note(conn, NS, f"fact number {number}", number)

    def shown(conn: Connection) -> list[str]:
        found = memory.lines(conn, NS)
        return [line.text for line in memory.choose(found, 200, {line.id: 10 for line in found})]

    for number in range(64):
        sqlite.write_now(add, number)
    before = sqlite.read_now(shown)
    assert len(before) == 15
    for number in range(64, 69):
        sqlite.write_now(add, number)
        after = sqlite.read_now(shown)
        assert after[: len(before)] == before
        before = after
    assert len(before) == 20
