"""Questions to people, and their answers, as rows. They wait as long as it takes. Whether an answer in words means yes is decided here."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from sessions import audit
from sessions.db.schema import asks
from sessions.records import Ask, AskKind

_YES = frozenset(
    ["yes", "y", "ok", "okay", "sure", "yep", "yeah", "approve", "approved", "allow", "fine", "go", "go ahead", "go on"]
)
_YES_PLEASE = frozenset(["do it", "yes please", "please do", "all right", "alright"])


def put(
    conn: Connection,
    run_id: str,
    tool_call_id: str,
    question: str,
    now: int,
    *,
    options: Sequence[str],
    kind: AskKind,
    args_hash: str | None,
) -> Ask:
    values = {
        "run_id": run_id,
        "tool_call_id": tool_call_id,
        "kind": kind,
        "question": question,
        "options": list(options),
        "args_hash": args_hash,
        "created_at": now,
    }
    # A call that has changed since is asked about anew, under another number: the former buttons decide nothing.
    conn.execute(delete(asks).where(*_of(run_id, tool_call_id)))
    conn.execute(insert(asks), values)
    found = of_call(conn, run_id, tool_call_id)
    assert found is not None  # noqa: S101  # it was written two lines above
    return found


def _of(run_id: str, tool_call_id: str) -> tuple[ColumnElement[bool], ...]:
    return asks.c.run_id == run_id, asks.c.tool_call_id == tool_call_id


def get(conn: Connection, ask_id: int) -> Ask | None:
    row = conn.execute(select(asks).where(asks.c.id == ask_id)).mappings().first()
    return Ask.from_row(row) if row else None


def of_call(conn: Connection, run_id: str, tool_call_id: str) -> Ask | None:
    row = conn.execute(select(asks).where(*_of(run_id, tool_call_id))).mappings().first()
    return Ask.from_row(row) if row else None


def of_run(conn: Connection, run_id: str) -> list[Ask]:
    """Returns the questions of a run, answered or not, in the order in which they were asked."""
    query = select(asks).where(asks.c.run_id == run_id).order_by(asks.c.id)
    return [Ask.from_row(row) for row in conn.execute(query).mappings()]


def open_of(conn: Connection, run_id: str) -> Ask | None:
    """The question that the run waits with now, or None."""
    query = (
        select(asks).where(asks.c.run_id == run_id, asks.c.answered_at.is_(None)).order_by(asks.c.id.desc()).limit(1)
    )
    row = conn.execute(query).mappings().first()
    return Ask.from_row(row) if row else None


def answer(
    conn: Connection, ask: Ask, text: str, by: str, now: int, *, approved: bool | None = None, who: str | None = None
) -> None:
    """Stores the answer. `by`: the name that people read. `who`: the same person in the audit, where that is another text. `approved`: the
    decision about an approval; None: the text decides."""
    if ask.kind is AskKind.QUESTION:
        approved = None
    elif approved is None:
        approved = says_yes(text)
    if ask.kind is AskKind.APPROVAL:
        action = "approval.approved" if approved else "approval.denied"
        audit.record(conn, now, who or by, action, about(ask), ask.tool, once=f"{about(ask)}:decided")
    conn.execute(
        update(asks)
        .where(asks.c.id == ask.id, asks.c.answered_at.is_(None))
        .values(answered_at=now, answer=text, answered_by=by, approved=approved)
    )


def refuse(conn: Connection, ask: Ask, by: str, why: str, now: int) -> None:
    """Records that somebody tried to decide what they may not, or cannot any more."""
    if ask.kind is AskKind.APPROVAL:
        audit.record(conn, now, by, "approval.refused", about(ask), why)


def about(ask: Ask) -> str:
    """Returns how the audit names this question."""
    return f"ask:{ask.id}"


def says_yes(text: str) -> bool:
    """True only when the message is nothing but a word for yes."""
    return text.strip().strip(".! ").casefold() in _YES | _YES_PLEASE


def close_open(conn: Connection, run_id: str, now: int) -> None:
    """Closes the questions of a run that has ended: nobody can answer them any more."""
    conn.execute(update(asks).where(asks.c.run_id == run_id, asks.c.answered_at.is_(None)).values(answered_at=now))
