"""Parks runs that wait for a person, and takes the answers.

Puts runs to sleep while their model is away. A run that is parked or sleeps is only a row: it has no task and no lease.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, Text, and_, cast, exists, or_, select, update

from sessions import asks, events, inbox, outbox, people, store
from sessions.db.engine import record_touch, touch
from sessions.db.schema import MESSAGE_OPEN, RUN_ACTIVE, RUN_RUNNING, messages, runs, sessions
from sessions.db.schema import asks as asks_table
from sessions.db.schema import outbox as outbox_table
from sessions.db.sql import lock, param
from sessions.errors import MayNotApprove, NotFound
from sessions.messages import Content
from sessions.records import Ask, AskKind, InboxKind, InboxMode, InboxOutcome, Message, Route, Run, RunKind, RunStatus
from sessions.runs import farewells
from sessions.runs.journal import check_fence, close_call, emit_status, new_messages
from sessions.runs.queries import LONGEST_SLEEP_MS, get, is_time
from sessions.topics import RunStarted, Topic

FILES = "[files that came with the answer]"
SOMEBODY = "person"
_ONCE_MORE = ":again"


def park(
    conn: Connection,
    run: Run,
    call: Message,
    question: str,
    now: int,
    *,
    options: Sequence[str] = (),
    kind: AskKind = AskKind.QUESTION,
    args_hash: str | None = None,
    card: Content | None = None,
    announces: str | None = None,
    held_up: Content | None = None,
) -> bool:
    """Sleep as a row until a human answers: no task, no lease. False while something is unread, which may be the answer already.

    `card` is what is sent to the chat; `{ask}` in the data of its buttons becomes the number of the ask. `announces`: as in `finish`.
    `held_up`: what the senders of unread messages from other places are told, which are taken in when the run no longer waits.
    """
    lock(conn, run.session_key)
    check_fence(conn, run, now)
    # Parked now, the run would take the answer for something that came before the question.
    if new_messages(conn, run):
        return False
    if announces is not None:
        store.mark_announced(conn, announces)
    ask = asks.put(
        conn, run.id, call.tool_call_id or "", question, now, options=options, kind=kind, args_hash=args_hash
    )
    conn.execute(
        update(runs)
        .where(runs.c.id == run.id)
        .values(status=RunStatus.WAITING, lease_owner=None, lease_until=None, attempts=0, updated_at=now)
    )
    if run.route is not None and card is not None:
        outbox.put(
            conn,
            # Messages that were taken in may have moved it.
            get(conn, run.id).route or run.route,
            card.for_ask(ask.id),
            now,
            dedup_key=_card_key(run, ask),
            session_key=run.session_key,
            run_id=run.id,
        )
    data = {"request_id": str(ask.id), "kind": kind, "question": question, "options": list(options)}
    events.emit(conn, run, "steering_request", data, now)
    emit_status(conn, run, RunStatus.WAITING, now)
    touch(conn, Topic.RUN, run.id)
    # Takes the next queued call as the answer; it would wait for ever otherwise. It was sent before the question, so it approves nothing.
    waiting = inbox.unread(conn, run.session_key)
    row = next((row for row in waiting if row.kind is InboxKind.MESSAGE and row.run_id is None), None)
    if row is not None and row.mode is InboxMode.QUEUE and people.same_place(conn, run.route, row.route):
        answer_with_row(conn, get(conn, run.id), row.id, row.messages, row.dedup_key, now, approved=False)
    for each in waiting:
        if held_up is not None and each.route is not None and not people.same_place(conn, run.route, each.route):
            tell_held_up(conn, each.session_key, each.route, each.dedup_key, held_up, now)
    return True


def answer(
    conn: Connection,
    run_id: str,
    text: str,
    by: str,
    now: int,
    *,
    ask_id: int | None = None,
    approved: bool | None = None,
    who: str | None = None,
) -> bool:
    """Stores a human's answer and lets the run go on. Returns False when the run does not wait (any more), or for another ask.
    `approved`, `who`: see `asks.answer`.
    """
    session_key = get(conn, run_id).session_key
    lock(conn, session_key)
    run = get(conn, run_id)
    ask = asks.open_of(conn, run_id)
    if run.status is not RunStatus.WAITING or ask is None or (ask_id is not None and ask.id != ask_id):
        return False
    answer_waiting(conn, run, text, by, now, approved=approved, who=who)
    return True


def answer_with_row(
    conn: Connection,
    run: Run,
    row_id: int,
    sent: Sequence[Message],
    dedup_key: str,
    now: int,
    *,
    approved: bool | None = None,
    by: str = "",
    who: str | None = None,
) -> None:
    """Takes a message that came in as the answer. Its files follow as a message of their own."""
    text, by = "\n".join(message.content or "" for message in sent), (sent[-1].sender if sent else "") or by
    ask = asks.open_of(conn, run.id)
    if run.route is None and ask is not None and text not in ask.options:
        text = ask.numbered.get(text.strip(), text)  # in a terminal and over HTTP the options are shown with numbers
    ask_id = answer_waiting(conn, run, text or FILES, by, now, approved=approved, who=who)
    files = [replace(message, content=FILES) for message in sent if message.attachments]
    if files:
        inbox.keep_for(conn, row_id, run.id, ask_id, files)
    else:
        inbox.close(conn, row_id, InboxOutcome.ANSWERED, run.id, ask=ask_id)
    record_touch(conn, RunStarted.by(dedup_key, run.id, ask_id=ask_id))


def may_answer(conn: Connection, run: Run, route: Route | None) -> bool:
    """Returns whether a message from there is the answer. Nobody approves by a word what they cannot have read yet."""
    if run.status is not RunStatus.WAITING or not people.same_place(conn, run.route, route):
        return False
    ask = asks.open_of(conn, run.id)
    is_unseen = run.route is not None and ask is not None and not card_names(conn, run, ask)
    return ask is not None and not (ask.kind is AskKind.APPROVAL and is_unseen)


def require_no_approval(conn: Connection, run: Run) -> None:
    """Raises MayNotApprove when the run waits for an approval. To be called for somebody who may not give it."""
    ask = asks.open_of(conn, run.id)
    if ask is not None and ask.kind is AskKind.APPROVAL:
        raise MayNotApprove(asks.about(ask))


def tell_held_up(conn: Connection, session_key: str, route: Route, dedup_key: str, body: Content, now: int) -> None:
    """Tells the sender of this message, once, that it waits for the answer to a question that was asked elsewhere."""
    outbox.put(conn, route, body, now, dedup_key=f"held_up:{dedup_key}", session_key=session_key)


def card_names(conn: Connection, run: Run, ask: Ask) -> list[str]:
    """Returns the platform's ids of the messages of this question's card, as far as they have arrived."""
    key, dedup = _card_key(run, ask), outbox_table.c.dedup_key
    # The pieces of a card and its reminders; a range, since “;” follows “:”, uses the index where LIKE may not.
    under = or_(dedup == key, and_(dedup >= f"{key}:", dedup < f"{key};"))
    found = conn.scalars(select(outbox_table.c.platform_ids).where(under, outbox_table.c.platform_ids.is_not(None)))
    return [names[0] for names in found]


def answer_waiting(
    conn: Connection, run: Run, answer: str, by: str, now: int, *, approved: bool | None = None, who: str | None = None
) -> int:
    """Returns the number of the ask that this has answered."""
    ask = asks.open_of(conn, run.id)
    if ask is None:
        raise NotFound(f"Run {run.id} waits for nothing.")
    asks.answer(conn, ask, answer, by, now, approved=approved, who=who)
    close_card(conn, run, ask, now)
    row = conn.execute(
        select(messages.c.id)
        .where(
            messages.c.session_id == run.session_id,
            messages.c.run_id == run.id,
            messages.c.tool_call_id == ask.tool_call_id,
        )
        .where(MESSAGE_OPEN)
    ).scalar()
    if row is not None and ask.kind is AskKind.QUESTION:  # an approval only lets the call go on
        close_call(conn, run, row, answer, now)
        if not _is_option(ask, answer) and answer != FILES:  # whoever writes freely may answer, or say something new
            # A sender on the result makes the prompt say “The person wrote: …” instead of showing it as an answer.
            conn.execute(update(messages).where(messages.c.id == row).values(sender=by or SOMEBODY))
    conn.execute(
        update(runs)
        .where(runs.c.id == run.id)
        .values(status=RunStatus.RUNNING, lease_owner=None, lease_until=None, updated_at=now)
    )
    # An answer counts as speaking, so the idle reset begins anew.
    conn.execute(update(sessions).where(sessions.c.id == run.session_id).values(last_user_at=now))
    emit_status(conn, run, RunStatus.RUNNING, now)
    touch(conn, Topic.INBOX, run.session_key)
    return ask.id


def _is_option(ask: Ask, answer: str) -> bool:
    said = answer.partition("] ")[2] if answer.startswith("[") else answer  # in groups, words begin with whose they are
    return answer in ask.options or said in ask.options


def close_card(conn: Connection, run: Run, ask: Ask, now: int) -> None:
    """Puts the edit into the outbox that removes the card's buttons."""
    if ask.options:
        outbox.follow(conn, _card_key(run, ask), ask.id, now)


