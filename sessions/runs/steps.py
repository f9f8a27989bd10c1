"""The steps of a run that goes on: an answer, results of tools, messages that came meanwhile. Each is one transaction, checks the fence, and may be repeated after an ambiguous commit."""

from collections.abc import Sequence

from sqlalchemy import Connection, exists, select, update

from sessions import events
from sessions.db.engine import touch
from sessions.db.schema import RUN_SHOWN, messages, outbox, runs
from sessions.db.sql import lock, param
from sessions.records import Message, MessageState, OutState, Role, Run
from sessions.runs.journal import check_fence, close_call, new_messages, note_answer, open_calls, take_in, take_step
from sessions.runs.queries import ModelAnswer
from sessions.topics import Topic


def take_in_new_messages(conn: Connection, run: Run, now: int, *, claimed_now: bool = False) -> int:
    """Makes new messages of this chat and thread user messages of this run, in order. Returns how many. `claimed_now`: in this transaction."""
    lock(conn, run.session_key)
    rows = new_messages(conn, run)
    if rows and not claimed_now:
        check_fence(conn, run, now)
    return len(take_in(conn, run, rows, now))


def answered(conn: Connection, run: Run, said: ModelAnswer, now: int, *, step: int) -> list[Message]:
    """Commits an answer that goes on with tools: the assistant's message, and a pending row for each call. `step` is the number of steps
    before this one. Returns the rows of the calls."""
    # This step is committed already: the commit came through, and only its confirmation was lost.
    if take_step(conn, run, step, said, now) is None:
        return open_calls(conn, run)
    assistant = Message(
        role=Role.ASSISTANT,
        content=said.text,
        run_id=run.id,
        tool_calls=[dict(call) for call in said.tool_calls],
        token_count=said.output_tokens,
    )
    calls = [
        Message(
            role=Role.TOOL,
            run_id=run.id,
            tool_call_id=str(call["id"]),
            tool_name=str(call["function"]["name"]),
            state=MessageState.PENDING,
            # Not the id of the call: some models use the same ids in every answer.
            idem_key=f"{run.id}:{step}:{number}",
        )
        for number, call in enumerate(said.tool_calls)
    ]
    note_answer(conn, run, said, [assistant, *calls], now)
    touch(conn, Topic.STEP, run.id)
    for call in said.tool_calls:
        function = call["function"]
        data = {"tool_call_id": call["id"], "name": function["name"], "arguments": function["arguments"]}
        events.emit(conn, run, "tool_call", data, now)
    return open_calls(conn, run)


def tool_started(conn: Connection, run: Run, message_id: int, now: int) -> None:
    """Marks the call as started. After a crash it is unknown whether the tool did its work."""
    check_fence(conn, run, now)
    conn.execute(update(messages).where(messages.c.id == message_id).values(state=MessageState.STARTED))


def tool_done(
    conn: Connection, run: Run, message_id: int, content: str, now: int, *, state: MessageState = MessageState.DONE
) -> None:
    """Commits the result: this call is never executed again."""
    check_fence(conn, run, now)
    close_call(conn, run, message_id, content, now, state=state)
    # Progress: interruptions are counted anew.
    conn.execute(update(runs).where(runs.c.id == run.id).values(attempts=0))
    touch(conn, Topic.STEP, run.id)


_KEEP = update(runs).where(runs.c.id == param("run")).values(preview=param("name"))
_KEEP_ALL = _KEEP.values(noted=param("read"))


def keep_preview(conn: Connection, run_id: str, name: str | None) -> None:
    """Stores the id of the preview; None: there is none any more, or it is the answer now."""
    conn.execute(_KEEP, {"run": run_id, "name": name})


def keep_shown(conn: Connection, run_id: str, preview: str | None, noted: Sequence[str]) -> None:
    """Stores the preview, and the ids of the messages that were marked as read (`noted`)."""
    conn.execute(_KEEP_ALL, {"run": run_id, "name": preview, "read": list(noted) or None})


def still_shown(conn: Connection) -> list[Run]:
    """Returns runs of which a chat may still show something; not where the answer is undelivered, because it may have replaced the
    preview.
    """
    dead = exists().where(outbox.c.run_id == runs.c.id, outbox.c.state == OutState.DEAD)
    return [Run.from_row(row) for row in conn.execute(select(runs).where(RUN_SHOWN, ~dead)).mappings()]
