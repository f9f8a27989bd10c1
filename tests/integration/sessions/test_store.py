"""Sessions: begun, found by a part of their id, ended, gone back to, continued in a child, taken away."""

from dataclasses import replace

import pytest
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import IntegrityError

from sessions import ids, runs, store, transcripts
from sessions.db import Database
from sessions.db.schema import metadata
from sessions.errors import Ambiguous, Busy, NotFound
from sessions.keys import SessionKey
from sessions.records import EndReason, InboxRow, Message, MessageState, Role, Source
from sessions.runs import Opening
from tests.integration.sessions.writing import conversation, open_session, say

KEY = "agent:main:telegram:group:-1"
ANSWER = Message(role=Role.ASSISTANT, content="fine")


def test_an_id_tells_when_it_began() -> None:
    assert ids.session_id(1_741_166_123_456).startswith("20250305_091523_")
    assert ids.is_session_id(ids.session_id(0))
    assert not ids.is_session_id("20250305_091523_A1B2C3D4")


def test_a_new_session_is_the_active_one_of_its_key(database: Database) -> None:
    session = conversation(database, KEY)
    assert database.read_now(store.active, KEY) == session
    assert session.ns == KEY
    assert session.source == Source.TELEGRAM
    assert (session.ended_at, session.message_count, session.last_user_at) == (None, 0, None)


def test_a_key_has_one_active_session(database: Database) -> None:
    conversation(database, KEY)
    with pytest.raises(IntegrityError):
        database.write_now(open_session, KEY)


def test_appending_counts_and_keeps_order(database: Database) -> None:
    session = conversation(database, KEY, "one", "two", "three")
    calls = [{"id": "a"}, {"id": "b"}]
    database.write_now(store.append, session.id, [Message(role=Role.ASSISTANT, tool_calls=calls)], 9)
    now = database.read_now(store.get, session.id)
    assert (now.message_count, now.tool_call_count, now.last_user_at) == (4, 2, 1_750_000_000_000)
    read = database.read_now(store.read_messages, session.id)
    assert [m.content for m in read] == ["one", "two", "three", None]
    assert [m.id for m in read] == sorted({m.id for m in read})
    assert read[3].tool_calls == calls
    assert [m.content for m in database.read_now(store.last_messages, session.id, 2, before=read[3].id)] == [
        "two",
        "three",
    ]
    assert [m.content for m in database.read_now(store.read_messages, session.id, after=read[0].id, limit=1)] == ["two"]


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d pair", "\0", "whole 🎉 pair", "é\0"])
def test_any_text_that_a_model_or_tool_may_give_can_be_kept(database: Database, text: str) -> None:
    session = conversation(database, KEY)
    message = Message(role=Role.TOOL, content=text, sender=text, tool_calls=[{"arguments": text}], tool_name=text)
    database.write_now(store.append, session.id, [message], 1)
    (kept,) = database.read_now(store.read_messages, session.id)
    assert kept.content == text.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")


def test_appending_to_a_session_that_is_gone_says_so(database: Database) -> None:
    with pytest.raises(NotFound, match="gone"):
        database.write_now(store.append, "20250305_091523_a1b2c3d4", [Message(role=Role.USER, content="x")], 1)


# --- finding ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(database: Database) -> Database:
    def write(conn: Connection) -> None:
        for number, name in enumerate(
            ["20250305_091523_a1b2c3d4", "20250305_091523_a1b2ffff", "20250306_000000_00000000"]
        ):
            key = SessionKey.parse(f"agent:main:telegram:group:{number}")
            store.start(conn, key, number, source=Source.TELEGRAM, session_id=name)

    database.write_now(write)
    return database


@pytest.mark.parametrize("prefix", ["20250306", "2025030", "20250305_091523_a1b2c", "20250305_091523_a1b2c3d4"])
def test_a_unique_prefix_finds_its_session(three: Database, prefix: str) -> None:
    if prefix == "2025030":
        with pytest.raises(Ambiguous):
            three.read_now(store.resolve, prefix)
    else:
        assert three.read_now(store.resolve, prefix).id.startswith(prefix)


