"""Commands about the work in progress and the model: status, stop, approve, deny, model, usage."""

from collections.abc import Iterator

from sqlalchemy import Connection

from gateway.agent.models.practice import NAME as PRACTICE
from gateway.commands.base import CommandContext, current, label
from gateway.texts import say
from gateway.texts.times import format_duration, format_short_time
from sessions import asks, runs, store, workers
from sessions.keys import OWNER_NAMESPACE
from sessions.policy import next_reset
from sessions.records import AskKind, Run, RunStatus, Session
from sessions.workers import WorkerState


def stop(conn: Connection, chat: CommandContext, _: str) -> str:
    active = runs.active(conn, chat.session_key)
    if active is None or not runs.stop(conn, active.id, chat.now):
        return say("run.nothing_to_stop")
    return say("run.stopped")


def status(conn: Connection, chat: CommandContext, _: str) -> str:
    active = runs.active(conn, chat.session_key)
    if active is not None:
        return _busy(conn, chat, active)
    session = current(conn, chat)
    if session is None:
        return "\n".join([say("status.fresh"), *_for_the_owner(conn, chat)])
    since = format_short_time(session.started_at, chat.now, chat.timezone)
    messages = _counted(session.message_count, "status.messages_one", "status.messages_other")
    title, reset = label(conn, session), _next_reset(chat, session)
    if reset is None:
        ready = say("status.ready", title=title, since=since, messages=messages)
    else:
        ready = say("status.idle", title=title, since=since, messages=messages, reset=reset)
    return "\n".join([ready, *_for_the_owner(conn, chat)])


def _for_the_owner(conn: Connection, chat: CommandContext) -> Iterator[str]:
    """Yields the alerts of the gateway, for the owner only."""
    if chat.key.namespace != OWNER_NAMESPACE:
        return
    for row in workers.everyone(conn):
        # A worker that is gone cannot take its alerts back.
        if row.state_at(chat.now) is WorkerState.READY:
            yield from row.report.get("alerts", ())


def _next_reset(chat: CommandContext, session: Session) -> str | None:
    """Returns when the conversation is reset if nobody writes before; None: it is not."""
    policy, last = chat.opening.reset, session.last_user_at
    if policy is None or last is None or (moment := next_reset(last, policy, chat.now)) is None:
        return None
    return format_short_time(moment, chat.now, chat.timezone) if moment > chat.now else say("status.with_next")


def _busy(conn: Connection, chat: CommandContext, run: Run) -> str:
    if run.status is RunStatus.WAITING:
        ask = asks.open_of(conn, run.id)
        return say("ask.waiting", question=ask.question if ask else "")
    if runs.is_asleep(run, chat.now):
        return say("status.asleep", when=format_short_time(run.wake_at or chat.now, chat.now, chat.timezone))
    working = format_duration((chat.now - run.created_at) / 1000)
    open_calls = runs.open_calls(conn, run)
    what = say("status.tool", tool=open_calls[0].tool_name) if open_calls else say("status.thinking")
    return say("status.busy", for_=working, step=run.steps + 1, what=what)


def approve(conn: Connection, chat: CommandContext, _: str) -> str:
    return _decide(conn, chat, "yes", approved=True)


def deny(conn: Connection, chat: CommandContext, reason: str) -> str:
    return _decide(conn, chat, reason or "no", approved=False)


def _decide(conn: Connection, chat: CommandContext, answer: str, *, approved: bool) -> str:
    active = runs.active(conn, chat.session_key)
    ask = asks.open_of(conn, active.id) if active else None
    if active is None or ask is None or ask.kind is not AskKind.APPROVAL:
        return say("ask.nothing")
    runs.answer(conn, active.id, answer, chat.user, chat.now, ask_id=ask.id, approved=approved)
    return say(
        "ask.approved_by" if approved else "ask.denied_by",
        who=chat.user,
        when=format_short_time(chat.now, chat.now, chat.timezone),
    )


def model(conn: Connection, chat: CommandContext, name: str) -> str:
    if not name:
        session = current(conn, chat)
        chosen = session.chosen_model if session is not None else None
        if chosen and chat.default_model == PRACTICE:
            return say("model.practice_now", name=chosen)
        return say("model.current", name=chosen or chat.default_model)
    session = runs.open_session(conn, chat.key, chat.opening, chat.now)
    # The default is stored as none, so that the session follows the configuration when that is changed.
    chosen = None if name in {"default", chat.default_model} else name
    store.choose_model(conn, session.id, chosen)
    if chosen and chat.default_model == PRACTICE:
        return say("model.practice", name=chosen)
    return say("model.changed", name=chosen or chat.default_model)


def usage(conn: Connection, chat: CommandContext, _: str) -> str:
    session = current(conn, chat)
    if session is None:
        return say("status.fresh")
    return say(
        "status.usage",
        messages=_counted(session.message_count, "status.messages_one", "status.messages_other"),
        calls=_counted(session.tool_call_count, "status.calls_one", "status.calls_other"),
        input=f"{session.input_tokens:,}",
        output=f"{session.output_tokens:,}",
    )


def _counted(number: int, one: str, other: str) -> str:
    return say(one) if number == 1 else say(other, count=number)
