"""One consistent read of everything that the next step of a run depends on."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from gateway.runs.farewell import is_farewell, with_request
from sessions import memory, runs, spending, store
from sessions.records import Message, Observation, Role, Run, RunKind, Session
from sessions.runs import farewells

HISTORY = 48
MOST = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`spent`: the tokens in and out of the day, where they are limited. `former`: the session before this one, if it was reset and the
    chat has not been told; `former_saved`: its farewell was given."""

    run: Run
    session: Session
    calls: Sequence[Message]
    unread: bool
    history: Sequence[Message]
    notes: Sequence[str]
    spent: tuple[int, int]
    former: Session | None = None
    former_saved: bool = False


def take_snapshot(conn: Connection, run_id: str, day: str) -> Snapshot:
    """`day` empty: nothing is limited by the day."""
    run = runs.get(conn, run_id)
    session = store.get(conn, run.session_id)
    tells = run.kind is RunKind.CHAT and run.route is not None
    former = store.announced_by(conn, session.id) if tells else None
    history = _history(conn, run)
    return Snapshot(
        run=run,
        session=session,
        calls=runs.open_calls(conn, run),
        unread=runs.has_unread(conn, run),
        history=with_request(history, run) if is_farewell(run) else history,
        notes=_notes(conn, session.ns),
        spent=spending.of_day(conn, day) if day else (0, 0),
        former=former,
        former_saved=former is not None and farewells.is_saved(conn, former.id),
    )


def _history(conn: Connection, run: Run) -> list[Message]:
    """All of this run and what stood before it, as much at every step, so that the steps share the start of their prompts; after a run
    of very many calls, back to the message that it was about."""
    wanted = HISTORY + 8 + 4 * run.steps
    while True:
        found = store.last_messages(conn, run.session_id, wanted)
        own = sum(message.run_id == run.id for message in found)
        start = max(0, len(found) - own - HISTORY)
        asked = any(message.role is Role.USER for message in found[start : len(found) - own])
        if len(found) < wanted or wanted >= MOST or (own + HISTORY <= wanted and asked):
            return found if not asked else found[start:]
        wanted = max(2 * own + HISTORY, 2 * wanted)


def _notes(conn: Connection, ns: str) -> list[str]:
    notes = memory.open_notes(conn, ns, limit=200)
    before: dict[int, Observation] = memory.replaced(conn, notes) if notes else {}
    return [memory.render(note, before.get(note.supersedes or 0)) for note in notes]
