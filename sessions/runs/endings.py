"""Ends runs: with an answer, with an error, or because somebody stopped them."""

from dataclasses import replace

from sqlalchemy import Connection, select, update

from sessions import asks, events, inbox, jobs, outbox, store
from sessions.db.engine import record_touch, touch
from sessions.db.schema import messages, runs
from sessions.db.sql import lock, param, storable
from sessions.messages import Content
from sessions.records import Message, MessageState, Role, Run, RunKind, RunStatus, StopReason
from sessions.runs import farewells
from sessions.runs.journal import (
    CallState,
    RunEnded,
    check_fence,
    close_call,
    count_stopped,
    emit_status,
    joining,
    new_messages,
    note_answer,
    open_calls,
    take_in,
    take_step,
)
from sessions.runs.queries import ACTIVE, ModelAnswer, get
from sessions.runs.waiting import close_card
from sessions.topics import Topic, Touch

STOPPED = "[stopped by the user]"


def finish(
    conn: Connection,
    run: Run,
    said: ModelAnswer,
    now: int,
    *,
    step: int,
    reply: Content | None = None,
    announces: str | None = None,
    reason: StopReason = StopReason.DONE,
) -> bool:
    """Commit the final message and, in the same transaction, what has to be sent. `reply` None: nothing is sent. `announces`: the session
    of whose reset the reply tells.

    True when the run is over. False when something came in meanwhile: that is taken in, and the run goes on.
    """
    lock(conn, run.session_key)
    if announces is not None:
        store.mark_announced(conn, announces)
    current = take_step(conn, run, step, said, now)
    if current is None:
        # Committed before; whether the run went on is seen from what became of it.
        return get(conn, run.id).status is not RunStatus.RUNNING
    final = Message(role=Role.ASSISTANT, content=said.text, run_id=run.id, token_count=said.output_tokens)
    # A farewell ends without words: only its tools leave something.
    is_silent = run.kind is RunKind.FAREWELL and not said.text
    note_answer(conn, run, said, [] if is_silent else [final], now)
    events.emit(conn, run, "message", {"role": "agent", "content": said.text}, now)
    if reply is not None:
        _reply(conn, current, reply, now, dedup_key=f"{run.id}:{step}:0")
    # In the same transaction as the end: no message can come in between and be left without a run.
    unread = (
        inbox.unread(conn, run.session_key) if reason is StopReason.DONE and run.kind is not RunKind.FAREWELL else None
    )
    waiting = joining(conn, current, unread) if unread else []
    if waiting:
        take_in(conn, current, waiting, now)
        return False
    if said.withheld:
        _note(conn, current, withheld=True)
    reason = StopReason.BUDGET if said.cut_off else reason
    told = None
    if run.fence == 1:  # whoever waits for the answer need not read it again
        ended = replace(current, status=RunStatus.COMPLETED, stop_reason=reason, withheld=said.withheld)
        shown = None if is_silent else replace(final, content=storable(said.text))
        told = RunEnded(Topic.RUN, run.id, CallState(run=ended, said=shown))
    more = None if unread is None else bool(unread)
    _end(conn, current, RunStatus.COMPLETED, now, reason=reason, more=more, told=told)
    return True


def _note(conn: Connection, run: Run, *, error_code: str | None = None, withheld: bool = False) -> None:
    """Stores how the run went, for callers: `Run.from_row` finds it beside the options."""
    noted = {name: value for name, value in {"error_code": error_code, "withheld": withheld}.items() if value}
    conn.execute(update(runs).where(runs.c.id == run.id).values(options=run.options.to_stored() | noted))


def _reply(conn: Connection, run: Run, reply: Content, now: int, *, dedup_key: str) -> None:
    if run.route is not None:
        outbox.put(conn, run.route, reply, now, dedup_key=dedup_key, session_key=run.session_key, run_id=run.id)


def hand_over(conn: Connection, run: Run, now: int) -> None:
    """Ends a run whose answer asks for tools of the caller. The calls stay open for the caller's next request."""
    check_fence(conn, run, now)
    _end(conn, run, RunStatus.COMPLETED, now, reason=StopReason.DONE)


