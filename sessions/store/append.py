"""Starts sessions and appends messages to their journals."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, ScalarSelect, bindparam, func, insert, select, update

from sessions import ids
from sessions.db.engine import touch
from sessions.db.schema import MESSAGE_OPEN, messages, sessions
from sessions.db.sql import param
from sessions.errors import NotFound
from sessions.keys import SessionKey
from sessions.messages import Attachment
from sessions.records import Message, Role, Session, estimated_tokens, settings_of
from sessions.store.queries import get
from sessions.topics import Topic

CHAIN_LENGTH = 2_000
TITLE_LENGTH = 200


def _first_open(session_id: Any) -> ScalarSelect[int]:
    """Returns the id of the first tool result that is still to come."""
    return select(func.min(messages.c.id)).where(messages.c.session_id == session_id, MESSAGE_OPEN).scalar_subquery()


# Built once: these run for every message.
_INSERT = insert(messages).returning(messages.c.id)
_GIVEN = [column for column in messages.c if column.name != "id"]
_LOCKED = select(sessions.c.id).where(sessions.c.id == param("session_id")).with_for_update().cte("locked")
_INSERT_LOCKED = (
    insert(messages)
    .from_select(
        [column.name for column in _GIVEN],
        select(*(bindparam(column.name, type_=column.type) for column in _GIVEN)).select_from(_LOCKED),
    )
    .returning(messages.c.id)
)
"""The same on PostgreSQL for the first of several rows: it locks the session before it takes an id, or ids could be taken in one order and
committed in another. It inserts nothing where the session is gone."""
_COUNT = (
    update(sessions)
    .where(sessions.c.id == param("session"))
    .values(
        message_count=sessions.c.message_count + param("messages"),
        tool_call_count=sessions.c.tool_call_count + param("calls"),
        last_user_at=func.coalesce(param("spoken"), sessions.c.last_user_at),
        # A result that is still to come will change its row, so nothing from there on may be copied or cached yet.
        settled_to=func.coalesce(_first_open(param("session")) - 1, param("settled")),
        input_tokens=sessions.c.input_tokens + param("read"),
        output_tokens=sessions.c.output_tokens + param("written"),
        model=func.coalesce(param("by"), sessions.c.model),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCost:
    """What an answer has cost, and the model that gave it."""

    input_tokens: int = 0
    output_tokens: int = 0
    model: str | None = None


_NOTHING = AnswerCost()


def start(
    conn: Connection,
    key: SessionKey,
    now: int,
    *,
    source: str,
    session_id: str | None = None,
    user_id: str | None = None,
    model: str | None = None,
    title: str | None = None,
    ns: str | None = None,
    parent: str | None = None,
    announces: str | None = None,
) -> Session:
    """Inserts a new active session of this key, which must have none. `announces`: the session before it, which was reset."""
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
        "announces": announces,
    }
    conn.execute(insert(sessions), values)
    touch(conn, Topic.SESSION, new_id)
    touch(conn, Topic.KEY, str(key))
    return get(conn, new_id)


def append(
    conn: Connection,
    session_id: str,
    new: Sequence[Message],
    now: int,
    *,
    used: AnswerCost = _NOTHING,
    by_person: bool = True,
) -> list[int]:
    """Appends messages to the journal, in this order. Returns their ids, which only grow within a session. `by_person` False: they do not
    count as a sign that somebody is there.
    """
    if not new:
        return []
    first = _INSERT if conn.dialect.name == "sqlite" else _INSERT_LOCKED
    added = [_insert(conn, _INSERT if n else first, session_id, message, now) for n, message in enumerate(new)]
    counted = conn.execute(
        _COUNT,
        {
            "session": session_id,
            "messages": len(new),
            "calls": sum(len(message.tool_calls) for message in new if message.tool_calls),
            "spoken": now if by_person and any(message.role is Role.USER for message in new) else None,
            "settled": added[-1],
            "read": used.input_tokens,
            "written": used.output_tokens,
            "by": used.model,
        },
    )
    # The insert has no foreign key to fail on, so a session that was deleted meanwhile is noticed here.
    if counted.rowcount == 0:
        raise NotFound(f"Session {session_id} is gone.")
    touch(conn, Topic.SESSION, session_id)
    return added


def set_attachments(conn: Connection, message_id: int, content: str, attachments: Sequence[Attachment]) -> None:
    """Stores the files of a message that were fetched after it came in, and its text that names them."""
    _change(conn, message_id, content, estimated_tokens(content), attachments=tuple(attachments) or None)


def count_used(conn: Connection, session_id: str, input_tokens: int, output_tokens: int) -> None:
    """Adds the tokens of an answer that has no row of its own."""
    read, written = sessions.c.input_tokens + input_tokens, sessions.c.output_tokens + output_tokens
    changed = {"input_tokens": read, "output_tokens": written}
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(changed))


def rewrite(conn: Connection, message_id: int, content: str, *, token_count: int = 0) -> None:
    """Replaces the text of this message."""
    _change(conn, message_id, content, token_count or estimated_tokens(content))


def _change(conn: Connection, message_id: int, content: str, token_count: int, **more: object) -> None:
    from sessions.search import message_index

    session_id = conn.scalar(select(messages.c.session_id).where(messages.c.id == message_id))
    if session_id is not None:
        message_index.forget(conn, session_id)
        changed = update(messages).where(messages.c.id == message_id)
        conn.execute(changed.values(content=content, token_count=token_count, **more))
        count_rewrite(conn, session_id)
        touch(conn, Topic.REWRITTEN, session_id)


def count_rewrite(conn: Connection, session_id: str) -> None:
    """Notes that settled rows were changed or removed: who has read them must read them again."""
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(rewrites=sessions.c.rewrites + 1))


def mark_settled(conn: Connection, session_id: str) -> None:
    """Moves the mark up to which the journal does not change any more: up to the first tool result that is still to come."""
    newest_row = select(func.max(messages.c.id)).where(messages.c.session_id == session_id)
    settled = func.coalesce(_first_open(session_id) - 1, newest_row.scalar_subquery(), 0)
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(settled_to=settled))
    touch(conn, Topic.SESSION, session_id)


def _insert(conn: Connection, inserting: Any, session_id: str, message: Message, now: int) -> int:
    row_id = conn.execute(
        inserting,
        {
            "session_id": session_id,
            "run_id": message.run_id,
            "role": message.role,
            "content": message.content,
            "tool_calls": message.tool_calls,
            "tool_call_id": message.tool_call_id,
            "tool_name": message.tool_name,
            # Estimated where no endpoint has counted.
            "token_count": message.token_count or estimated_tokens(message.content, dump(message.tool_calls)),
            "created_at": now,
            "sender": message.sender,
            "attachments": message.attachments or None,
            "state": message.state,
            "idem_key": message.idem_key,
        },
    ).scalar_one_or_none()
    if row_id is None:
        raise NotFound(f"Session {session_id} is gone.")
    return row_id


def dump(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def rename(conn: Connection, session_id: str, title: str) -> str:
    """Stores the title and returns it as it is kept: cut if it is too long. An empty one removes the title."""
    kept = title.strip()[:TITLE_LENGTH].rstrip()
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(title=kept or None))
    return kept


def choose_model(conn: Connection, session_id: str, model: str | None) -> None:
    """Stores the model that answers here from now on; None: the configured one."""
    config = {name: value for name, value in _model_config(conn, session_id).items() if name != "model"}
    if model is not None:
        config["model"] = model
    conn.execute(
        update(sessions)
        .where(sessions.c.id == session_id)
        .values(model_config=dump(config) if config else None, model=model or sessions.c.model)
    )


def keep_settings(conn: Connection, session_id: str, system_prompt: str, config: Mapping[str, Any]) -> None:
    """Stores with which system prompt and model this session began, without what memory adds to them. The second time changes nothing."""
    known = _model_config(conn, session_id)
    conn.execute(
        update(sessions)
        .where(sessions.c.id == session_id, sessions.c.system_prompt.is_(None))
        .values(system_prompt=system_prompt, model_config=dump({**config, **known}))
    )


def _model_config(conn: Connection, session_id: str) -> dict[str, Any]:
    stored = conn.scalar(select(sessions.c.model_config).where(sessions.c.id == session_id))
    return settings_of(stored)
