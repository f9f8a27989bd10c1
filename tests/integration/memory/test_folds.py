"""Folds on both databases: what they write, and every way in which they can fail. The extractor is scripted."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.memory.fold_worker import ATTEMPTS
from sessions import memory, store
from sessions.db import Database
from sessions.search import message_index
from sessions.search.query import any_of_its_words
from tests.fakes.model_replies import Failure, Reply, bad_request
from tests.fakes.model_rules import Speaks
from tests.integration.memory.folding import JSON, NS, answer, extractor, folded_lines, folding, noted

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
        assert set(database.read_now(message_index.notes, query, NS, limit=9)) == {note.id, before.id}


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


async def test_a_small_model_is_asked_for_less_and_about_older_notes_one_by_one(database: Database) -> None:
    known = {"rent_is": {"text": "The rent is 900 euros"}, "goes_up": {"text": "The rent goes up to 950 euros"}}
    async with folding(database, extractor(**known), window=8_192) as it:
        it.server.pairs = lambda _: '{"replaces": "yes"}'
        await it.fold(session := it.say("The rent is 900 euros", "You could also ask for a lower one."))
        it.say("The rent goes up to 950 euros", "I see.")
        await it.fold(session)
        [note] = it.notes()
        old = it.database.read_now(memory.replaced, [note])[note.supersedes or 0]
        assert (note.text, old.text) == ("The rent goes up to 950 euros", "The rent is 900 euros")
        before, line = it.database.read_now(memory.lines, NS)
        assert ("900 euros" in line.text, before.short) == (True, "")
        assert (line.short or "").endswith("fact: The rent goes up to 950 euros (changed on 2025-06-15)")
        [pair] = it.server.paired
        assert "900 euros\nNew note: The rent goes up" in pair["messages"][1]["content"]
        for body in it.server.folded:
            schema = body["response_format"]["json_schema"]["schema"]["properties"]
            assert set(schema) == {"observations"}
            assert set(schema["observations"]["items"]["properties"]) == {"kind", "text", "cause", "src"}
            assert "lower one" not in str(body), "what the agent said is not what people said"


async def test_after_a_fold_that_failed_the_next_one_asks_for_less(database: Database) -> None:
    steps = ["no", "no", answer(noted("Likes tea", 1))]
    async with folding(database, lambda _: steps.pop(0)) as it:
        session = it.say("I like tea", "ok")
        await it.fold(session)
        it.clock.tick(60 * 60_000)
        await it.fold(session)
        assert it.texts() == ["Likes tea"]
        fields = [set(body["response_format"]["json_schema"]["schema"]["properties"]) for body in it.server.folded]
        assert fields == [{"observations", "digest"}] * 2 + [{"observations"}]


async def test_a_small_model_that_repeats_itself_is_cut_short_and_not_asked_again(database: Database) -> None:
    broken = answer(noted("Likes tea", 1), noted("Likes tea", 1))[:-60]
    async with folding(database, lambda _: Reply(text=broken, finish_reason="length"), window=8_192) as it:
        await it.fold(it.say("I like tea", "ok"))
        assert it.texts() == ["Likes tea"]
        [body] = it.server.folded
        assert body["max_tokens"] < 300


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
from gateway.agent.models.chat_completions import OpenAIModel
from sessions.db import open_database
from tests.app import make_app

async def fold():
    home, url, session_id = sys.argv[1:]
    model = OpenAIModel(ModelSettings(base_url=url, name="fake-model"))
    await FoldWorker(make_app(Path(home), open_database(Path(home)), model)).fold(session_id)

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
