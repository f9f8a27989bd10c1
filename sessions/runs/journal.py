"""What the transitions of runs share: the fence, which unread messages a run takes in, its open tool calls, and a call's state for whoever waits for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, func, select, update

from sessions import events, inbox, people, spending, store
from sessions.db.schema import MESSAGE_OPEN, SESSION_OPEN, asks, messages, runs, sessions
from sessions.db.schema import inbox as inbox_table
from sessions.db.sql import param
from sessions.errors import LeaseLost
from sessions.keys import SessionKey
from sessions.records import (
    Ask,
    InboxMode,
    InboxOutcome,
    InboxRow,
    Message,
    MessageState,
    Role,
    Run,
    RunKind,
    RunStatus,
    estimated_tokens,
)
from sessions.runs.queries import ModelAnswer, get
from sessions.topics import Touch

GONE_ON = "[no result: the caller went on without it]"

_OWN = (
    update(runs)
    .where(runs.c.id == param("run"), runs.c.fence == param("held"), runs.c.status == RunStatus.RUNNING)
    .values(updated_at=param("now"), worked_ms=param("worked"))
)


def check_fence(conn: Connection, run: Run, now: int) -> None:
    """Checks the fence of this claim and stores how long the run was worked on. Raises LeaseLost."""
    values = {"run": run.id, "held": run.fence, "now": now, "worked": run.worked_ms}
    if conn.execute(_OWN, values).rowcount != 1:
        raise LeaseLost(f"Run {run.id} was stopped or taken over.")


def new_messages(conn: Connection, run: Run) -> list[InboxRow]:
    """Returns unread rows that belong to this run: the message that started it, and later ones of the same chat and thread."""
    if run.kind is RunKind.FAREWELL:
        return []
    return joining(conn, run, inbox.unread(conn, run.session_key))


def joining(conn: Connection, run: Run, unread: Sequence[InboxRow]) -> list[InboxRow]:
    """Returns those of the key's unread rows that belong to this run."""
    return [row for row in unread if row.run_id == run.id or _joins(conn, row, run)]


def _joins(conn: Connection, row: InboxRow, run: Run) -> bool:
    if row.mode is not InboxMode.TAKE_IN or row.run_id is not None or run.kind is not RunKind.CHAT:
        return False
    # From another chat or thread it waits for a run of its own: the answer of this one would not reach its sender.
    return people.same_place(conn, run.route, row.route)


def take_in(conn: Connection, run: Run, rows: Sequence[InboxRow], now: int) -> list[int]:
    """Appends the messages of these inbox rows to the journal of the run and closes the rows. Returns the new ids."""
    if not rows:
        return []
    messages = close_handed_over(conn, run, [message for row in rows for message in row.messages], now)
    new = [replace(message, run_id=run.id) for message in messages]
    is_time = run.kind is RunKind.JOB and SessionKey.parse(run.session_key).scope != "job"  # nobody has said that
    added = store.append(conn, run.session_id, new, now, by_person=not is_time)
    for row in rows:
        ask = row.ask
        inbox.close(conn, row.id, InboxOutcome.TAKEN_IN if ask is None else InboxOutcome.ANSWERED, run.id, ask=ask)
    for message in new:
        if message.role is Role.USER:
            events.emit(conn, run, "message", {"role": "user", "content": message.content}, now)
    # The answer goes to where the person spoke last.
    last = rows[-1].route
    if last is not None and last != run.route:
        conn.execute(update(runs).where(runs.c.id == run.id).values(route=last))
    return added


_OPEN_CALLS = (
    select(messages)
    .where(messages.c.session_id == param("session"), messages.c.run_id == param("run"), MESSAGE_OPEN)
    .order_by(messages.c.id)
)


def open_calls(conn: Connection, run: Run) -> list[Message]:
    """Tool calls of this run that have no result yet, in order."""
    rows = conn.execute(_OPEN_CALLS, {"session": run.session_id, "run": run.id}).mappings()
    return [Message.from_row(row) for row in rows]


_HANDED_OVER = (
    select(messages)
    .where(messages.c.session_id == param("session"), messages.c.run_id != param("run"), MESSAGE_OPEN)
    .order_by(messages.c.id)
)


def handed_over(conn: Connection, session_id: str, *, run_id: str = "") -> list[Message]:
    """Tool calls that earlier runs of this session left to the caller and that have no result yet."""
    rows = conn.execute(_HANDED_OVER, {"session": session_id, "run": run_id}).mappings()
    return [Message.from_row(row) for row in rows]


def close_handed_over(conn: Connection, run: Run, sent: list[Message], now: int) -> list[Message]:
    """Stores the caller's results for the calls that wait for them, and a note for calls without one. Returns what else the caller sent."""
    if run.kind is RunKind.FAREWELL:
        return sent
    results = {message.tool_call_id: message.content or "" for message in sent if message.role is Role.TOOL}
    for call in handed_over(conn, run.session_id, run_id=run.id):
        close_call(conn, run, call.id, results.get(call.tool_call_id, GONE_ON), now)
        conn.execute(update(messages).where(messages.c.id == call.id).values(run_id=run.id))  # it is news to this run
    return [message for message in sent if message.role is not Role.TOOL]


def close_call(
    conn: Connection, run: Run, message_id: int, content: str, now: int, *, state: MessageState = MessageState.DONE
) -> None:
    closed = conn.execute(
        update(messages)
        .where(messages.c.id == message_id, MESSAGE_OPEN)
        .values(content=content, state=state, token_count=estimated_tokens(content))
        .returning(messages.c.tool_call_id)
    ).scalar()
    # Closed before; its event is out.
    if closed is None:
        return
    store.mark_settled(conn, run.session_id)
    events.emit(conn, run, "tool_result", {"tool_call_id": closed, "content": content}, now)