def test_an_ambiguous_prefix_names_what_it_fits(three: Database) -> None:
    with pytest.raises(
        Ambiguous, match=r"20250305_091523_a1b2c3d4 \(telegram\); 20250305_091523_a1b2ffff \(telegram\)"
    ):
        three.read_now(store.resolve, "20250305_091523_a1b2")


@pytest.mark.parametrize(
    "prefix", ["", "%", "2025030%", "20250306_______________", "2025\\", "'", "nothing", "20250306_000000_000000000"]
)
def test_what_begins_no_id_is_not_found(three: Database, prefix: str) -> None:
    with pytest.raises(NotFound, match="sessions list"):
        three.read_now(store.resolve, prefix)


def test_lists_are_newest_first_and_can_be_narrowed(database: Database) -> None:
    def write(conn: Connection) -> None:
        for number in range(5):
            key = SessionKey.parse(f"agent:main:{'telegram' if number % 2 else 'slack'}:group:{number}")
            store.start(conn, key, number, source=runs.source_of(key))

    database.write_now(write)
    assert [s.started_at for s in database.read_now(store.recent)] == [4, 3, 2, 1, 0]
    assert [s.started_at for s in database.read_now(store.recent, source=Source.SLACK, limit=2)] == [4, 2]
    newest = database.read_now(store.newest, Source.TELEGRAM)
    assert newest is not None
    assert newest.started_at == 3
    assert database.read_now(store.newest, Source.CLI) is None
    assert database.read_now(store.stats) == store.Stats(sessions=5, messages=0, by_source={"slack": 3, "telegram": 2})


# --- ending and going back ----------------------------------------------------------------------------------------------------


def test_a_session_ends_once(database: Database) -> None:
    session = conversation(database, KEY)
    later = session.started_at + 5
    assert database.write_now(store.end, session.id, EndReason.IDLE, later)
    assert not database.write_now(store.end, session.id, EndReason.USER, later + 1)
    ended = database.read_now(store.get, session.id)
    assert (ended.ended_at, ended.end_reason) == (later, EndReason.IDLE)
    assert database.read_now(store.active, KEY) is None


def test_a_session_never_ends_before_its_start_whatever_the_clock_says(database: Database) -> None:
    session = conversation(database, KEY)
    assert database.write_now(store.end, session.id, EndReason.IDLE, session.started_at - 86_400_000)
    assert database.read_now(store.get, session.id).ended_at == session.started_at


def test_going_back_ends_the_current_one_and_counts_as_activity(database: Database) -> None:
    old = conversation(database, KEY, "old")
    database.write_now(store.end, old.id, EndReason.DAILY, 5)
    current = conversation(database, KEY, "new")
    back = database.write_now(store.reopen, old, 77)
    assert (back.id, back.ended_at, back.end_reason, back.last_user_at) == (old.id, None, None, 77)
    assert database.read_now(store.active, KEY) == back
    assert database.read_now(store.get, current.id).end_reason is EndReason.USER
    assert database.write_now(store.reopen, back, 78).id == old.id


def test_a_long_conversation_continues_in_a_child_and_is_one_chain(database: Database) -> None:
    first = conversation(database, KEY, "a")
    second = database.write_now(store.continue_in_child, database.read_now(store.get, first.id), 5)
    third = database.write_now(store.continue_in_child, second, 6)
    assert (third.session_key, third.ns, third.parent_session_id) == (KEY, first.ns, second.id)
    assert database.read_now(store.get, first.id).end_reason is EndReason.COMPRESSED
    for part in (first, second, third):
        fresh = database.read_now(store.get, part.id)
        assert [s.id for s in database.read_now(store.chain, fresh)] == [first.id, second.id, third.id]
    database.write_now(store.end, third.id, EndReason.USER, 7)
    assert database.write_now(store.reopen, first, 8).id == third.id


def test_a_chain_whose_beginning_is_missing_or_bent_is_what_is_left(database: Database) -> None:
    def bend(conn: Connection, parent: str) -> None:
        conn.execute(metadata.tables["sessions"].update().values(parent_session_id=parent))

    session = conversation(database, KEY)
    for parent in ("20250305_091523_a1b2c3d4", session.id):
        database.write_now(bend, parent)
        fresh = database.read_now(store.get, session.id)
        assert [s.id for s in database.read_now(store.chain, fresh)] == [session.id]


