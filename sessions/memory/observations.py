"""Observations, which people and the model know as notes: what is known in a namespace, each one sentence. A note is never edited; a newer one closes it, or it is removed."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select, update

from sessions.clock import iso
from sessions.db.schema import folds, note_vectors, observations, sessions
from sessions.db.schema import forgotten as forgotten_table
from sessions.db.sql import lock, param
from sessions.errors import Invalid, NotFound
from sessions.memory import forgotten
from sessions.memory.digest import changed, drop
from sessions.records import Observation, Session
from sessions.search import note_index

KINDS = ("fact", "preference", "decision", "event")
MAX_TEXT = 2_000
PINNED = 100
"""The weight of what somebody wanted to be kept; of what a fold has found, it is how often it was found again."""


def note(
    conn: Connection,
    ns: str,
    text: str,
    now: int,
    *,
    kind: str = "fact",
    cause: str | None = None,
    happened: str | None = None,
    replaces: int | None = None,
    session_id: str | None = None,
    src: Sequence[int] = (),
) -> Observation:
    """Saves a note on purpose, and closes the note that it replaces. Saving the same text twice leaves one row. Raises Invalid for a text
    that cannot be saved, NotFound when the replaced note is not there."""
    text = " ".join(text.split())
    if not text or len(text) > MAX_TEXT:
        raise Invalid(f"A note holds 1 to {MAX_TEXT} characters; this one has {len(text)}.")
    if kind not in KINDS:
        raise Invalid(f"kind is one of {', '.join(KINDS)}, not {kind!r}.")
    lock_memory(conn, ns)
    lifted = forgotten.lift(conn, ns, text)  # saved on purpose counts more than forgotten before
    same = find_open(conn, ns, text)
    if same is not None:
        if lifted:
            changed(conn, ns)
        return same
    if replaces is not None:
        get_open(conn, ns, replaces)  # raises NotFound before anything is saved
    values = {
        "kind": kind,
        "text": text,
        "cause": cause,
        "happened": happened,
        "said_at": now,
        "src": list(src),
        "session_id": session_id,
        "supersedes": replaces,
        "fold": now,  # a part of the unique key: the same text can be saved again after it was closed
        "weight": PINNED,
    }
    added = add(conn, ns, values, now)
    changed(conn, ns)
    return added


def add(conn: Connection, ns: str, values: Mapping[str, object], now: int) -> Observation:
    """Inserts the row, adds it to the search index, and closes the note that it supersedes."""
    row = conn.execute(insert(observations).returning(observations), {"ns": ns, **values}).mappings().one()
    added = Observation.from_row(row)
    note_index.add(conn, added.id, ns, added.said, added.asked_as)
    if added.supersedes is not None:
        conn.execute(
            update(observations)
            .where(observations.c.id == added.supersedes, observations.c.ns == ns, observations.c.closed_at.is_(None))
            .values(closed_at=now, closed_by=added.id)
        )
    return added


def lock_memory(conn: Connection, ns: str) -> None:
    """Makes transactions that change this memory wait for each other."""
    lock(conn, f"memory of {ns}")


def _find(conn: Connection, *conditions: object) -> Observation | None:
    row = conn.execute(select(observations).where(*conditions).limit(1)).mappings().first()  # pyright: ignore[reportArgumentType]
    return Observation.from_row(row) if row else None


def find_open(conn: Connection, ns: str, text: str) -> Observation | None:
    """Returns the open note with exactly this text; None: there is none."""
    return _find(conn, observations.c.ns == ns, observations.c.text == text, observations.c.closed_at.is_(None))


def get_open(conn: Connection, ns: str, number: int) -> Observation:
    """Returns the open note. Raises NotFound when it is closed, does not exist, or belongs to another namespace."""
    found = _find(conn, observations.c.id == number, observations.c.ns == ns, observations.c.closed_at.is_(None))
    if found is None:
        raise NotFound(f"There is no open note o{number} here.")
    return found


def by_id(conn: Connection, number: int) -> Observation:
    """Returns a note of any namespace; only for the owner of the machine. Raises NotFound."""
    found = _find(conn, observations.c.id == number)
    if found is None:
        raise NotFound(f"There is no note {number}. `hermes memory list` shows them.")
    return found


def forget(conn: Connection, ns: str, number: int) -> Observation:
    """Removes the note, and returns it. The notes that it replaced go too, and the digest, which may contain it in other words. Stores
    marks, so that no fold brings it back. Raises NotFound."""
    lock_memory(conn, ns)
    gone = get_open(conn, ns, number)
    doomed = [gone]
    # What it had replaced goes too: closed notes are still found by search.
    while (before := _find(conn, observations.c.closed_by == doomed[-1].id, observations.c.ns == ns)) is not None:
        doomed.append(before)
    for each in doomed:
        forgotten.add(conn, each)
    delete_rows(conn, doomed)
    note_index.clean(conn)
    changed(conn, ns, revises=True, digest=None)
    return gone


def delete_rows(conn: Connection, gone: Iterable[Observation]) -> None:
    """Deletes these notes with their index entries and vectors. Notes that they had replaced stay closed."""
    for each in gone:
        note_index.remove(conn, each.id, each.ns, each.said, each.asked_as)
        conn.execute(delete(note_vectors).where(note_vectors.c.id == each.id))
        conn.execute(delete(observations).where(observations.c.id == each.id))


def matching(conn: Connection, *conditions: object) -> list[Observation]:
    """Returns the notes that fulfil these SQL conditions, by id."""
    query = select(observations).where(*conditions).order_by(observations.c.id)  # pyright: ignore[reportArgumentType]
    return [Observation.from_row(row) for row in conn.execute(query).mappings()]


_OPEN = (
    select(observations)
    .where(observations.c.ns == param("of"), observations.c.closed_at.is_(None))
    .order_by(observations.c.id.desc())
)
_NEWEST = _OPEN.limit(param("most"))


def open_notes(conn: Connection, ns: str, *, limit: int | None = None) -> list[Observation]:
    """Returns the open notes of this namespace, oldest first; with a limit only the newest."""
    rows = conn.execute(_OPEN, {"of": ns}) if limit is None else conn.execute(_NEWEST, {"of": ns, "most": limit})
    return [Observation.from_row(row) for row in rows.mappings()][::-1]


def all_open(conn: Connection) -> list[Observation]:
    """Returns the open notes of all namespaces, namespace by namespace; only for the owner of the machine."""
    rows = conn.execute(
        select(observations).where(observations.c.closed_at.is_(None)).order_by(observations.c.ns, observations.c.id)
    )
    return [Observation.from_row(row) for row in rows.mappings()]


def replaced(conn: Connection, notes: Sequence[Observation]) -> dict[int, Observation]:
    """Returns the notes that these have replaced, by the id of the replaced note."""
    wanted = [note.supersedes for note in notes if note.supersedes is not None]
    rows = conn.execute(select(observations).where(observations.c.id.in_(wanted))).mappings() if wanted else ()
    return {row["id"]: Observation.from_row(row) for row in rows}


def render(note: Observation, before: Observation | None) -> str:
    """Returns the line that a request shows for the note, with the replaced version as no longer true."""
    line = f"o{note.id} {note.happened or _day(note.said_at)} {note.kind}: {note.text}"
    if note.cause:
        line += f", because {note.cause}"
    if before is not None:
        line += f" (before: {before.text}, {before.happened or _day(before.said_at)} – no longer true)"
    return line


def about(conn: Connection, ns: str, said_in: Mapping[int, str]) -> dict[int, list[Observation]]:
    """Returns message id → notes from this message, closed ones too. `said_in`: message id → session id."""
    found: dict[int, list[Observation]] = {}
    for each in matching(conn, observations.c.ns == ns, observations.c.session_id.in_(set(said_in.values()))):
        for number in said_in.keys() & set(each.src):
            found.setdefault(number, []).append(each)
    return found


def _day(ms: int) -> str:
    return iso(ms)[:10]


def remove_session(conn: Connection, session: Session) -> None:
    """Deletes the notes of this session. Deletes the digest, too, because it may hold words of the session; the next fold makes a new one. When
    the namespace has no other session and no other note, deletes its memory state.
    """
    lock_memory(conn, session.ns)
    delete_rows(conn, matching(conn, observations.c.session_id == session.id))
    conn.execute(delete(folds).where(folds.c.session_id == session.id))
    changed(conn, session.ns, revises=True, digest=None)
    others = select(sessions.c.id).where(sessions.c.ns == session.ns, sessions.c.id != session.id).limit(1)
    notes = select(observations.c.id).where(observations.c.ns == session.ns).limit(1)
    if conn.scalar(others) is None and conn.scalar(notes) is None:
        drop(conn, session.ns)
        conn.execute(delete(forgotten_table).where(forgotten_table.c.ns == session.ns))


def take_back(conn: Connection, session: Session, first: int) -> list[Observation]:
    """Deletes the notes that are only from messages of this session from `first` on, and marks these messages as not folded. Returns those
    of them that were in use."""
    lock_memory(conn, session.ns)
    learned = matching(conn, observations.c.session_id == session.id)
    # A note that an earlier message says too is kept.
    gone = [each for each in learned if each.src and min(each.src) >= first]
    past = conn.scalar(select(folds.c.folded_to).where(folds.c.session_id == session.id)) or 0
    if not gone and past < first:
        return []
    delete_rows(conn, gone)
    conn.execute(
        update(folds).where(folds.c.session_id == session.id, folds.c.folded_to >= first).values(folded_to=first - 1)
    )
    changed(conn, session.ns, revises=True, digest=None)
    return [each for each in gone if each.closed_at is None]


def remove_namespace(conn: Connection, ns: str) -> None:
    """Deletes all memory of this namespace."""
    lock_memory(conn, ns)
    delete_rows(conn, matching(conn, observations.c.ns == ns))
    for table in (folds, forgotten_table):
        conn.execute(delete(table).where(table.c.ns == ns))
    drop(conn, ns)
