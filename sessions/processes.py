"""Rows of the processes that the agent has started: of those that run, and how the others ended. The processes themselves are kept by the
gateway's process whose `owner` the row names.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, exists, insert, select, update

from sessions import leases
from sessions.db.engine import touch
from sessions.db.schema import PROCESS_RUNS, processes, sessions
from sessions.topics import Topic

UNKNOWN = "unknown"
"""The outcome of a process whose gateway has died."""
HAS_PROCESS = exists().where(PROCESS_RUNS, processes.c.session_key == sessions.c.session_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """`stop_at`: when somebody wanted it to end. `outcome`: how it ended, in words; see UNKNOWN."""

    id: str
    session_id: str
    session_key: str
    owner: str
    command: str
    started_at: int
    stop_at: int | None = None
    ended_at: int | None = None
    outcome: str | None = None


def add(conn: Connection, row: ProcessRow) -> None:
    conn.execute(insert(processes), {name: getattr(row, name) for name in row.__slots__})


def get(conn: Connection, process_id: str) -> ProcessRow | None:
    found = conn.execute(select(processes).where(processes.c.id == process_id)).mappings().first()
    return None if found is None else ProcessRow(**found)


def running(conn: Connection, session_key: str) -> list[ProcessRow]:
    """Returns the processes of this key that run, the oldest first."""
    wanted = select(processes).where(PROCESS_RUNS, processes.c.session_key == session_key)
    return [ProcessRow(**row) for row in conn.execute(wanted.order_by(processes.c.started_at)).mappings()]


def stop(conn: Connection, session_key: str, now: int) -> list[ProcessRow]:
    """Has the processes of this key ended by whoever keeps them. Returns them."""
    found = running(conn, session_key)
    conn.execute(update(processes).where(PROCESS_RUNS, processes.c.session_key == session_key).values(stop_at=now))
    _touch(conn, [row.id for row in found])
    return found


def ended(conn: Connection, process_id: str, outcome: str, now: int) -> None:
    conn.execute(update(processes).where(processes.c.id == process_id).values(ended_at=now, outcome=outcome))


def forget_session(conn: Connection, session_id: str) -> None:
    """Deletes the rows of this session. What runs still is ended by whoever keeps it."""
    _touch(conn, conn.scalars(select(processes.c.id).where(processes.c.session_id == session_id)).all())
    conn.execute(delete(processes).where(processes.c.session_id == session_id))


def close_orphans(conn: Connection, now: int) -> None:
    """Marks what a dead process of this machine has kept: it ended with it, and how is not known."""
    rows = conn.execute(select(processes.c.id, processes.c.owner).where(PROCESS_RUNS)).all()
    for process_id, owner in rows:
        if leases.is_gone(conn, owner):
            ended(conn, process_id, UNKNOWN, now)


def prune(conn: Connection, before: int, limit: int) -> int:
    """Deletes rows of processes that ended before this. Returns how many."""
    old = select(processes.c.id).where(processes.c.ended_at < before).limit(limit)
    return conn.execute(delete(processes).where(processes.c.id.in_(old.scalar_subquery()))).rowcount


def _touch(conn: Connection, process_ids: Sequence[str]) -> None:
    for process_id in process_ids:
        touch(conn, Topic.PROCESS, process_id)
