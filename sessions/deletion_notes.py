"""Notes of deleted sessions, kept until their transcripts are deleted. A transcript is deleted because of such a
note, never because its session is unknown."""

from collections.abc import Iterable

from sqlalchemy import BigInteger, Connection, cast, delete, select

from sessions.clock import now_ms
from sessions.db.schema import meta, sessions
from sessions.db.sql import insert_or_ignore

_PREFIX = "erased:"
_KEPT_MS = 30 * 24 * 3_600_000
"""On PostgreSQL, where several homes may hold a transcript, and each finds the note at its next start."""


def note(conn: Connection, session_id: str) -> None:
    insert_or_ignore(conn, meta, {"key": f"{_PREFIX}{session_id}", "value": str(now_ms())})


def pending(conn: Connection) -> list[str]:
    """The deleted sessions that were not imported again since."""
    keys = conn.scalars(select(meta.c.key).where(meta.c.key.startswith(_PREFIX, autoescape=True)))
    found = {key.removeprefix(_PREFIX) for key in keys}
    return sorted(found - set(conn.scalars(select(sessions.c.id).where(sessions.c.id.in_(found)))))


def settle(conn: Connection, session_ids: Iterable[str]) -> None:
    """Removes the notes: the transcripts are deleted from this home."""
    if conn.dialect.name == "sqlite":
        keys = [f"{_PREFIX}{session_id}" for session_id in session_ids]
        conn.execute(delete(meta).where(meta.c.key.in_(keys)))
        return
    old = cast(meta.c.value, BigInteger) < now_ms() - _KEPT_MS
    conn.execute(delete(meta).where(meta.c.key.startswith(_PREFIX, autoescape=True), old))