_STEP = (
    update(runs)
    .where(
        runs.c.id == param("run"),
        runs.c.fence == param("held"),
        runs.c.status == RunStatus.RUNNING,
        runs.c.steps == param("before"),
    )
    .values(
        steps=runs.c.steps + 1,
        attempts=0,
        away_since=None,
        input_tokens=runs.c.input_tokens + param("read"),
        output_tokens=runs.c.output_tokens + param("written"),
        updated_at=param("now"),
        worked_ms=param("worked"),
    )
    .returning(runs)
)


def take_step(conn: Connection, run: Run, step: int, said: ModelAnswer, now: int) -> Run | None:
    """Counts this answer, and checks the fence too. Returns None when this step was committed before."""
    used = {"read": said.input_tokens, "written": said.output_tokens}
    held = {"run": run.id, "held": run.fence, "before": step, "now": now, "worked": run.worked_ms}
    row = conn.execute(_STEP, {**held, **used}).mappings().first()
    if row is None:
        current = get(conn, run.id)
        # Ours, and further than before this step: the commit had come through.
        if current.fence == run.fence and current.steps > step:
            return None
        raise LeaseLost(f"Run {run.id} was stopped or taken over.")
    if said.day:
        used_by = run.who or spending.NOBODY
        spending.add(conn, said.day, used_by, input_tokens=said.input_tokens, output_tokens=said.output_tokens)
    return Run.from_row(row)


def count_stopped(conn: Connection, run: Run, said: ModelAnswer) -> None:
    """The usage of an answer that was cut short by a stop."""
    read, written = runs.c.input_tokens + said.input_tokens, runs.c.output_tokens + said.output_tokens
    conn.execute(update(runs).where(runs.c.id == run.id).values(input_tokens=read, output_tokens=written))
    store.count_used(conn, run.session_id, said.input_tokens, said.output_tokens)
    if said.day:
        used_by = run.who or spending.NOBODY
        spending.add(conn, said.day, used_by, input_tokens=said.input_tokens, output_tokens=said.output_tokens)


def note_answer(conn: Connection, run: Run, said: ModelAnswer, new: Sequence[Message], now: int) -> None:
    """Appends the model's answer to the journal, and adds its tokens to the session's usage."""
    if not new:
        store.count_used(conn, run.session_id, said.input_tokens, said.output_tokens)
    used = store.AnswerCost(input_tokens=said.input_tokens, output_tokens=said.output_tokens, model=said.model or None)
    store.append(conn, run.session_id, new, now, used=used)
    if said.system_prompt is not None:
        store.keep_settings(conn, run.session_id, said.system_prompt, said.model_config)


def emit_status(conn: Connection, run: Run, status: RunStatus, now: int, *, error: str | None = None) -> None:
    data: dict[str, Any] = {"thread_id": run.thread_id, "status": status}
    if error is not None:
        data["error"] = error
    events.emit(conn, run, "run_status", data, now)


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


@dataclass(frozen=True, slots=True)
class RunEnded(Touch):
    """A run that was claimed only once, and so has asked nobody, has ended with an answer. `state`: what `call_state` would read of it now; other
    processes are not told it."""

    state: CallState = field(compare=False)


_ASKED = select(asks).where(asks.c.run_id == param("run"), asks.c.id > param("after")).order_by(asks.c.id).limit(1)
_SAID = (
    select(messages)
    .where(
        messages.c.session_id == param("session"), messages.c.run_id == param("run"), messages.c.role == Role.ASSISTANT
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
    return (None, 0) if row is None else (row.run_id, row.ask or 0)


def with_news(conn: Connection, queued: Sequence[str], followed: Sequence[str]) -> set[str]:
    """Returns those of these dedup keys whose message a run has taken, and those of these runs that are not worked on any more."""
    known = select(runs.c.id).where(runs.c.id.in_(followed), runs.c.status == RunStatus.RUNNING)
    taken = select(inbox_table.c.dedup_key).where(
        inbox_table.c.dedup_key.in_(queued), inbox_table.c.run_id.is_not(None)
    )
    running = set(conn.scalars(known)) if followed else set[str]()
    return (set(followed) - running) | (set(conn.scalars(taken)) if queued else set())


_UNREAD = select(inbox_table.c.id).where(inbox_table.c.session_key == param("key"), inbox_table.c.outcome.is_(None))
_OPEN_SESSION = select(sessions.c.id).where(sessions.c.session_key == param("key"), SESSION_OPEN)
_NEWEST_RUN = (
    select(messages.c.run_id)
    .where(messages.c.session_id == _OPEN_SESSION.scalar_subquery())
    .order_by(messages.c.id.desc())
    .limit(1)
)
_OF_NEWEST_RUN = select(inbox_table.c.id).where(inbox_table.c.run_id == _NEWEST_RUN.scalar_subquery())
_LAST_CALL = select(inbox_table).where(
    inbox_table.c.id
    == func.coalesce(
        *(
            found.order_by(inbox_table.c.id.desc()).limit(1).correlate(None).scalar_subquery()
            for found in (_UNREAD, _OF_NEWEST_RUN)
        )
    )
)


def last_call(conn: Connection, session_key: str) -> InboxRow | None:
    """Returns what was said last on this key: the newest message that waits, else what the newest run has taken in last."""
    row = conn.execute(_LAST_CALL, {"key": session_key}).mappings().first()
    return InboxRow.from_row(row) if row else None


_TEXTS = (
    select(messages.c.id, messages.c.content)
    .where(
        messages.c.session_id == param("session"), messages.c.run_id == param("run"), messages.c.role == Role.ASSISTANT
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
