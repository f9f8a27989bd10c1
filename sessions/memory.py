"""The agent's notes: typed observations of one namespace, never edited, only closed."""

import json
from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select, update

from sessions.clock import iso
from sessions.db.engine import touch
from sessions.db.schema import observations
from sessions.db.sql import param
from sessions.errors import Invalid, NotFound
from sessions.inbox import serialize
from sessions.records import Observation
from sessions.topics import Topic

KINDS = ("fact", "preference", "decision", "event")
MAX_TEXT = 2_000


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
    """Saves one observation and closes the one that it replaces. The same text twice is one row. Raises Invalid or
    NotFound."""
    text = " ".join(text.split())
    if not text or len(text) > MAX_TEXT:
        raise Invalid(f"A note holds 1 to {MAX_TEXT} characters; this one has {len(text)}.")
    if kind not in KINDS:
        raise Invalid(f"kind is one of {', '.join(KINDS)}, not {kind!r}.")
    serialize(conn, f"memory of {ns}")
    same = _find(conn, observations.c.ns == ns, observations.c.text == text, observations.c.closed_at.is_(None))
    if same is not None:
        return same
    old = None if replaces is None else get_open(conn, ns, replaces)
    values = {
        "ns": ns,
        "kind": kind,
        "text": text,
        "cause": cause,
        "happened": happened,
        "said_at": now,
        "src": json.dumps(list(src)),
        "session_id": session_id,
        "supersedes": replaces,
        "fold": now,
    }
    added = conn.execute(insert(observations).returning(observations.c.id), values).scalar_one()
    if old is not None:
        close(conn, ns, old.id, now, closed_by=added)
    touch(conn, Topic.MEMORY, ns)
    return get_open(conn, ns, added)


def _find(conn: Connection, *conditions: object) -> Observation | None:
    row = conn.execute(select(observations).where(*conditions).limit(1)).mappings().first()  # pyright: ignore[reportArgumentType]
    return Observation.from_row(row) if row else None


def get_open(conn: Connection, ns: str, number: int) -> Observation:
    """Raises NotFound for a note that is closed, does not exist, or belongs to another namespace."""
    found = _find(conn, observations.c.id == number, observations.c.ns == ns, observations.c.closed_at.is_(None))
    if found is None:
        raise NotFound(f"There is no open note o{number} here.")
    return found


def close(conn: Connection, ns: str, number: int, now: int, *, closed_by: int | None = None) -> None:
    conn.execute(
        update(observations)
        .where(observations.c.id == number, observations.c.ns == ns, observations.c.closed_at.is_(None))
        .values(closed_at=now, closed_by=closed_by)
    )
    touch(conn, Topic.MEMORY, ns)


def forget(conn: Connection, ns: str, number: int) -> None:
    """Deletes the note and what it replaced. Raises NotFound."""
    get_open(conn, ns, number)
    conn.execute(delete(observations).where(observations.c.ns == ns, observations.c.closed_by == number))
    conn.execute(delete(observations).where(observations.c.ns == ns, observations.c.id == number))
    touch(conn, Topic.MEMORY, ns)


_OPEN = (
    select(observations)
    .where(observations.c.ns == param("of"), observations.c.closed_at.is_(None))
    .order_by(observations.c.id.desc())
)
_NEWEST = _OPEN.limit(param("most"))


def open_notes(conn: Connection, ns: str, *, limit: int | None = None) -> list[Observation]:
    """Oldest first; with a limit, the newest ones only."""
    rows = conn.execute(_OPEN, {"of": ns}) if limit is None else conn.execute(_NEWEST, {"of": ns, "most": limit})
    return [Observation.from_row(row) for row in rows.mappings()][::-1]


def replaced(conn: Connection, notes: Sequence[Observation]) -> dict[int, Observation]:
    """The replaced version of each note that has one."""
    wanted = [note.supersedes for note in notes if note.supersedes is not None]
    rows = conn.execute(select(observations).where(observations.c.id.in_(wanted))).mappings()
    return {row["id"]: Observation.from_row(row) for row in rows}


def render(note: Observation, before: Observation | None) -> str:
    """The note in plain words, together with the version that is no longer true."""
    when = note.happened or _day(note.said_at)
    line = f"o{note.id} {when} {note.kind}: {note.text}"
    if note.cause:
        line += f", because {note.cause}"
    if before is not None:
        line += f" (before: {before.text}, {before.happened or _day(before.said_at)} – no longer true)"
    return line


def _day(ms: int) -> str:
    return iso(ms)[:10]
