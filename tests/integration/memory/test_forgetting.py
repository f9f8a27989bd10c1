"""What was forgotten, taken back or deleted is learned no more; on both databases, with a scripted extractor."""

from typing import Any

import pytest
from sqlalchemy import Connection, insert

from gateway.runs.history import JournalTails
from sessions import memory, store
from sessions.db import Database
from sessions.db.schema import meta
from sessions.errors import NotFound
from sessions.memory import forgotten
from sessions.records import EndReason, Run, Session
from sessions.search import message_index
from sessions.search.query import any_of_its_words
from tests.integration.memory.folding import JSON, NS, answer, extractor, folded_lines, folding, noted


@pytest.fixture(autouse=True)
def _same_key(database: Database) -> None:
    """Marks are short: with some keys out of ten thousand, two words have the same one."""
    database.write_now(lambda conn: conn.execute(insert(meta), {"key": forgotten._KEY, "value": "07" * 16}) and None)


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
    assert database.read_now(message_index.notes, query, NS, limit=9) == []


async def test_undo_takes_back_what_was_learned_from_it(database: Database) -> None:
    async with folding(database, extractor(tea={"text": "Likes tea"}, rum={"text": "Likes rum"})) as it:
        session = it.say("I like tea", "ok", "I like rum", "ok")
        await it.fold(session)
        assert it.texts() == ["Likes tea", "Likes rum"]
        gone = database.write_now(store.take_back, session.id)
        assert [note.text for note in gone or ()] == ["Likes rum"]
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
        tails, undone = JournalTails(), lambda: it.database.write_now(store.take_back, child.id) is not None
        newest = lambda conn: tails.history(conn, run_of(child), store.get(conn, child.id))  # noqa: E731
        shown = lambda: [said.content for said in it.database.read_now(newest)]  # noqa: E731
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
        assert it.database.write_now(store.take_back, after.id) is None, "what was before a reset stays"


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


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Green tea in the morning is what Ann likes.", True),
        ("Ann likes black tea in the morning.", False),
        ("Ann likes green tea.", True),
        ("Bob likes green tea in the morning.", False),
    ],
)
def test_a_fact_that_only_resembles_what_was_forgotten_is_learned(database: Database, text: str, *, held: bool) -> None:
    def forget(conn: Connection) -> bool:
        number = memory.note(conn, NS, "Ann likes green tea in the morning.", 1)
        memory.forget(conn, NS, number.id)
        return forgotten.of_namespace(conn, NS).holds(text, [0])

    assert database.write_now(forget) is held
