"""One consistent read of everything that the next step of a run depends on."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from gateway.runs.farewell import with_request
from gateway.runs.history import JournalTails
from gateway.runs.memory_views import MemoryViews, Remembered
from sessions import memory, runs, spending, store
from sessions.records import Message, Run, RunKind, Session
from sessions.runs import farewells


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`folded_to`: messages up to this one are in notes and digest; `older`: how many before `history` are not. `spent`: the tokens in
    and out of the day, where they are limited. `former`: the session before this one, if it was reset and the chat has not been told;
    `former_notes`: how many notes its farewell has saved. `has_past`: an earlier session of this key has ended."""

    run: Run
    session: Session
    calls: Sequence[Message]
    unread: bool
    history: Sequence[Message]
    folded_to: int
    older: int
    remembered: Remembered
    spent: tuple[int, int]
    former: Session | None = None
    former_notes: int = 0
    has_past: bool = False


def take_snapshot(conn: Connection, run_id: str, day: str, tails: JournalTails, views: MemoryViews) -> Snapshot:
    """Reads the snapshot. `day`: the day whose tokens are counted; empty: nothing is limited by the day."""
    run = runs.get(conn, run_id)
    session = store.get(conn, run.session_id)
    # Only a chat is told of a reset, and only above an answer that is sent there.
    tells = run.kind is RunKind.CHAT and run.route is not None
    former = store.announced_by(conn, session.id) if tells else None
    history = tails.history(conn, run)
    folded_to = memory.folded_to(conn, session.id)
    first = history[0].id if history else 0
    # Counted only where it can be more than none: most sessions fit into the history as a whole.
    before = max(0, session.message_count - len(history)) if first > folded_to else 0
    older = memory.count_unfolded(conn, session.id, before=first) if before and folded_to else before
    return Snapshot(
        run=run,
        session=session,
        calls=runs.open_calls(conn, run),
        unread=bool(runs.new_messages(conn, run)),
        history=with_request(history, run) if run.kind is RunKind.FAREWELL else history,
        folded_to=folded_to,
        older=older,
        remembered=views.of(conn, session.ns),
        spent=spending.of_day(conn, day) if day else (0, 0),
        former=former,
        former_notes=farewells.notes_saved(conn, former.id) if former is not None else 0,
        has_past=store.has_ended(conn, session.session_key),
    )
