"""Sessions and their messages. Every function is one step of a transaction: `(conn, …)`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, ScalarSelect, delete, func, insert, select, update
from sqlalchemy.sql import ColumnElement

from sessions import ids
from sessions.db.engine import touch
from sessions.db.schema import (
    MESSAGE_OPEN,
    asks,
    events,
    inbox,
    messages,
    observations,
    outbox,
    overheard,
    runs,
    sessions,
)
from sessions.db.sql import param
from sessions.errors import Ambiguous, Busy, NotFound
from sessions.keys import SessionKey
from sessions.records import EndReason, Message, NewMessage, Role, RunStatus, Session, Source

CHAIN_LENGTH = 2_000


def _first_open(session_id: Any) -> ScalarSelect[int]:
    """The first tool result that is still to come."""
    return select(func.min(messages.c.id)).where(messages.c.session_id == session_id, MESSAGE_OPEN).scalar_subquery()


# Built once: these run for every message.
_INSERT = insert(messages).returning(messages.c.id)
_LOCK = select(sessions.c.id).where(sessions.c.id == param("session")).with_for_update()
_COUNT = (
    update(sessions)
    .where(sessions.c.id == param("session"))
    .values(
        message_count=sessions.c.message_count + param("messages"),
        tool_call_count=sessions.c.tool_call_count + param("calls"),
        last_user_at=func.coalesce(param("spoken"), sessions.c.last_user_at),
        settled_to=func.coalesce(_first_open(param("session")) - 1, param("settled")),
    )
)


# --- finding ------------------------------------------------------------------------------------------------------------------


def get(conn: Connection, session_id: str) -> Session:
    """Raises NotFound."""
    row = conn.execute(select(sessions).where(sessions.c.id == session_id)).mappings().first()
    if row is None:
        raise NotFound(f"There is no session {session_id}. `hermes sessions list` shows the newest.")
    return Session.from_row(row)


def resolve(conn: Connection, prefix: str) -> Session:
    """The session with this id or unique prefix of one. Raises NotFound or Ambiguous."""
    query = select(sessions).where(sessions.c.id.startswith(prefix, autoescape=True)).order_by(sessions.c.id).limit(6)
    rows = conn.execute(query).mappings().all()
    if not rows or not prefix:
        raise NotFound(f"No session begins with {prefix!r}. `hermes sessions list` shows the newest.")
    if len(rows) > 1 and rows[0]["id"] != prefix:
        found = ", ".join(row["id"] for row in rows[:5]) + (", …" if len(rows) > 5 else "")
        raise Ambiguous(f"{prefix!r} fits several sessions: {found}. Give more characters.")
    return Session.from_row(rows[0])


def active(conn: Connection, key: str) -> Session | None:
    row = (
        conn.execute(select(sessions).where(sessions.c.session_key == key, sessions.c.ended_at.is_(None)))
        .mappings()
        .first()
    )
    return Session.from_row(row) if row else None


def newest(conn: Connection, source: Source) -> Session | None:
    last = func.coalesce(sessions.c.last_user_at, sessions.c.started_at)
    row = (
        conn.execute(select(sessions).where(sessions.c.source == source).order_by(last.desc()).limit(1))
        .mappings()
        .first()
    )
    return Session.from_row(row) if row else None


def recent(
    conn: Connection, *, source: Source | None = None, limit: int | None = 20, key: str | None = None
) -> list[Session]:
    """Newest first."""
    query = select(sessions).order_by(sessions.c.started_at.desc(), sessions.c.id.desc()).limit(limit)
    for condition in _matching(source=source, key=key):
        query = query.where(condition)
    return [Session.from_row(row) for row in conn.execute(query).mappings()]


def _matching(*, source: Source | None = None, key: str | None = None) -> Iterable[ColumnElement[bool]]:
    if source is not None:
        yield sessions.c.source == source
    if key is not None:
        yield sessions.c.session_key == key


def chain(conn: Connection, session: Session) -> list[Session]:
    """The whole conversation that this session is a part of, oldest first."""
    found = [session]
    while (parent := _one(conn, sessions.c.id == found[0].parent_session_id)) is not None and parent not in found:
        found.insert(0, parent)
    while (child := _one(conn, sessions.c.parent_session_id == found[-1].id)) is not None and child not in found:
        found.append(child)
    return found


def _one(conn: Connection, condition: ColumnElement[bool]) -> Session | None:
    row = conn.execute(select(sessions).where(condition).order_by(sessions.c.id).limit(1)).mappings().first()
    return Session.from_row(row) if row else None


def read_messages(conn: Connection, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Message]:
    query = (
        select(messages)
        .where(messages.c.session_id == session_id, messages.c.id > after)
        .order_by(messages.c.id)
        .limit(limit)
    )
    return [Message.from_row(row) for row in conn.execute(query).mappings()]


def last_messages(conn: Connection, session_id: str, limit: int, *, before: int | None = None) -> list[Message]:
    """The newest `limit` messages, oldest first."""
    query = select(messages).where(messages.c.session_id == session_id).order_by(messages.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(messages.c.id < before)
    return [Message.from_row(row) for row in conn.execute(query).mappings()][::-1]


def user_text(conn: Connection, session_id: str, *, newest: bool) -> str | None:
    """What the user said last, or first."""
    order = messages.c.id.desc() if newest else messages.c.id
    query = select(messages.c.content).where(messages.c.session_id == session_id, messages.c.role == Role.USER)
    return conn.scalar(query.order_by(order).limit(1))


# --- growing ------------------------------------------------------------------------------------------------------------------


def start(
    conn: Connection,
    key: SessionKey,
    now: int,
    *,
    source: Source,
    session_id: str | None = None,
    user_id: str | None = None,
    model: str | None = None,
    title: str | None = None,
    ns: str | None = None,
    parent: str | None = None,
) -> Session:
    """A new active session of this key. The key must have none."""
    new_id = session_id or ids.session_id(now)
    values = {
        "id": new_id,
        "session_key": str(key),
        "source": source,
        "user_id": user_id,
        "agent": key.agent,
        "model": model,
        "title": title,
        "started_at": now,
        "parent_session_id": parent,
        "ns": ns or key.namespace,
    }
    conn.execute(insert(sessions), values)
    touch(conn, "session", new_id)
    touch(conn, "key", str(key))
    return get(conn, new_id)


def append(conn: Connection, session_id: str, new: Sequence[NewMessage], now: int) -> list[int]:
    """Add messages to the journal, in this order. Returns their ids, which only ever grow within a session."""
    if not new:
        return []
    if conn.dialect.name != "sqlite":
        conn.execute(_LOCK, {"session": session_id})  # or ids could be taken in one order and committed in another
    added = [_insert(conn, session_id, message, now) for message in new]
    counted = conn.execute(
        _COUNT,
        {
            "session": session_id,
            "messages": len(new),
            "calls": sum(len(message.tool_calls) for message in new if message.tool_calls),
            "spoken": now if any(message.role is Role.USER for message in new) else None,
            "settled": added[-1],
        },
    )
    if counted.rowcount == 0:
        raise NotFound(f"Session {session_id} is gone.")
    touch(conn, "session", session_id)
    return added


def set_attachments(conn: Connection, message_id: int, content: str, attachments: list[dict[str, Any]]) -> None:
    """Files that were only announced when the message came in are there now, and named in its text."""
    from sessions.db import search

    changed = {"content": content, "attachments": _dump(attachments)}
    session_id = conn.scalar(select(messages.c.session_id).where(messages.c.id == message_id))
    if session_id is not None:
        search.forget(conn, session_id)
        conn.execute(update(messages).where(messages.c.id == message_id).values(changed))
        touch(conn, "rewritten", session_id)


def settle(conn: Connection, session_id: str) -> None:
    """Mark how far the journal will not change any more: up to the first tool result that is still to come."""
    newest_row = select(func.max(messages.c.id)).where(messages.c.session_id == session_id)
    settled = func.coalesce(_first_open(session_id) - 1, newest_row.scalar_subquery(), 0)
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(settled_to=settled))
    touch(conn, "session", session_id)


def _insert(conn: Connection, session_id: str, message: NewMessage, now: int) -> int:
    return conn.execute(
        _INSERT,
        {
            "session_id": session_id,
            "run_id": message.run_id,
            "role": message.role,
            "content": message.content,
            "tool_calls": _dump(message.tool_calls),
            "tool_call_id": message.tool_call_id,
            "tool_name": message.tool_name,
            "token_count": message.token_count,
            "created_at": now,
            "sender": message.sender,
            "attachments": _dump(message.attachments),
            "state": message.state,
            "idem_key": message.idem_key,
        },
    ).scalar_one()


def _dump(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def rename(conn: Connection, session_id: str, title: str) -> None:
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(title=title.strip() or None))


def choose_model(conn: Connection, session_id: str, model: str | None) -> None:
    """The model that answers here from now on; None: the configured one."""
    config = None if model is None else json.dumps({"model": model})
    conn.execute(
        update(sessions).where(sessions.c.id == session_id).values(model_config=config, model=model or sessions.c.model)
    )


_USE = (
    update(sessions)
    .where(sessions.c.id == param("session"))
    .values(
        input_tokens=sessions.c.input_tokens + param("read"),
        output_tokens=sessions.c.output_tokens + param("written"),
        model=func.coalesce(param("by"), sessions.c.model),
    )
)


def add_usage(
    conn: Connection, session_id: str, *, input_tokens: int, output_tokens: int, model: str | None = None
) -> None:
    """`model` is the one that answered."""
    conn.execute(_USE, {"session": session_id, "read": input_tokens, "written": output_tokens, "by": model or None})


# --- ending and going back ----------------------------------------------------------------------------------------------------


def end(conn: Connection, session_id: str, reason: EndReason, now: int) -> bool:
    """False when it had ended already."""
    ended = conn.execute(
        update(sessions)
        .where(sessions.c.id == session_id, sessions.c.ended_at.is_(None))
        .values(ended_at=now, end_reason=reason)
        .returning(sessions.c.session_key)
    ).scalar()
    if ended is not None:
        touch(conn, "key", ended)
    return ended is not None


def reopen(conn: Connection, session: Session, now: int) -> Session:
    """Go back to this conversation: its newest part is active again, the key's current session ends, and it counts as activity."""
    last = chain(conn, session)[-1]
    current = active(conn, last.session_key)
    if current is not None and current.id != last.id:
        end(conn, current.id, EndReason.USER, now)
    conn.execute(
        update(sessions).where(sessions.c.id == last.id).values(ended_at=None, end_reason=None, last_user_at=now)
    )
    touch(conn, "key", last.session_key)
    return get(conn, last.id)