def fail(
    conn: Connection,
    run: Run,
    error: str,
    now: int,
    *,
    notice: Content | None = None,
    announces: str | None = None,
    code: str | None = None,
) -> None:
    """Ends the run in error, with a line in the chat. What was said stays; the transcript stays valid. `announces`: as in `finish`. `code`:
    for callers.
    """
    lock(conn, run.session_key)
    check_fence(conn, run, now)
    if announces is not None:
        store.mark_announced(conn, announces)
    # What was said to this run would start the next one, which fails as this one did.
    take_in(conn, run, new_messages(conn, run), now)
    _close_all(conn, run, "[not done: the run ended with an error]", now)
    if notice is not None:
        # Read again: taking messages in may have moved the route to where the last one came from.
        _reply(conn, get(conn, run.id), notice, now, dedup_key=f"{run.id}:error")
    if code is not None:
        _note(conn, run, error_code=code)
    _end(conn, run, RunStatus.ERROR, now, error=error)


def stop(conn: Connection, run_id: str, now: int) -> bool:
    """Ends the run at once, whoever works on it: their next write fails. Unread messages stay in the conversation. Returns False when it
    was over.
    """
    session_key = get(conn, run_id).session_key
    lock(conn, session_key)
    run = get(conn, run_id)
    if run.status not in ACTIVE:
        return False
    take_in(conn, run, new_messages(conn, run), now)
    _close_all(conn, run, "[stopped by the user before it was done]", now)
    if (ask := asks.open_of(conn, run.id)) is not None:
        asks.close_open(conn, run.id, now)
        close_card(conn, run, ask, now)
    stopped = Message(role=Role.ASSISTANT, content=STOPPED, run_id=run.id)
    store.append(conn, run.session_id, [stopped], now)
    # Whoever works on it learns of the stop by its next write, which fails.
    conn.execute(update(runs).where(runs.c.id == run.id).values(fence=runs.c.fence + 1))
    _end(conn, run, RunStatus.COMPLETED, now, reason=StopReason.CANCELLED)
    touch(conn, Topic.STOPPED, run.id)
    return True


def keep_stopped(conn: Connection, run: Run, said: ModelAnswer, now: int, *, reply: Content | None = None) -> bool:
    """What was said of an answer until the run was stopped stays, marked as stopped, and is counted. False: it was taken back, or is
    here already."""
    lock(conn, run.session_key)
    marker = messages.c.session_id == run.session_id, messages.c.run_id == run.id, messages.c.content == STOPPED
    row = conn.scalar(select(messages.c.id).where(*marker, messages.c.role == Role.ASSISTANT))
    if row is None:
        return False
    count_stopped(conn, run, said)
    if said.text:
        store.rewrite(conn, row, f"{said.text}\n\n{STOPPED}", token_count=said.output_tokens)
        if reply is not None:
            _reply(conn, run, reply, now, dedup_key=f"{run.id}:stopped")
    return True


def _close_all(conn: Connection, run: Run, content: str, now: int) -> None:
    for call in open_calls(conn, run):
        # Some may have been at work: every call needs a result, or the next request would be refused by the model's endpoint.
        close_call(conn, run, call.id, content, now, state=MessageState.UNKNOWN)


_END = (
    update(runs)
    .where(runs.c.id == param("run"))
    .values(
        status=param("as"),
        stop_reason=param("reason"),
        error=param("because"),
        lease_owner=None,
        lease_until=None,
        updated_at=param("now"),
    )
)


def _end(
    conn: Connection,
    run: Run,
    status: RunStatus,
    now: int,
    *,
    reason: StopReason | None = None,
    error: str | None = None,
    more: bool | None = None,
    told: RunEnded | None = None,
) -> None:
    """`more`: whether unread messages wait for the next run of this key; None: it is looked for here. `told`: what those who listen get."""
    conn.execute(_END, {"run": run.id, "as": status, "reason": reason, "because": error, "now": now})
    emit_status(conn, run, status, now, error=error)
    record_touch(conn, told or Touch(Topic.RUN, run.id))
    if run.kind is RunKind.JOB:
        jobs.mark_ended(conn, run, status, now, reason=reason, error=error)
    if run.kind is RunKind.FAREWELL:
        farewells.stop_holding_up(conn, run)
    if inbox.count_unread(conn, run.session_key) if more is None else more:  # the next one of this key may start
        touch(conn, Topic.INBOX, run.session_key)
