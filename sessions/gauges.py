"""Reads the numbers of the metrics from the database, when they are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from sessions import outbox, runs
from sessions.db.schema import OUT_OPEN, inbox
from sessions.db.schema import outbox as outbox_table
from sessions.records import OutState


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    runs: Mapping[str, int]
    oldest_unread: int | None
    outbox: Mapping[tuple[str, str], int]
    oldest_due: int | None
    newest: int | None = None
    """When the newest message came in."""

    @property
    def to_send(self) -> int:
        return sum(count for (_, state), count in self.outbox.items() if state != OutState.DEAD)

    @property
    def undelivered(self) -> dict[str, int]:
        """How many messages of each platform could not be sent."""
        return {platform: count for (platform, state), count in self.outbox.items() if state == OutState.DEAD}


def read_gauges(conn: Connection) -> Gauges:
    return Gauges(
        runs=runs.counts(conn),
        oldest_unread=conn.scalar(select(func.min(inbox.c.created_at)).where(inbox.c.outcome.is_(None))),
        outbox=outbox.counts(conn),
        newest=conn.scalar(select(inbox.c.created_at).order_by(inbox.c.id.desc()).limit(1)),
        oldest_due=conn.scalar(select(func.min(outbox_table.c.due_at)).where(OUT_OPEN)),
    )
