"""Removes memory together with what it was made from: a session, its last messages, a namespace."""

from sqlalchemy import Connection, delete, select, update

from sessions.db.schema import folds, forgotten, observations, sessions
from sessions.memory.digest import changed, drop
from sessions.memory.observations import delete_rows, lock, matching
from sessions.records import Session


def remove_session(conn: Connection, session: Session) -> None:
    """Deletes the notes of this session, and the digest, because it may hold words of the session; the next fold makes a new one. When the namespace has no other session or note, deletes its memory state too."""
    lock(conn, session.ns)
    delete_rows(conn, matching(conn, observations.c.session_id == session.id))
    conn.execute(delete(folds).where(folds.c.session_id == session.id))
    changed(conn, session.ns, revises=True, digest=None)
    others = select(sessions.c.id).where(sessions.c.ns == session.ns, sessions.c.id != session.id).limit(1)
    notes = select(observations.c.id).where(observations.c.ns == session.ns).limit(1)
    if conn.scalar(others) is None and conn.scalar(notes) is None:
        drop(conn, session.ns)
        conn.execute(delete(forgotten).where(forgotten.c.ns == session.ns))


def take_back(conn: Connection, session: Session, first: int) -> None:
    """Deletes the notes that are only from messages of this session from `first` on, and marks these messages as not folded."""
    lock(conn, session.ns)
    learned = matching(conn, observations.c.session_id == session.id)
    # A note that an earlier message says too is kept.
    gone = [each for each in learned if each.src and min(each.src) >= first]
    past = conn.scalar(select(folds.c.folded_to).where(folds.c.session_id == session.id)) or 0
    if not gone and past < first:
        return
    delete_rows(conn, gone)
    conn.execute(
        update(folds).where(folds.c.session_id == session.id, folds.c.folded_to >= first).values(folded_to=first - 1)
    )
    changed(conn, session.ns, revises=True, digest=None)


def remove_namespace(conn: Connection, ns: str) -> None:
    """Deletes all memory of this namespace."""
    lock(conn, ns)
    delete_rows(conn, matching(conn, observations.c.ns == ns))
    for table in (folds, forgotten):
        conn.execute(delete(table).where(table.c.ns == ns))
    drop(conn, ns)
