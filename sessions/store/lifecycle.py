"""Ends sessions, reopens them, and continues them in a child."""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, case, func, insert, literal, select, update
from sqlalchemy import exists as exists_

from sessions.db.engine import touch
from sessions.db.schema import MESSAGE_OPEN, RUN_ACTIVE, SESSION_OPEN, inbox, messages, runs, sessions
from sessions.db.sql import lock
from sessions.keys import SessionKey
from sessions.records import EndReason, MessageState, Session, Source
from sessions.store.append import start
from sessions.store.queries import active, chain, exists, get
from sessions.topics import Topic


def end_time(now: int) -> ColumnElement[int]:
    """Returns the end of a session that ends now. Where the clock was set back since, it does not lie before its start."""
    return case((sessions.c.started_at > now, sessions.c.started_at), else_=now)


def end(conn: Connection, session_id: str, reason: EndReason, now: int) -> bool:
    """Ends the session. Returns False when it had ended already."""
    ended = conn.execute(
        update(sessions)
        .where(sessions.c.id == session_id, sessions.c.ended_at.is_(None))
        .values(ended_at=end_time(now), end_reason=reason)
        .returning(sessions.c.session_key)
    ).scalar()
    if ended is not None:
        touch(conn, Topic.KEY, ended)
        touch(conn, Topic.SESSION, session_id)
    return ended is not None


def announced_by(conn: Connection, session: Session) -> Session | None:
    """Returns the session before this one, if it was reset and nobody was told yet."""
    former = session.announces
    return get(conn, former) if former is not None and exists(conn, former) else None


def mark_announced(conn: Connection, session_id: str) -> None:
    """Notes that the chat was told of the reset before this session."""
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(announces=None))


def reopen(conn: Connection, session: Session, now: int) -> Session:
    """Reopens this conversation: its newest part is active again, the key's current session ends, and it counts as activity."""
    # A conversation that grew too long goes on in its child; only that one can be active.
    last = chain(conn, session)[-1]
    lock(conn, last.session_key)
    current = active(conn, last.session_key)
    if current is not None and current.id != last.id:
        end(conn, current.id, EndReason.USER, now)
    conn.execute(
        update(sessions).where(sessions.c.id == last.id).values(ended_at=None, end_reason=None, last_user_at=now)
    )
    touch(conn, Topic.KEY, last.session_key)
    return get(conn, last.id)


def branch(conn: Connection, session: Session, key: SessionKey, now: int) -> Session:
    """Starts a session of `key` with a copy of all that was said in this conversation. The copy shares its memory, and notes are not made
    of the same words twice."""
    from sessions import memory
    from sessions.store.removing import recount

    parts = chain(conn, session)
    made = start(
        conn,
        key,
        now,
        source=key.platform or key.scope,
        session_id=key.chat_id if key.scope == Source.CLI else None,
        user_id=session.user_id,
        model=parts[-1].model,
        title=session.title,
        ns=session.ns,
    )
    of_session = messages.c.session_id.in_([part.id for part in parts])
    copied = [each for each in messages.c if each.name not in {"id", "session_id", "run_id", "state", "idem_key"}]
    # The run that would have gone on with an open call stays with the original.
    state = case((MESSAGE_OPEN, MessageState.UNKNOWN), else_=messages.c.state)
    rows = select(literal(made.id), state, *copied).where(of_session).order_by(messages.c.id)
    conn.execute(insert(messages).from_select(["session_id", "state", *(each.name for each in copied)], rows))
    values = {"model_config": parts[-1].model_config, "last_user_at": now}
    conn.execute(update(sessions).where(sessions.c.id == made.id).values(values))
    recount(conn, made.id)
    memory.skip(conn, made.id)
    return get(conn, made.id)


def idle(conn: Connection, sources: Collection[str], before: int) -> list[str]:
    """Returns the active sessions of these sources in which nothing was said since `before`, and no run works or waits."""
    said = select(func.max(messages.c.created_at)).where(messages.c.session_id == sessions.c.id).scalar_subquery()
    has_run = exists_().where(runs.c.session_key == sessions.c.session_key, RUN_ACTIVE)
    has_unread = exists_().where(inbox.c.session_key == sessions.c.session_key, inbox.c.outcome.is_(None))
    unused = (
        SESSION_OPEN,
        sessions.c.source.in_(sources),
        sessions.c.started_at < before,
        func.coalesce(sessions.c.last_user_at, 0) < before,
        func.coalesce(said, 0) < before,
        ~has_run,
        ~has_unread,
    )
    return list(conn.scalars(select(sessions.c.id).where(*unused).order_by(sessions.c.id)))


def end_idle(conn: Connection, sources: Collection[str], before: int, now: int) -> list[str]:
    """Ends these sessions. Returns those that it has ended."""
    return [each for each in idle(conn, sources, before) if end(conn, each, EndReason.IDLE, now)]


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
