"""The events that API clients follow.

Written in the transaction that they tell of; readers see no gap in their numbers.
"""

from typing import Any

from sqlalchemy import Connection, func, insert, select

from sessions.db.engine import touch
from sessions.db.schema import events
from sessions.db.sql import lock
from sessions.records import Event, Run
from sessions.topics import Topic


def emit(conn: Connection, run: Run, kind: str, data: dict[str, Any], now: int) -> None:
    """Only runs of deployments have readers; for others it does nothing."""
    if run.deployment is None:
        return
    # Or a later number could be visible before an earlier one, and a reader would skip it.
    lock(conn, run.deployment, space=1)
    values = {
        "deployment": run.deployment,
        "run_id": run.id,
        "thread_id": run.thread_id,
        "kind": kind,
        "data": {"run_id": run.id, **data},
        "created_at": now,
    }
    conn.execute(insert(events), values)
    touch(conn, Topic.EVENTS, run.deployment)


def after(
    conn: Connection,
    deployment: str,
    last_id: int,
    *,
    run_id: str | None = None,
    thread_id: str | None = None,
    limit: int = 500,
) -> list[Event]:
    query = (
        select(events)
        .where(events.c.deployment == deployment, events.c.id > last_id)
        .order_by(events.c.id)
        .limit(limit)
    )
    if run_id is not None:
        query = query.where(events.c.run_id == run_id)
    if thread_id is not None:
        query = query.where(events.c.thread_id == thread_id)
    return [Event.from_row(row) for row in conn.execute(query).mappings()]


def last_id(conn: Connection, deployment: str) -> int:
    return conn.scalar(select(func.max(events.c.id)).where(events.c.deployment == deployment)) or 0
