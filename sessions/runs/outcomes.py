"""Reads what became of a call: its answer, a question to a human, or calls of the caller's own tools."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from sessions import inbox, store
from sessions.db.schema import asks, messages
from sessions.db.sql import param
from sessions.inbox import InboxRow
from sessions.records import Ask, Message, Role, Run, RunStatus
from sessions.runs.journal import open_calls
from sessions.runs.queries import get


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState:
    """`asked`: the question that came after the call. `said`: the newest words of the agent. `handed_over`: calls left to the caller."""

    run: Run
    asked: Ask | None = None
    said: Message | None = None
    handed_over: Sequence[Message] = ()

    @property
    def working(self) -> bool:
        return self.asked is None and self.run.status is RunStatus.RUNNING


_ASKED = select(asks).where(asks.c.run_id == param("run"), asks.c.id > param("after")).order_by(asks.c.id).limit(1)
_SAID = (
    select(messages)
    .where(
        messages.c.session_id == param("session"),
        messages.c.run_id == param("run"),
        messages.c.role == Role.ASSISTANT,
    )
    .order_by(messages.c.id.desc())
    .limit(1)
)


def call_state(conn: Connection, run_id: str, *, after_ask: int = 0) -> CallState:
    """Returns the state of the run for a caller that came after this ask. Raises NotFound."""
    run = get(conn, run_id)
    row = conn.execute(_ASKED, {"run": run_id, "after": after_ask}).mappings().first()
    if row is not None:
        return CallState(run=run, asked=Ask.from_row(row))
    if run.status is RunStatus.RUNNING:
        return CallState(run=run)
    row = conn.execute(_SAID, {"session": run.session_id, "run": run_id}).mappings().first()
    said = Message.from_row(row) if row else None
    # A finished run with open calls has handed them to the caller; nobody else leaves any open.
    left = open_calls(conn, run) if said is not None and said.tool_calls else ()
    return CallState(run=run, said=said, handed_over=left)


def of_call(conn: Connection, dedup_key: str) -> tuple[str | None, int]:
    """Returns the run that a queued message has started or answered, if its turn has come, and the ask that it answered."""
    row = inbox.by_dedup_key(conn, dedup_key)
    return (None, 0) if row is None else (row.run_id, row.body.ask or 0)


def last_call(conn: Connection, session_key: str) -> InboxRow | None:
    """Returns what was said last on this key: the newest message that waits, else what the newest run has taken in last."""
    waiting = inbox.unread(conn, session_key)
    if waiting:
        return waiting[-1]
    session = store.active(conn, session_key)
    said = store.last_messages(conn, session.id, 1) if session is not None else []
    return inbox.last_of_run(conn, said[0].run_id) if said and said[0].run_id else None


_TEXTS = (
    select(messages.c.id, messages.c.content)
    .where(
        messages.c.session_id == param("session"),
        messages.c.run_id == param("run"),
        messages.c.role == Role.ASSISTANT,
    )
    .order_by(messages.c.id)
)
_ASK_AT = (
    select(messages.c.id)
    .join(asks, (asks.c.run_id == messages.c.run_id) & (asks.c.tool_call_id == messages.c.tool_call_id))
    .where(messages.c.session_id == param("session"), asks.c.id == param("ask"))
)


def texts_of_steps(conn: Connection, run_id: str, *, after_ask: int = 0, steps: int | None = None) -> list[str]:
    """Returns what the agent has said in the first so many steps of the run (None: in all that are committed), after this ask."""
    run = get(conn, run_id)
    asked_at = conn.scalar(_ASK_AT, {"session": run.session_id, "ask": after_ask}) or 0
    said = conn.execute(_TEXTS, {"session": run.session_id, "run": run.id}).all()[:steps]
    return [row.content for row in said if row.id > asked_at and row.content]
