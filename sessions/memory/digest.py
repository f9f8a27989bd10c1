"""The state of a namespace's memory: its digest, and counters that tell whether something has changed."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, select, update

from sessions.clock import now_ms
from sessions.db.engine import touch
from sessions.db.schema import memory_state
from sessions.db.sql import insert_or_ignore, param
from sessions.keys import OWNER_NAMESPACE
from sessions.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """`rev`: grows with every change that a fold under way must not overwrite; such a fold is repeated. `changes`: grows with every change.
    `fails`: how often the oldest messages could not be folded; `retry_at`: when that is tried again."""

    digest: str = ""
    rev: int = 0
    changes: int = 0
    fails: int = 0
    retry_at: int = 0
    lease_owner: str | None = None
    lease_until: int | None = None


_NAMES = tuple(MemoryState.__slots__)
_STATE = select(*(memory_state.c[name] for name in _NAMES)).where(memory_state.c.ns == param("of"))
_NOTHING = MemoryState()


def state(conn: Connection, ns: str) -> MemoryState:
    """Returns the state of this namespace; the default when it has none yet."""
    row = conn.execute(_STATE, {"of": ns}).mappings().first()
    if row is None:
        return _NOTHING
    values: dict[str, Any] = {**row, "digest": row["digest"] or ""}
    return MemoryState(**values)


def namespaces(conn: Connection, limit: int) -> list[str]:
    """Returns the namespaces that have a memory; those of the operator and the newest first."""
    query = select(memory_state.c.ns).order_by(memory_state.c.ns != OWNER_NAMESPACE, memory_state.c.changes.desc())
    return list(conn.scalars(query.limit(limit)))


def ensure(conn: Connection, ns: str) -> None:
    """Inserts the row of the namespace when there is none."""
    # `changes` starts at the current time: a reader who knows the deleted row of this namespace must not take the new one for it.
    insert_or_ignore(conn, memory_state, {"ns": ns, "changes": now_ms()})


def changed(conn: Connection, ns: str, *, revises: bool = False, **values: object) -> None:
    """Counts a change and notifies listeners. `revises`: a fold under way becomes invalid. `values`: columns to set."""
    ensure(conn, ns)
    counts = {"changes": memory_state.c.changes + 1, "rev": memory_state.c.rev + (1 if revises else 0)}
    conn.execute(update(memory_state).where(memory_state.c.ns == ns).values({**counts, **values}))
    touch(conn, Topic.MEMORY, ns)


def drop(conn: Connection, ns: str) -> None:
    """Deletes the state of this namespace."""
    conn.execute(delete(memory_state).where(memory_state.c.ns == ns))
    touch(conn, Topic.MEMORY, ns)
