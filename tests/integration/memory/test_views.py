"""What is kept of a namespace and a session between two steps is never shown again after it was deleted."""

from sqlalchemy import Connection

from gateway.runs.history import JournalTails
from gateway.runs.memory_views import MemoryViews
from sessions import export, memory, runs, store
from sessions.db import Database
from sessions.records import EndReason, Run
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
        return [message.content for message in tails.history(conn, of)]

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
    assert database.write_now(export.import_session, export.ImportedSession.model_validate(exported))
    assert database.read_now(seen, begun) == ["one", "yes", "two", "no"]
