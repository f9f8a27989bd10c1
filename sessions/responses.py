"""Answers that are kept by id, and conversations: what the Responses API goes on from. Each chain is a session of its own.

A first answer is in no session: what was asked stands beside it. Once it is continued, both become the start of a session; a second
continuation of the same answer starts another session with a copy of what led to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from sessions import store
from sessions.db.schema import messages, responses, sessions
from sessions.db.sql import lock, param
from sessions.errors import NotFound
from sessions.keys import SessionKey
from sessions.messages import Attachment, AttachmentKind
from sessions.records import Message, MessageState, Role
from sessions.runs import Opening, open_session

JSON = dict[str, Any]


class KeptKind(StrEnum):
    RESPONSE = "response"
    CONVERSATION = "conversation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """`input`: the messages before the answer, while they are in no session. `answer`: as it is given. `ends_at`: the last message of
    the session that belongs to it. `dedup_key`: of the message that asked for it, where that is in a session."""

    id: str
    key_name: str
    created_at: int
    answer: JSON
    kind: KeptKind = KeptKind.RESPONSE
    session_key: str | None = None
    previous_id: str | None = None
    dedup_key: str | None = None
    ends_at: int | None = None
    input: Sequence[JSON] = ()

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        values: JSON = {**row, "kind": KeptKind(row["kind"]), "answer": row["answer"] or {}}
        values["input"] = row["input"] or ()
        return cls(**values)

    @property
    def working(self) -> bool:
        return self.answer.get("status") in {"queued", "in_progress"}


def keep(conn: Connection, new: Kept) -> None:
    """Inserts the answer; does nothing when it is there already."""
    if find(conn, new.id) is None:
        values = {name: getattr(new, name) for name in Kept.__slots__}
        values |= {"input": list(new.input) or None}
        conn.execute(insert(responses), values)


_BY_ID = select(responses).where(responses.c.id == param("which"))


def find(conn: Connection, response_id: str) -> Kept | None:
    row = conn.execute(_BY_ID, {"which": response_id}).mappings().first()
    return Kept.from_row(row) if row else None


def get(conn: Connection, response_id: str, key_name: str, kind: KeptKind = KeptKind.RESPONSE) -> Kept:
    """Raises NotFound, also for what another key has."""
    found = find(conn, response_id)
    if found is None or found.key_name != key_name or found.kind is not kind:
        raise NotFound(f"There is no {kind} {response_id}, or this key may not see it.")
    return found


def finish(conn: Connection, response_id: str, answer: Mapping[str, Any], run_id: str | None = None) -> None:
    """Stores the whole answer. `run_id`: the run that gave it, if it is in a session."""
    values: JSON = {"answer": dict(answer)}
    if run_id is not None:
        values["ends_at"] = conn.scalar(select(func.max(messages.c.id)).where(messages.c.run_id == run_id))
    conn.execute(update(responses).where(responses.c.id == response_id).values(values))


def continuations(conn: Connection, response_id: str) -> list[Kept]:
    rows = conn.execute(select(responses).where(responses.c.previous_id == response_id)).mappings()
    return [Kept.from_row(row) for row in rows]


def continue_from(conn: Connection, new: Kept, before: Kept | None, now: int) -> Kept:
    """Keep a new answer of a session that goes on from this response or conversation. Returns it with its session.

    The session has to be free: `before` is no answer that is still worked on.
    """
    lock(conn, before.id if before else new.id)
    # Read again under the lock: somebody else may have continued it meanwhile.
    before = find(conn, before.id) if before else None
    own = str(SessionKey.response(new.key_name, new.id))
    if before is None:
        key = own
        _import(conn, key, new.id, [_as_new(message) for message in new.input], now)
    elif before.session_key is not None and (
        before.kind is KeptKind.CONVERSATION or not continuations(conn, before.id)
    ):
        key = before.session_key
    else:
        first = before.session_key is None and not continuations(conn, before.id)
        key = str(SessionKey.response(new.key_name, before.id)) if first and before.kind is KeptKind.RESPONSE else own
        if before.session_key is None and (first or before.kind is KeptKind.CONVERSATION):
            conn.execute(update(responses).where(responses.c.id == before.id).values(session_key=key))
        _import(conn, key, new.id, history(conn, before), now)
    newest = before.id if before and before.kind is KeptKind.RESPONSE else _newest(conn, key)
    kept = replace(new, session_key=key, input=(), previous_id=newest)
    keep(conn, kept)
    return kept


def _newest(conn: Connection, key: str) -> str | None:
    of_key = select(responses.c.id).where(responses.c.session_key == key, responses.c.kind == KeptKind.RESPONSE)
    return conn.scalar(of_key.order_by(responses.c.created_at.desc(), responses.c.id).limit(1))


def _import(conn: Connection, key: str, owner: str, history: Sequence[Message], now: int) -> None:
    """Starts a new session with these messages."""
    session = open_session(conn, SessionKey.parse(key), Opening(), now)
    store.append(conn, session.id, [replace(message, run_id=owner) for message in history], now)


def history(conn: Connection, kept: Kept) -> list[Message]:
    """Returns what was said up to and with this answer. Calls that it left to the caller are open again."""
    if kept.kind is KeptKind.CONVERSATION or kept.ends_at is None:
        return [*(_as_new(message) for message in kept.input), *_answer_messages(kept)]
    session_ids = select(sessions.c.id).where(sessions.c.session_key == kept.session_key)
    rows = select(messages).where(messages.c.session_id.in_(session_ids), messages.c.id <= kept.ends_at)
    left = {item["call_id"] for item in _calls(kept)}
    copied = [
        Message(
            role=Role(row["role"]),
            content=row["content"],
            tool_calls=row["tool_calls"],
            tool_call_id=row["tool_call_id"],
            tool_name=row["tool_name"],
            sender=row["sender"],
            attachments=row["attachments"],
        )
        for row in conn.execute(rows.order_by(messages.c.id)).mappings()
        # The calls that this answer left open: whatever results the other branch got, they are open again here.
        if row["tool_call_id"] not in left
    ]
    return [*copied, *_open_calls(kept)]


def _answer_messages(kept: Kept) -> list[Message]:
    said: list[JSON] = [item for item in kept.answer.get("output", ()) if item["type"] == "message"]
    text = "".join(part.get("text", "") for item in said for part in item["content"])
    calls = [
        {"id": item["call_id"], "type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}}
        for item in _calls(kept)
    ]
    if not text and not calls:
        return []
    return [Message(role=Role.ASSISTANT, content=text or None, tool_calls=calls or None), *_open_calls(kept)]


def _calls(kept: Kept) -> list[JSON]:
    return [item for item in kept.answer.get("output", ()) if item["type"] == "function_call"]


def _open_calls(kept: Kept) -> list[Message]:
    return [
        Message(
            role=Role.TOOL,
            content=item["arguments"],
            tool_call_id=item["call_id"],
            tool_name=item["name"],
            state=MessageState.PENDING,
        )
        for item in _calls(kept)
    ]


def _as_new(message: JSON) -> Message:
    """A message of Chat Completions as the journal has it."""
    content: Any = message.get("content")
    parts: list[JSON] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    pictures = [str(part["image_url"]["url"]) for part in parts if part["type"] == "image_url"]
    linked = tuple(
        Attachment(kind=AttachmentKind.IMAGE, name="picture", mime="image/*", url=url)
        for url in pictures
        if "://" in url[:8]
    )
    texts = [part["text"] for part in parts if part["type"] == "text"]
    texts += ["[a file that was sent earlier]" for _ in range(len(parts) - len(texts) - len(linked))]
    return Message(
        role=Role(message["role"]),
        content="\n".join(texts) or None,
        tool_calls=message.get("tool_calls"),
        tool_call_id=message.get("tool_call_id"),
        attachments=linked,
    )


def remove(conn: Connection, response_id: str) -> list[str]:
    """Deletes the answer. Returns the sessions of which nothing is kept any more: they are to be erased. Raises Busy while one of these
    is worked on.
    """
    found = find(conn, response_id)
    conn.execute(delete(responses).where(responses.c.id == response_id))
    if found is None or found.session_key is None:
        return []
    if conn.scalar(select(responses.c.id).where(responses.c.session_key == found.session_key).limit(1)) is not None:
        return []
    orphans = list(conn.scalars(select(sessions.c.id).where(sessions.c.session_key == found.session_key)))
    for session_id in orphans:
        # Here, because once the answer is deleted nothing names the session any more.
        store.require_idle(conn, session_id)
    return orphans


def older_than(conn: Connection, before: int, limit: int) -> list[str]:
    old = select(responses.c.id).where(responses.c.created_at < before)
    return list(conn.scalars(old.order_by(responses.c.created_at).limit(limit)))