def continue_in_child(conn: Connection, session: Session, now: int) -> Session:
    """The conversation goes on in a new session with the same key; the parent stays readable and searchable."""
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
    conn.execute(update(sessions).where(sessions.c.id == child.id).values(last_user_at=session.last_user_at))
    return child


# --- taking away --------------------------------------------------------------------------------------------------------------


def delete_session(conn: Connection, session_id: str) -> None:
    """Every row that holds a word of it. Files and the traces in freed pages are `erase`'s business. Raises Busy while a run works on it."""
    from sessions.db import search

    session = get(conn, session_id)
    of_runs = select(runs.c.id).where(runs.c.session_id == session_id)
    if conn.scalar(of_runs.where(runs.c.status == RunStatus.RUNNING).limit(1)) is not None:
        raise Busy(
            f"Session {session_id} is being worked on right now. Send /stop there first, or try again in a moment."
        )
    search.forget(conn, session_id)
    run_ids = list(conn.scalars(of_runs))
    for table in (asks, events, inbox, outbox):
        conn.execute(delete(table).where(table.c.run_id.in_(run_ids)))
    conn.execute(delete(messages).where(messages.c.session_id == session_id))
    conn.execute(delete(runs).where(runs.c.session_id == session_id))
    conn.execute(delete(observations).where(observations.c.session_id == session_id))
    if session.ended_at is None:
        conn.execute(delete(overheard).where(overheard.c.session_key == session.session_key))
    conn.execute(update(sessions).where(sessions.c.parent_session_id == session_id).values(parent_session_id=None))
    conn.execute(delete(sessions).where(sessions.c.id == session_id))
    touch(conn, "gone", session_id)
    touch(conn, "key", session.session_key)


