"""What is kept of a namespace and a session between two steps is never shown again after it was deleted."""

import pytest
from sqlalchemy import Connection

from gateway.runs.history import JournalTails, MemoryViews
from sessions import export, memory, runs, store
from sessions.db import Database
from sessions.keys import SessionKey
from sessions.records import EndReason, Message, Role, Run, Source
from sessions.runs import Opening
from tests.integration.sessions.writing import conversation

KEY = "agent:main:telegram:group:-1"


def test_notes_of_a_deleted_memory_are_not_shown_again(database: Database) -> None:
    views = MemoryViews()

    def note(conn: Connection, session_id: str, text: str) -> None:
        memory.note(conn, KEY, text, 1, session_id=session_id)

    def shown() -> list[str]:
        return [line.text.partition(": ")[2] for line in database.read_now(views.of, KEY).notes]

    first = conversation(database, KEY, "one")
    database.write_now(note, first.id, "swordfish")
    assert shown() == ["swordfish"]
    database.write_now(store.delete_session, first.id)
    second = conversation(database, KEY, "two")
    database.write_now(note, second.id, "tuna")
    assert shown() == ["tuna"]


def test_rows_are_read_again_after_a_change_and_after_delete_and_import(database: Database) -> None:
    tails = JournalTails()
    session = conversation(database, KEY, "one", "yes", "two", "no")

    def run(conn: Connection) -> Run:
        found = store.active(conn, KEY)
        assert found is not None
        return runs.start_again(conn, found, Opening(), None, 5)

    def seen(conn: Connection, of: Run) -> list[str | None]:
        return [message.content for message in tails.history(conn, of, store.get(conn, of.session_id))]

    begun = database.write_now(run)
    assert database.read_now(seen, begun) == ["one", "yes", "two", "no"]
    conversation(database, KEY, "three")
    assert database.read_now(seen, begun) == ["one", "yes", "two", "no", "three"]
    database.write_now(store.take_back, session.id)
    assert database.read_now(seen, begun) == ["one", "yes", "two", "no"]
    exported = database.read_now(export.export_session, session.id)
    database.write_now(runs.stop, begun.id, 6)
    database.write_now(store.end, session.id, EndReason.USER, 7)
    database.write_now(store.delete_session, session.id)
    assert database.write_now(export.import_session, export.ImportedSession.model_validate(exported), "cli:ann")
    assert database.read_now(seen, begun) == ["one", "yes", "two", "no"]


def test_the_steps_of_a_long_run_begin_at_the_same_message_and_read_only_new_ones(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the messages before the run are those of the session that this one continues."""
    tails, reads = JournalTails(), list[int]()
    last_messages = store.last_messages

    def counted(conn: Connection, session_id: str, count: int) -> list[Message]:
        reads.append(count)
        return last_messages(conn, session_id, count)

    def begin(conn: Connection) -> Run:
        former = store.start(conn, SessionKey.parse(KEY), 1, source=Source.TELEGRAM)
        said = [Message(role=(Role.USER, Role.ASSISTANT)[number % 2], content="said") for number in range(300)]
        store.append(conn, former.id, said, 2)
        store.end(conn, former.id, EndReason.COMPRESSED, 3)
        session = store.start(conn, SessionKey.parse(KEY), 4, source=Source.TELEGRAM, parent=former.id)
        run = runs.start_again(conn, session, Opening(), None, 5)
        store.append(conn, session.id, [Message(role=Role.USER, content="go on", run_id=run.id)], 5)
        return run

    def step(conn: Connection) -> None:
        call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
        asked = Message(role=Role.ASSISTANT, content="", run_id=run.id, tool_calls=[call])
        done = Message(role=Role.TOOL, content="ok", run_id=run.id, tool_call_id="c", tool_name="f")
        store.append(conn, run.session_id, [asked, done], 6)

    def history_now(conn: Connection) -> list[Message]:
        return tails.history(conn, run, store.get(conn, run.session_id))

    monkeypatch.setattr(store, "last_messages", counted)
    run = database.write_now(begin)
    first = database.read_now(history_now)[0]
    read = len(reads)
    for number in range(1, 25):
        database.write_now(step)
        history = database.read_now(history_now)
        assert (history[0], len(history)) == (first, 161 + 2 * number)
    assert len(reads) == read
