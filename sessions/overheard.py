"""What was said in a group without meaning the bot: kept as context for when it is meant, never answered.

A line that has been taken along stays as a row without words, until newer ones push it out, so that it is known when the platform
sends it again and when an edit makes it a message for the bot.
"""

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.sql import ColumnElement

from sessions.db.schema import overheard
from sessions.inbox import serialize

KEPT = 30
MAX_CHARACTERS = 1_000
"""What is longer is heard shortened."""


def hear(conn: Connection, session_key: str, message_id: str, sender: str, text: str, now: int) -> None:
    """`text` is not empty."""
    values = {
        "session_key": session_key,
        "message_id": message_id,
        "sender": sender,
        "text": text,
        "created_at": now,
    }
    serialize(conn, session_key)
    if conn.scalar(select(overheard.c.id).where(*_one(session_key, message_id)).limit(1)) is not None:
        return  # the platform sent it twice
    conn.execute(insert(overheard), values)
    newest = (
        select(overheard.c.id).where(overheard.c.session_key == session_key).order_by(overheard.c.id.desc()).limit(KEPT)
    )
    conn.execute(delete(overheard).where(overheard.c.session_key == session_key, overheard.c.id.not_in(newest)))


def amend(conn: Connection, session_key: str, message_id: str, text: str) -> None:
    """The user edited it. What was taken along already stays as it was."""
    conn.execute(update(overheard).where(*_one(session_key, message_id), overheard.c.text != "").values(text=text))


def forget(conn: Connection, session_key: str, message_id: str) -> bool:
    """Whether it had been heard: it is no context, but meant for us after all."""
    return conn.execute(delete(overheard).where(*_one(session_key, message_id))).rowcount > 0


def _one(session_key: str, message_id: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return overheard.c.session_key == session_key, overheard.c.message_id == message_id


def take(conn: Connection, session_key: str) -> list[tuple[str, str]]:
    """(sender, text) of what was heard since the last time, oldest first; it is context of a message now."""
    mine = (overheard.c.session_key == session_key, overheard.c.text != "")
    rows = conn.execute(select(overheard.c.sender, overheard.c.text).where(*mine).order_by(overheard.c.id)).all()
    if rows:
        conn.execute(update(overheard).where(*mine).values(sender="", text=""))
    return [(sender, text) for sender, text in rows]