def test_titles_and_models(database: Database) -> None:
    session = conversation(database, KEY)
    database.write_now(store.rename, session.id, "  Garden  ")
    database.write_now(store.choose_model, session.id, "a/b")
    database.write_now(store.append, session.id, [ANSWER], 1, used=store.AnswerCost(input_tokens=3, output_tokens=4))
    database.write_now(store.append, session.id, [ANSWER], 1, used=store.AnswerCost(input_tokens=3, output_tokens=4))
    now = database.read_now(store.get, session.id)
    assert (now.title, now.model, now.input_tokens, now.output_tokens) == ("Garden", "a/b", 6, 8)
    database.write_now(store.rename, session.id, " ")
    assert database.read_now(store.get, session.id).title is None


# --- taking away --------------------------------------------------------------------------------------------------------------


def test_taking_back_removes_the_last_exchange(database: Database) -> None:
    session = conversation(database, KEY, "one", "two", "three", "four")
    assert database.write_now(store.take_back, session.id) == []
    now = database.read_now(store.get, session.id)
    assert [m.content for m in database.read_now(store.read_messages, session.id)] == ["one", "two"]
    assert now.message_count == 2
    assert database.write_now(store.take_back, session.id) == []
    assert database.write_now(store.take_back, session.id) is None
    assert database.read_now(store.get, session.id).message_count == 0


def test_deleting_leaves_no_row(database: Database) -> None:
    message = InboxRow(dedup_key="k", session_key=KEY, messages=[Message(content="secret")])
    run_id = database.write_now(runs.accept, message, Opening(deployment="d"), 1).run_id
    assert run_id is not None
    with pytest.raises(Busy, match="worked on"):
        database.write_now(store.delete_session, database.read_now(store.active, KEY).id)  # type: ignore[union-attr]
    database.write_now(runs.stop, run_id, 2)
    session = database.read_now(store.active, KEY)
    assert session is not None
    database.write_now(store.delete_session, session.id)

    def rows(conn: Connection) -> dict[str, int]:
        counts = {name: conn.scalar(select(func.count()).select_from(t)) or 0 for name, t in metadata.tables.items()}
        return {name: count for name, count in counts.items() if count}

    assert database.read_now(rows) == {"meta": 1}  # the id alone, until its transcript is gone
    assert database.read_now(transcripts.to_delete) == [session.id]
    with pytest.raises(NotFound):
        database.write_now(store.delete_session, session.id)


def test_a_deleted_parent_leaves_its_child_whole(database: Database) -> None:
    first = conversation(database, KEY, "a")
    child = database.write_now(store.continue_in_child, first, 5)
    database.write_now(store.delete_session, first.id)
    kept = database.read_now(store.get, child.id)
    assert kept == replace(child, last_user_at=kept.last_user_at, parent_session_id=None)
    assert database.read_now(store.chain, kept) == [kept]


def test_what_ended_before_a_day(database: Database) -> None:
    def write(conn: Connection) -> list[str]:
        made = [open_session(conn, f"agent:main:{p}:group:1", 1) for p in ("telegram", "slack", "discord")]
        for number, session in enumerate(made[:2]):
            store.end(conn, session.id, EndReason.USER, 10 + number)
        return [session.id for session in made]

    one, two, _ = database.write_now(write)
    assert database.read_now(store.ended_before, 100) == [one, two]
    assert database.read_now(store.ended_before, 11) == [one]
    assert database.read_now(store.ended_before, 100, source=Source.SLACK) == [two]


def test_the_journal_is_settled_up_to_the_first_open_tool_call(database: Database) -> None:
    def settled_to(conn: Connection, session_id: str) -> int:
        return (
            conn.scalar(
                select(metadata.tables["sessions"].c.settled_to).where(metadata.tables["sessions"].c.id == session_id)
            )
            or 0
        )

    session = conversation(database, KEY)
    (first,) = database.write_now(say, session, "go")
    call = Message(role=Role.TOOL, tool_call_id="c", state=MessageState.PENDING)
    (open_row,) = database.write_now(store.append, session.id, [call], 2)
    assert database.read_now(settled_to, session.id) == first
    (later,) = database.write_now(say, session, "meanwhile")
    assert database.read_now(settled_to, session.id) == first
    assert later > open_row
