"""Reads the numbers of the metrics from the database, when they are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from sessions import runs
from sessions.db.schema import inbox, outbox
from sessions.records import OutState

_OPEN = (OutState.PENDING, OutState.SENDING, OutState.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    runs: Mapping[str, int]
    oldest_unread: int | None
    outbox: Mapping[tuple[str, str], int]
    oldest_due: int | None


def read_gauges(conn: Connection) -> Gauges:
    states = select(outbox.c.platform, outbox.c.state, func.count()).where(outbox.c.state != OutState.SENT)
    rows = conn.execute(states.group_by(outbox.c.platform, outbox.c.state)).all()
    return Gauges(
        runs=runs.counts(conn),
        oldest_unread=conn.scalar(select(func.min(inbox.c.created_at)).where(inbox.c.outcome.is_(None))),
        outbox={(str(row[0]), str(row[1])): int(row[2]) for row in rows},
        oldest_due=conn.scalar(select(func.min(outbox.c.due_at)).where(outbox.c.state.in_(_OPEN))),
    )