def ended_before(conn: Connection, moment: int, *, source: Source | None = None) -> list[str]:
    query = select(sessions.c.id).where(sessions.c.ended_at < moment).order_by(sessions.c.ended_at)
    for condition in _matching(source=source):
        query = query.where(condition)
    return list(conn.scalars(query))


def take_back(conn: Connection, session_id: str) -> bool:
    """Remove the last exchange: the last user message and all that follows. False when there is none."""
    from sessions.db import search

    first = conn.scalar(
        select(func.max(messages.c.id)).where(messages.c.session_id == session_id, messages.c.role == Role.USER)
    )
    if first is None:
        return False
    search.forget(conn, session_id)
    conn.execute(delete(messages).where(messages.c.session_id == session_id, messages.c.id >= first))
    recount(conn, session_id)
    touch(conn, "rewritten", session_id)
    return True


def drop_answer(conn: Connection, session_id: str) -> bool:
    """Remove what follows the last user message, so that it can be answered again. False when there is no user message."""
    from sessions.db import search

    last = conn.scalar(
        select(func.max(messages.c.id)).where(messages.c.session_id == session_id, messages.c.role == Role.USER)
    )
    if last is None:
        return False
    search.forget(conn, session_id)
    conn.execute(delete(messages).where(messages.c.session_id == session_id, messages.c.id > last))
    recount(conn, session_id)
    touch(conn, "rewritten", session_id)
    return True


def recount(conn: Connection, session_id: str) -> None:
    """Set the counters from the rows."""
    count = conn.scalar(select(func.count()).select_from(messages).where(messages.c.session_id == session_id))
    calls = conn.scalars(
        select(messages.c.tool_calls).where(messages.c.session_id == session_id, messages.c.tool_calls.is_not(None))
    )
    conn.execute(
        update(sessions)
        .where(sessions.c.id == session_id)
        .values(
            message_count=count,
            tool_call_count=sum(len(json.loads(text)) for text in calls),
        )
    )
    settle(conn, session_id)


# --- counting -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    sessions: int
    messages: int
    by_source: dict[str, int]


def stats(conn: Connection) -> Stats:
    by_source = select(sessions.c.source, func.count()).group_by(sessions.c.source).order_by(sessions.c.source)
    counts: dict[str, int] = {row.source: row[1] for row in conn.execute(by_source)}
    total = conn.scalar(select(func.coalesce(func.sum(sessions.c.message_count), 0)))
    return Stats(sessions=sum(counts.values()), messages=int(total or 0), by_source=counts)