def unanswered(conn: Connection, before: int) -> list[tuple[Run, Ask]]:
    """Returns the asks that have waited since before that time, and were not repeated."""
    waiting = select(runs.c.id).where(RUN_ACTIVE, runs.c.status == RunStatus.WAITING)
    key = asks_table.c.run_id + ":ask:" + cast(asks_table.c.id, Text) + _ONCE_MORE
    rows = conn.execute(
        select(asks_table)
        .where(asks_table.c.run_id.in_(waiting), asks_table.c.answered_at.is_(None), asks_table.c.created_at < before)
        .where(~exists().where(outbox_table.c.dedup_key == key))
        .order_by(asks_table.c.id)
    ).mappings()
    return [(get(conn, ask.run_id), ask) for ask in map(Ask.from_row, rows)]


def remind(
    conn: Connection, run: Run, ask: Ask, body: Content, now: int, *, route: Route | None = None, why: str = ""
) -> None:
    """Sends the question again, once for each reason; not when it was answered in the meantime."""
    to, open_now = route or run.route, asks.open_of(conn, run.id)
    if to is not None and open_now is not None and open_now.id == ask.id:
        key = f"{_card_key(run, ask)}{f':{why}' if why else _ONCE_MORE}"
        outbox.put(conn, to, body, now, dedup_key=key, session_key=run.session_key)


