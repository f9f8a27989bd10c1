"""Reads the numbers of the metrics from the database, when they are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from sessions import outbox, runs
from sessions.db.schema import OUT_OPEN, inbox
from sessions.db.schema import outbox as outbox_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    runs: Mapping[str, int]
    oldest_unread: int | None
    outbox: Mapping[tuple[str, str], int]
    oldest_due: int | None
    newest: int | None = None
    """When the newest message came in."""


def read_gauges(conn: Connection) -> Gauges:
    return Gauges(
        runs=runs.counts(conn),
        oldest_unread=conn.scalar(select(func.min(inbox.c.created_at)).where(inbox.c.outcome.is_(None))),
        outbox=outbox.counts(conn),
        newest=conn.scalar(select(inbox.c.created_at).order_by(inbox.c.id.desc()).limit(1)),
        oldest_due=conn.scalar(select(func.min(outbox_table.c.due_at)).where(OUT_OPEN)),
    )
