"""Rows of the processes that the agent has started: of those that run, and how the others ended.

The processes themselves are kept by the gateway's process whose `owner` the row names.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, exists, insert, select, update

from sessions import lease_owners
from sessions.db.engine import touch
from sessions.db.schema import PROCESS_RUNS, processes, sessions
from sessions.topics import Topic

UNKNOWN = "unknown"
"""The outcome of a process whose gateway has died."""
RUNNING = "running"
HAS_PROCESS = exists().where(PROCESS_RUNS, processes.c.session_key == sessions.c.session_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """`stop_at`: when somebody wanted it to end. `outcome`: how it ended, in words; see UNKNOWN. `asked_at`: when another process wanted to know
    what it has printed; None: that was answered. `output`: what it had printed then, or at its end.
    """

    id: str
    session_id: str
    session_key: str
    owner: str
    command: str
    started_at: int
    stop_at: int | None = None
    ended_at: int | None = None
    outcome: str | None = None
    asked_at: int | None = None
    output: str | None = None


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


def stop_one(conn: Connection, process_id: str, now: int) -> None:
    """Has this process ended by whoever keeps it."""
    conn.execute(update(processes).where(PROCESS_RUNS, processes.c.id == process_id).values(stop_at=now))
    touch(conn, Topic.PROCESS, process_id)


def running_of(conn: Connection, process_ids: Collection[str]) -> dict[str, ProcessRow]:
    """Returns those of these processes that run, as far as their rows tell."""
    wanted = select(processes).where(PROCESS_RUNS, processes.c.id.in_(process_ids))
    return {row["id"]: ProcessRow(**row) for row in conn.execute(wanted).mappings()}


def ask_keeper(conn: Connection, process_id: str, now: int) -> ProcessRow | None:
    """Asks whoever keeps the process what it has printed, if it runs and its keeper lives. Returns its row; its outcome is UNKNOWN where the keeper
    has died.
    """
    row = get(conn, process_id)
    if row is None or row.ended_at is not None:
        return row
    if lease_owners.is_gone(conn, row.owner):
        return replace(row, outcome=UNKNOWN)
    conn.execute(update(processes).where(PROCESS_RUNS, processes.c.id == process_id).values(asked_at=now))
    touch(conn, Topic.PROCESS, process_id)
    return replace(row, asked_at=now)


def answer(conn: Connection, process_id: str, output: str, asked_at: int) -> None:
    """Stores what the process has printed for whoever asked then; who asked later is answered anew."""
    asked = update(processes).where(PROCESS_RUNS, processes.c.id == process_id, processes.c.asked_at == asked_at)
    conn.execute(asked.values(output=output, asked_at=None))
    touch(conn, Topic.PROCESS, process_id)


def ended(conn: Connection, process_id: str, outcome: str, now: int, output: str | None = None) -> None:
    """Notes how the process has ended and what it had printed, unless that was noted already. None: what was told before stays."""
    done = update(processes).where(PROCESS_RUNS, processes.c.id == process_id)
    told = {} if output is None else {"output": output}
    conn.execute(done.values(ended_at=now, outcome=outcome, asked_at=None, **told))
    touch(conn, Topic.PROCESS, process_id)


def forget_session(conn: Connection, session_id: str) -> None:
    """Deletes the rows of this session. What runs still is ended by whoever keeps it."""
    _touch(conn, conn.scalars(select(processes.c.id).where(processes.c.session_id == session_id)).all())
    conn.execute(delete(processes).where(processes.c.session_id == session_id))


def orphans(conn: Connection) -> list[str]:
    """Returns the processes whose gateway has died, as far as that is known here."""
    rows = conn.execute(select(processes.c.id, processes.c.owner).where(PROCESS_RUNS)).all()
    gone = {owner for owner in {row.owner for row in rows} if lease_owners.is_gone(conn, owner)}
    return [row.id for row in rows if row.owner in gone]


def close_orphans(conn: Connection, now: int) -> None:
    """Notes that these have ended with their gateway, and that nobody knows how."""
    for process_id in orphans(conn):
        ended(conn, process_id, UNKNOWN, now)


def prune(conn: Connection, before: int, limit: int) -> int:
    """Deletes rows of processes that ended before this. Returns how many."""
    old = select(processes.c.id).where(processes.c.ended_at < before).limit(limit)
    return conn.execute(delete(processes).where(processes.c.id.in_(old.scalar_subquery()))).rowcount


def _touch(conn: Connection, process_ids: Sequence[str]) -> None:
    for process_id in process_ids:
        touch(conn, Topic.PROCESS, process_id)
