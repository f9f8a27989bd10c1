"""Short ways to fill a database in tests."""

from collections.abc import Sequence

from sqlalchemy import Connection

from sessions import store
from sessions.db import Database
from sessions.keys import SessionKey
from sessions.records import Message, Role, Session
from sessions.runs import source_of
from sessions.search import message_index


def open_session(conn: Connection, key: str, now: int = 1_750_000_000_000) -> Session:
    parsed = SessionKey.parse(key)
    return store.start(conn, parsed, now, source=source_of(parsed))


def say(
    conn: Connection, session: Session, *texts: str, now: int = 1_750_000_000_000, sender: str | None = None
) -> list[int]:
    """Messages of the user and the agent in turn."""
    new = [
        Message(role=Role.ASSISTANT if i % 2 else Role.USER, content=text, sender=None if i % 2 else sender)
        for i, text in enumerate(texts)
    ]
    return store.append(conn, session.id, new, now)


def conversation(database: Database, key: str, *texts: str, sender: str | None = None) -> Session:
    def write(conn: Connection) -> Session:
        session = store.active(conn, key) or open_session(conn, key)
        say(conn, session, *texts, sender=sender)
        return session

    return database.write_now(write)


def index_all(database: Database, limit: int = 300) -> None:
    while database.write_now(message_index.index_some, limit):
        pass


def found(database: Database, query: str, **options: object) -> list[str]:
    """The texts of the hits, best first."""
    hits: Sequence[message_index.Hit] = database.read_now(message_index.search, query, **options)  # type: ignore[arg-type]
    return [hit.message.content or "" for hit in hits]
