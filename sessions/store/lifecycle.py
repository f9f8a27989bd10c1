"""Ends sessions, reopens them, and continues them in a child."""

from sqlalchemy import Connection, select, update

from sessions.db.engine import touch
from sessions.db.schema import sessions
from sessions.inbox import serialize
from sessions.keys import SessionKey
from sessions.records import EndReason, Session
from sessions.store.append import start
from sessions.store.queries import active, chain, exists, get
from sessions.topics import Topic


def end(conn: Connection, session_id: str, reason: EndReason, now: int) -> bool:
    """Ends the session. Returns False when it had ended already."""
    ended = conn.execute(
        update(sessions)
        .where(sessions.c.id == session_id, sessions.c.ended_at.is_(None))
        .values(ended_at=now, end_reason=reason)
        .returning(sessions.c.session_key)
    ).scalar()
    if ended is not None:
        touch(conn, Topic.KEY, ended)
        touch(conn, Topic.SESSION, session_id)
    return ended is not None


def announced_by(conn: Connection, session_id: str) -> Session | None:
    """Returns the session before this one, if it was reset and nobody was told yet."""
    former = conn.scalar(select(sessions.c.announces).where(sessions.c.id == session_id))
    return get(conn, former) if former is not None and exists(conn, former) else None


def mark_announced(conn: Connection, session_id: str) -> None:
    """Notes that the chat was told of the reset before this session."""
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(announces=None))


def reopen(conn: Connection, session: Session, now: int) -> Session:
    """Reopens this conversation: its newest part is active again, the key's current session ends, and it counts as activity."""
    # A conversation that grew too long goes on in its child; only that one can be active.
    last = chain(conn, session)[-1]
    serialize(conn, last.session_key)
    current = active(conn, last.session_key)
    if current is not None and current.id != last.id:
        end(conn, current.id, EndReason.USER, now)
    conn.execute(
        update(sessions).where(sessions.c.id == last.id).values(ended_at=None, end_reason=None, last_user_at=now)
    )
    touch(conn, Topic.KEY, last.session_key)
    return get(conn, last.id)


def continue_in_child(conn: Connection, session: Session, now: int) -> Session:
    """Continues the conversation in a new session with the same key; the parent stays readable and searchable."""
    end(conn, session.id, EndReason.COMPRESSED, now)
    child = start(
        conn,
        SessionKey.parse(session.session_key),
        now,
        source=session.source,
        user_id=session.user_id,
        model=session.model,
        title=session.title,
        ns=session.ns,
        parent=session.id,
    )
    kept = {
        "last_user_at": session.last_user_at,
        "model_config": session.model_config,
        "system_prompt": session.system_prompt,
    }
    conn.execute(update(sessions).where(sessions.c.id == child.id).values(kept))
    return get(conn, child.id)
