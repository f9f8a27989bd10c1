"""Admits a message: it starts a run, joins the active run, or answers the question for which that run waits."""

from dataclasses import replace

from sqlalchemy import Connection, insert

from sessions import ids, inbox, jobs, resets, spending, store
from sessions.clock import iso
from sessions.db.engine import record_touch, touch
from sessions.db.schema import runs
from sessions.db.sql import lock
from sessions.keys import SessionKey
from sessions.records import (
    CallOptions,
    EndReason,
    InboxKind,
    InboxMode,
    InboxRow,
    Route,
    Run,
    RunKind,
    RunStatus,
    Session,
    Source,
)
from sessions.runs.journal import emit_status
from sessions.runs.queries import Accepted, Opening, active, get
from sessions.runs.waiting import answer_with_row, may_answer, require_no_approval
from sessions.topics import RunStarted, Topic


def source_of(key: SessionKey) -> str:
    return Source.API if key.scope == "response" else key.platform or key.scope


def open_session(conn: Connection, key: SessionKey, opening: Opening, now: int) -> Session:
    """Returns the active session of this key, or a new one."""
    session_key = str(key)
    lock(conn, session_key)  # two at once must not both open one
    found = store.active(conn, session_key)
    if found is not None:
        return found
    former = store.last_ended(conn, session_key)
    # After /new nobody has to be told that the conversation is a new one.
    was_reset = former is not None and former.end_reason in {EndReason.IDLE, EndReason.DAILY}
    # A terminal's key holds the id of its session. After /new a session of that id exists, and the next one needs another.
    own_id = key.chat_id if key.scope == Source.CLI else None
    return store.start(
        conn,
        key,
        now,
        source=source_of(key),
        session_id=own_id if own_id is not None and not store.exists(conn, own_id) else None,
        user_id=opening.user_id,
        model=opening.model,
        ns=opening.ns,
        announces=former.id if former is not None and was_reset else None,
    )


def accept(
    conn: Connection,
    new: InboxRow,
    opening: Opening,
    now: int,
    *,
    answers: bool = True,
    may_approve: bool = True,
    by: str = "",
) -> Accepted:
    """Stores a message, which is safe once this has committed. It starts a run, joins the active one, or answers the question that this
    waits with. `by`: who answers, where the message does not name its sender.
    """
    lock(conn, new.session_key)
    current = active(conn, new.session_key)
    if current is None and new.mode is InboxMode.TAKE_IN:
        # What came from another thread while the last run was at work is older: its run comes first.
        current = start_for_oldest(conn, new.session_key, replace(opening, user_id=None, wait_ms=0), now)
    # The id is made before the row, so that one insert stores both.
    starts = ids.new_id("run") if current is None and new.mode is InboxMode.TAKE_IN else None
    row_id = inbox.put(conn, new, now, run_id=starts)
    if row_id is None:
        row = inbox.by_dedup_key(conn, new.dedup_key)
        if row is None:
            return Accepted(fresh=False, run_id=None)
        run_id = row.run_id
        if run_id is None and row.mode is InboxMode.TAKE_IN:  # it is on its way into the run that is active
            run_id = getattr(active(conn, row.session_key), "id", None)
        status = get(conn, run_id).status if run_id else None
        return Accepted(fresh=False, run_id=run_id, status=status, fingerprint=row.fingerprint)
    touch(conn, Topic.INBOX, new.session_key)
    if new.who:
        spending.add(conn, iso(now)[:10], new.who, messages=1)
    if current is not None and new.kind is InboxKind.MESSAGE and answers and may_answer(conn, current, new.route):
        if not may_approve:
            require_no_approval(conn, current)
        answer_with_row(conn, current, row_id, new.messages, new.dedup_key, now, by=by, who=new.who)
        return Accepted(fresh=True, run_id=current.id, status=RunStatus.RUNNING)
    # Its turn comes when the worker claims this key: a queued call joins nobody.
    if new.mode is InboxMode.QUEUE:
        return Accepted(fresh=True, run_id=None)
    if current is not None:
        return Accepted(fresh=True, run_id=current.id, joined=True, status=current.status)
    # Before the session is looked up: a reset that is due ends it, and this message belongs to the next one.
    wait = max(opening.wait_ms, resets.before_message(conn, new.session_key, opening, now, now))
    session = open_session(conn, SessionKey.parse(new.session_key), opening, now)
    opening = replace(opening, wait_ms=wait)
    options = opening.options.over(new.options)
    begun = start(conn, session, opening, new.route, options, now, run_id=starts, who=new.who)
    return Accepted(fresh=True, run_id=begun.id, status=begun.status)


_START = insert(runs).returning(runs)


def start(
    conn: Connection,
    session: Session,
    opening: Opening,
    route: Route | None,
    options: CallOptions,
    now: int,
    *,
    run_id: str | None = None,
    who: str | None = None,
) -> Run:
    values = {
        "id": run_id or ids.new_id("run"),
        "session_id": session.id,
        "session_key": session.session_key,
        "kind": opening.kind,
        "status": RunStatus.RUNNING,
        "wake_at": now + opening.wait_ms if opening.wait_ms else None,
        "route": route,
        "options": options.to_stored() or None,
        "deployment": opening.deployment,
        "thread_id": opening.thread_id,
        "who": who,
        "created_at": now,
        "updated_at": now,
    }
    run = Run.from_row(conn.execute(_START, values).mappings().one())
    emit_status(conn, run, RunStatus.RUNNING, now)
    return run


def start_for_oldest(conn: Connection, session_key: str, opening: Opening, now: int) -> Run | None:
    """Starts a run for the oldest message that waits for this key, which must have no active run. None: nothing waits."""
    waiting = inbox.unread(conn, session_key)
    if not waiting:
        return None
    first, key = waiting[0], SessionKey.parse(session_key)
    kind = RunKind.CALL if first.mode is InboxMode.QUEUE else opening.kind
    kind = RunKind.JOB if first.kind is InboxKind.JOB else kind
    wait = 0 if kind is RunKind.JOB else resets.before_message(conn, session_key, opening, first.created_at, now)
    if key.scope == Source.THREAD:
        opening = replace(opening, deployment=key.deployment, thread_id=key.chat_id)
    # A job keeps the namespace in which it was made, whatever its chat uses now.
    if kind is RunKind.JOB and (job := jobs.job_of_row(conn, first.dedup_key)) is not None:
        opening = replace(opening, ns=job.ns, deployment=job.deployment, thread_id=job.thread_id)
    session = open_session(conn, key, opening, now)
    opening = replace(opening, kind=kind, wait_ms=wait)
    run = start(conn, session, opening, first.route, opening.options.over(first.options), now, who=first.who)
    inbox.assign(conn, first.id, run.id)
    if kind is RunKind.JOB:
        jobs.mark_started(conn, first.dedup_key, run.id, now)
    record_touch(conn, RunStarted.by(first.dedup_key, run.id))
    return run


def start_again(
    conn: Connection, session: Session, opening: Opening, route: Route | None, now: int, *, who: str = ""
) -> Run:
    """Starts a run over what the session holds already, without a new message; for `who` it counts as one. The key must have no active run."""
    if who:
        spending.add(conn, iso(now)[:10], who, messages=1)
    run = start(conn, session, opening, route, opening.options, now, who=who or None)
    touch(conn, Topic.INBOX, session.session_key)
    return run
