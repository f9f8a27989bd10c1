"""Stores what each daemon on this database last reported of itself."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import Connection, RowMapping, delete, insert, select

from sessions import lease_owners
from sessions.db.schema import leases as leases_table
from sessions.db.schema import workers

SILENT_MS = 30_000
"""A worker that has not reported for so long is lost."""
FORGOTTEN_MS = 24 * 3_600_000


class WorkerState(StrEnum):
    READY = "ready"
    LOST = "lost"  # killed, or silent for long; in no row


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """`owner`: as in leases. `report`: what it said about its parts. `gone`: it is known to be dead."""

    name: str
    owner: str
    host: str
    pid: int
    version: str
    role: str
    state: WorkerState
    started_at: int
    last_seen: int
    report: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gone: bool = False

    @classmethod
    def from_row(cls, row: RowMapping, *, gone: bool) -> Self:
        changed: dict[str, Any] = {"state": WorkerState(row["state"]), "report": json.loads(row["report"])}
        return cls(**dict(row) | changed, gone=gone)

    def state_at(self, now: int) -> WorkerState:
        is_lost = self.gone or now - self.last_seen > SILENT_MS
        return WorkerState.LOST if is_lost else self.state


def report(conn: Connection, row: WorkerRow) -> None:
    """Replaces what the worker has reported before."""
    values = {column.name: getattr(row, column.name) for column in workers.c}
    # An upsert that both databases understand; nobody else writes this name.
    conn.execute(delete(workers).where(workers.c.name == row.name))
    conn.execute(insert(workers), {**values, "report": json.dumps(row.report, ensure_ascii=False)})


def leave(conn: Connection, name: str) -> None:
    conn.execute(delete(workers).where(workers.c.name == name))


def everyone(conn: Connection) -> list[WorkerRow]:
    """The newest first."""
    rows = conn.execute(select(workers).order_by(workers.c.started_at.desc(), workers.c.name)).mappings()
    return [WorkerRow.from_row(row, gone=lease_owners.is_gone(conn, row["owner"])) for row in rows]


def any_ready(conn: Connection, now: int) -> bool:
    """Whether a gateway runs on this database."""
    return any(row.state_at(now) is WorkerState.READY for row in everyone(conn))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """What only one worker may do at a time, and who does it."""

    name: str
    owner: str
    until: int


def held_leases(conn: Connection, now: int) -> list[LeaseRow]:
    rows = conn.execute(select(leases_table).where(leases_table.c.until > now).order_by(leases_table.c.name)).mappings()
    return [LeaseRow(name=row["name"], owner=row["owner"], until=row["until"]) for row in rows]


def holds(conn: Connection, name: str, home: str, now: int) -> bool:
    """Returns whether a worker of this home on this machine has the lease of this name."""
    owner = select(leases_table.c.owner).where(leases_table.c.name == name, leases_table.c.until > now)
    row = conn.execute(select(workers).where(workers.c.owner == owner.scalar_subquery())).mappings().first()
    return row is not None and row["host"] == socket.gethostname() and json.loads(row["report"]).get("home") == home


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """The jobs that distribute runs over processes. `stalled`: of processes that are gone, and not taken over yet."""

    waiting: int
    at_work: int
    stalled: int


_ENGINE = """
SELECT count(*) FILTER (WHERE status = 'todo'), count(*) FILTER (WHERE status = 'doing'),
count(*) FILTER (WHERE status = 'doing' AND (worker_id IS NULL OR worker_id IN
(SELECT id FROM procrastinate_workers WHERE last_heartbeat < clock_timestamp() - make_interval(secs => %(seconds)s))))
FROM procrastinate_jobs
"""


def engine_state(conn: Connection) -> EngineState | None:
    """None on SQLite, where one process does everything."""
    if conn.dialect.name == "sqlite":
        return None
    row = conn.exec_driver_sql(_ENGINE, {"seconds": lease_owners.STALLED_SECONDS}).one()
    return EngineState(waiting=row[0], at_work=row[1], stalled=row[2])


def forget_lost(conn: Connection, now: int) -> None:
    """Removes those that are known to be dead, and those that have been silent for a day."""
    for row in everyone(conn):
        if row.gone or now - row.last_seen > FORGOTTEN_MS:
            leave(conn, row.name)
