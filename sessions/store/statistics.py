"""Counts sessions and messages for `hermes sessions stats`."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from sessions.db.schema import sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    sessions: int
    messages: int
    by_source: dict[str, int]


def stats(conn: Connection) -> Stats:
    by_source = select(sessions.c.source, func.count()).group_by(sessions.c.source).order_by(sessions.c.source)
    counts: dict[str, int] = {row.source: row[1] for row in conn.execute(by_source)}
    total = conn.scalar(select(func.coalesce(func.sum(sessions.c.message_count), 0)))
    return Stats(sessions=sum(counts.values()), messages=int(total or 0), by_source=counts)