def _card_key(run: Run, ask: Ask) -> str:
    return f"{run.id}:ask:{ask.id}"


def is_asleep(run: Run, now: int) -> bool:
    """Returns whether the run waits for its model, and nobody works on it."""
    return run.status is RunStatus.RUNNING and run.away_since is not None and not is_time(run.wake_at, now)


_SLEEP = update(runs).where(runs.c.id == param("run"))


def sleep(
    conn: Connection,
    run: Run,
    now: int,
    *,
    wake_at: int,
    model: str | None,
    notice: Content | None = None,
    attempts: int = 0,
) -> None:
    """Puts the run to sleep until this model (None: the configured one) can be reached. The chat gets `notice` the first time only, until
    the model has answered again. `attempts`: a run that waits for its model takes no process down, so interruptions are counted anew.
    """
    lock(conn, run.session_key)
    check_fence(conn, run, now)
    current = get(conn, run.id)
    since = now if current.away_since is None else current.away_since
    # Not for longer, whatever the endpoint asks for: `is_time` takes a later time for a clock that was set back.
    changed = {
        "wake_at": min(wake_at, now + LONGEST_SLEEP_MS),
        "away_since": since,
        "away_model": model,
        "attempts": attempts,
    }
    conn.execute(_SLEEP.values(**changed, lease_owner=None, lease_until=None), {"run": run.id})
    # The person's next message must not wait for a model that is away.
    if run.kind is RunKind.FAREWELL:
        farewells.stop_holding_up(conn, run)
    if current.away_since is None and notice is not None and current.route is not None:
        # One notice for each absence, also when this transaction is repeated.
        key = f"{run.id}:away:{since}"
        outbox.put(conn, current.route, notice, now, dedup_key=key, session_key=run.session_key, run_id=run.id)


def wake(conn: Connection, run: Run, now: int) -> bool:
    """Lets the run try its model at once, because a person wants it; the chat is told again if that fails. Returns False when it does not
    sleep.
    """
    if not is_asleep(run, now):
        return False
    conn.execute(_SLEEP.values(wake_at=None, away_since=None, away_model=None), {"run": run.id})
    touch(conn, Topic.INBOX, run.session_key)
    return True


def wake_all(conn: Connection, model: str | None) -> int:
    """Wakes all runs that sleep because of this model, which has answered. Returns how many."""
    is_it = runs.c.away_model.is_(None) if model is None else runs.c.away_model == model
    asleep = and_(RUN_RUNNING, runs.c.away_since.is_not(None), runs.c.wake_at.is_not(None), is_it)
    return conn.execute(update(runs).where(asleep).values(wake_at=None)).rowcount
