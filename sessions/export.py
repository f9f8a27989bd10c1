"""Export of whole sessions as JSON lines, and import."""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection, insert, select, update

from sessions import audit, codec, memory, store
from sessions.clock import now_ms
from sessions.db.engine import touch
from sessions.db.schema import messages, sessions
from sessions.db.sql import insert_or_ignore, lock
from sessions.errors import Invalid
from sessions.ids import is_session_id
from sessions.jobs.records import find as find_job
from sessions.keys import InvalidKey, SessionKey
from sessions.messages import Attachment
from sessions.records import EndReason, MessageState, Role, Session, Source, estimated_tokens
from sessions.topics import Topic

_SESSION_FIELDS = (
    "id",
    "session_key",
    "source",
    "user_id",
    "agent",
    "model",
    "model_config",
    "system_prompt",
    "title",
    "started_at",
    "ended_at",
    "end_reason",
    "last_user_at",
    "parent_session_id",
    "message_count",
    "tool_call_count",
    "input_tokens",
    "output_tokens",
)
_MESSAGE_FIELDS = (
    "id",
    "run_id",
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "token_count",
    "created_at",
    "sender",
    "attachments",
    "state",
)
_BATCH = 500


def export_session(conn: Connection, session_id: str) -> dict[str, Any]:
    """All fields of the session and its messages, as one JSON object."""
    row = conn.execute(select(sessions).where(sessions.c.id == session_id)).mappings().one()
    found = conn.execute(select(messages).where(messages.c.session_id == session_id).order_by(messages.c.id)).mappings()
    return {
        **{name: row[name] for name in _SESSION_FIELDS},
        "ns": row["ns"],
        "messages": [_message(message) for message in found],
    }


def _message(row: Any) -> dict[str, Any]:
    line = {name: row[name] for name in _MESSAGE_FIELDS}
    line["attachments"] = codec.plain(tuple[Attachment, ...], row["attachments"]) if row["attachments"] else None
    return line


def conversations(conn: Connection, *, source: str | None = None, session: Session | None = None) -> list[str]:
    """The session ids to export, oldest first: one conversation with all its parts, or everything (of one source)."""
    if session is not None:
        return [part.id for part in store.chain(conn, session)]
    query = select(sessions.c.id).order_by(sessions.c.started_at, sessions.c.id)
    return list(conn.scalars(query if source is None else query.where(sessions.c.source == source)))


Milliseconds = Annotated[int, Field(ge=0, lt=2**52)]
Count = Annotated[int, Field(ge=0, lt=2**62)]


Moment = Annotated[int, Field(ge=0, le=253_402_300_799_999)]
"""Milliseconds up to the year 9999."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")


class ImportedMessage(_Line):
    role: Role
    content: str | None = None
    run_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    token_count: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    created_at: Milliseconds
    sender: str | None = None
    attachments: list[Attachment] | None = None
    state: MessageState = MessageState.DONE


class ImportedSession(_Line):
    id: str
    session_key: str
    source: str
    user_id: str | None = None
    agent: str = "main"
    model: str | None = None
    # The column's own name is taken by pydantic.
    settings: str | None = Field(default=None, validation_alias="model_config")
    system_prompt: str | None = None
    title: str | None = None
    started_at: Milliseconds
    ended_at: Milliseconds | None = None
    end_reason: EndReason | None = None
    last_user_at: Milliseconds | None = None
    parent_session_id: str | None = None
    input_tokens: Count = 0
    output_tokens: Count = 0
    messages: list[ImportedMessage] = []

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        if self.ended_at is not None and self.ended_at < self.started_at:
            raise PydanticCustomError("ended_at", "ended_at lies before started_at")
        return self


def parse_lines(lines: Iterable[str]) -> Iterator[ImportedSession]:
    """Raises Invalid with the number of the first bad line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            parsed = ImportedSession.model_validate({**data})
            key = SessionKey.parse(parsed.session_key)
            if parsed.source != (key.platform or key.scope):
                raise Invalid(f"line {number}: the source {parsed.source} does not fit the key {parsed.session_key}.")
            if not is_session_id(parsed.id):
                raise Invalid(f"line {number}: {parsed.id!r} is no session id.")
        except InvalidKey as error:
            raise Invalid(f"line {number}: {error}") from error
        except (json.JSONDecodeError, RecursionError, TypeError, AttributeError) as error:
            raise Invalid(
                f"line {number} is no JSON object: is this a file that `hermes sessions export` wrote?"
            ) from error
        except ValidationError as error:
            first = error.errors()[0]
            place = "".join(f"{part}." for part in first["loc"]).removesuffix(".")
            raise Invalid(f"line {number}: {f'{place}: ' if place else ''}{first['msg']}") from error
        yield parsed


def import_session(conn: Connection, new: ImportedSession, by: str) -> bool:
    """Returns False when a session of this id exists; it is not changed. A session that was active stays active
    unless its key has another one."""
    key = SessionKey.parse(new.session_key)
    lock(conn, new.session_key)
    values = new.model_dump(exclude={"messages", "settings"})
    if new.ended_at is None and store.active(conn, new.session_key) is not None:
        values |= {"ended_at": new.last_user_at or new.started_at, "end_reason": EndReason.USER}
    # Whose memory the session has follows from its key, never from the file, which may be a stranger's.
    job = find_job(conn, key.chat_id or "") if key.scope == Source.JOB else None
    row = {
        **values,
        "model_config": new.settings,
        "ns": job.ns if job is not None and job.ns is not None else key.namespace,
        "rewrites": now_ms(),
    }
    if not insert_or_ignore(conn, sessions, row):
        return False
    rows = [_row(new.id, message) for message in new.messages]
    for start in range(0, len(rows), _BATCH):
        conn.execute(insert(messages), rows[start : start + _BATCH])
    store.recount(conn, new.id)
    memory.skip(conn, new.id)
    conn.execute(update(sessions).where(sessions.c.id == new.id).values(last_user_at=new.last_user_at))
    touch(conn, Topic.SESSION, new.id)
    touch(conn, Topic.KEY, new.session_key)
    audit.record(conn, now_ms(), by, "session.imported", f"session:{new.id}")
    return True


def _row(session_id: str, message: ImportedMessage) -> dict[str, Any]:
    values = message.model_dump(exclude={"attachments"})
    values |= {
        "token_count": message.token_count or estimated_tokens(message.content),
        "tool_calls": message.tool_calls,
        "attachments": tuple(message.attachments or ()) or None,
    }
    if values["state"] in {MessageState.PENDING, MessageState.STARTED}:  # the run that would have gone on stayed behind
        values["state"] = MessageState.UNKNOWN
    return {"session_id": session_id, **values}
