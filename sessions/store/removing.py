"""Deletes rows of a whole session, or of its last messages."""

from sqlalchemy import Connection, delete, func, select, update

from sessions import inbox, processes, transcripts
from sessions.clock import now_ms
from sessions.db.engine import touch
from sessions.db.schema import asks, events, messages, outbox, runs, sessions
from sessions.db.schema import inbox as inbox_table
from sessions.errors import Busy
from sessions.overheard import forget_all as forget_overheard
from sessions.records import EndReason, Observation, Role, RunKind, RunStatus
from sessions.store.append import count_rewrite, mark_settled
from sessions.store.queries import get
from sessions.topics import Topic


def delete_session(conn: Connection, session_id: str) -> None:
    """Deletes every row that holds a word of it. Files and the traces in freed pages are `erase`'s business. Raises Busy while a run
    works on it.
    """
    from sessions import memory
    from sessions.search import message_index

    session = get(conn, session_id)
    require_idle(conn, session_id)
    message_index.forget(conn, session_id)
    run_ids = list(conn.scalars(select(runs.c.id).where(runs.c.session_id == session_id)))
    keys = select(inbox_table.c.dedup_key).where(inbox_table.c.run_id.in_(run_ids), inbox_table.c.route.is_not(None))
    inbox.keep_deleted_keys(conn, conn.scalars(keys).all(), now_ms())
    for table in (asks, events, inbox_table, outbox):
        conn.execute(delete(table).where(table.c.run_id.in_(run_ids)))
    processes.forget_session(conn, session_id)
    conn.execute(delete(messages).where(messages.c.session_id == session_id))
    conn.execute(delete(runs).where(runs.c.session_id == session_id))
    memory.remove_session(conn, session)
    if session.ended_at is None:
        forget_overheard(conn, session.session_key, now_ms())
    conn.execute(update(sessions).where(sessions.c.parent_session_id == session_id).values(parent_session_id=None))
    conn.execute(delete(sessions).where(sessions.c.id == session_id))
    transcripts.note_deletion(conn, session_id)
    touch(conn, Topic.GONE, session_id)
    touch(conn, Topic.KEY, session.session_key)


def require_idle(conn: Connection, session_id: str) -> None:
    """Raises Busy while a run works on the session. A farewell does not count: what it would save is deleted, too."""
    at_work = runs.c.session_id == session_id, runs.c.status == RunStatus.RUNNING, runs.c.kind != RunKind.FAREWELL
    if conn.scalar(select(runs.c.id).where(*at_work).limit(1)) is not None:
        raise Busy(
            f"Session {session_id} is being worked on right now. Send /stop there first, or try again in a moment."
        )


def take_back(conn: Connection, session_id: str, *, keep_question: bool = False) -> list[Observation] | None:
    """Removes the last exchange: the last user message, unless it is to be answered again, and all that follows it. Where nothing was said
    yet since the session goes on from one that had grown too long, that of its parent.

    Returns the notes that were made of it and are gone, too; None when there is no exchange.
    """
    from sessions import memory
    from sessions.search import message_index

    question = conn.scalar(
        select(func.max(messages.c.id)).where(messages.c.session_id == session_id, messages.c.role == Role.USER)
    )
    if question is None:
        # The session of which this one is the continuation.
        parent = get(conn, session_id).parent_session_id
        long = select(sessions.c.id).where(sessions.c.id == parent, sessions.c.end_reason == EndReason.COMPRESSED)
        parent = None if parent is None else conn.scalar(long)
        gone = None if parent is None else take_back(conn, parent, keep_question=keep_question)
        if gone is not None:
            count_rewrite(conn, session_id)  # who reads it reads the end of its parent too
        return gone
    first = question + 1 if keep_question else question
    message_index.forget(conn, session_id)
    conn.execute(delete(messages).where(messages.c.session_id == session_id, messages.c.id >= first))
    gone = memory.take_back(conn, get(conn, session_id), first)
    count_rewrite(conn, session_id)
    recount(conn, session_id)
    touch(conn, Topic.REWRITTEN, session_id)
    return gone


def recount(conn: Connection, session_id: str) -> None:
    """Sets the session's counters from its rows."""
    count = conn.scalar(select(func.count()).select_from(messages).where(messages.c.session_id == session_id))
    calls = conn.scalars(
        select(messages.c.tool_calls).where(messages.c.session_id == session_id, messages.c.tool_calls.is_not(None))
    )
    conn.execute(
        update(sessions)
        .where(sessions.c.id == session_id)
        .values(message_count=count, tool_call_count=sum(map(len, calls)))
    )
    mark_settled(conn, session_id)
