"""What was said in a group without mentioning the bot. It is kept as context and never answered.

A line that was used stays as a row without words until newer ones replace it: so a repeated event is recognised, and
so is an edit that
adds a mention.
"""

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.sql import ColumnElement

from sessions import inbox
from sessions.db.schema import overheard
from sessions.db.sql import lock

KEPT = 30
MAX_CHARACTERS = 1_000
"""What is longer is heard shortened."""


def add(conn: Connection, session_key: str, message_id: str, sender: str, text: str, now: int) -> None:
    """Stores a line. `text` is not empty."""
    values = {"session_key": session_key, "message_id": message_id, "sender": sender, "text": text, "created_at": now}
    lock(conn, session_key)
    if inbox.is_deleted(conn, _key(session_key, message_id)):
        return
    if conn.scalar(select(overheard.c.id).where(*_one(session_key, message_id)).limit(1)) is not None:
        return  # the platform sent it twice
    conn.execute(insert(overheard), values)
    newest = (
        select(overheard.c.id).where(overheard.c.session_key == session_key).order_by(overheard.c.id.desc()).limit(KEPT)
    )
    conn.execute(delete(overheard).where(overheard.c.session_key == session_key, overheard.c.id.not_in(newest)))


def amend(conn: Connection, session_key: str, message_id: str, text: str) -> None:
    """Changes a line after an edit. A line that was used already is not changed."""
    conn.execute(update(overheard).where(*_one(session_key, message_id), overheard.c.text != "").values(text=text))


def forget(conn: Connection, session_key: str, message_id: str) -> bool:
    """Removes a line that was meant for the bot after all. Returns whether it was there."""
    return conn.execute(delete(overheard).where(*_one(session_key, message_id))).rowcount > 0


def forget_all(conn: Connection, session_key: str, now: int) -> None:
    """Removes every line of this conversation, which is being deleted. The events are still recognised when they come again."""
    mine = overheard.c.session_key == session_key
    names = conn.scalars(select(overheard.c.message_id).where(mine)).all()
    inbox.keep_deleted_keys(conn, [_key(session_key, name) for name in names], now)
    conn.execute(delete(overheard).where(mine))


def _key(session_key: str, message_id: str) -> str:
    return f"overheard:{session_key}:{message_id}"


def _one(session_key: str, message_id: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return overheard.c.session_key == session_key, overheard.c.message_id == message_id


def take(conn: Connection, session_key: str) -> list[tuple[str, str]]:
    """The (sender, text) pairs since the last call, oldest first."""
    mine = (overheard.c.session_key == session_key, overheard.c.text != "")
    rows = conn.execute(select(overheard.c.sender, overheard.c.text).where(*mine).order_by(overheard.c.id)).all()
    if rows:
        conn.execute(update(overheard).where(*mine).values(sender="", text=""))
    return [(sender, text) for sender, text in rows]
