"""Farewell run: a hidden last run before a reset in which the agent saves what matters; this file has its transactions.

It may run beside another run of the session key, takes in no messages, and is started only when a person has written since the last one.
"""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, and_, exists, func, insert, select, update

from sessions import ids
from sessions.db.engine import record_touch, touch
from sessions.db.schema import RUN_FAREWELL, messages, observations, runs, sessions
from sessions.db.sql import param
from sessions.memory.observations import PINNED
from sessions.records import Role, Run, RunKind, RunStatus, Session
from sessions.runs.queries import active, is_time
from sessions.topics import FarewellBegun, Topic

WAIT_MS = 18_000
"""So long a message waits for the farewell of the session before, so that its run begins within twenty seconds."""

_LAST = (
    select(func.coalesce(func.max(runs.c.created_at), -1))
    .where(runs.c.session_id == sessions.c.id, runs.c.kind == RunKind.FAREWELL)
    .correlate(sessions)
    .scalar_subquery()
)
IS_UNSAVED = exists().where(
    messages.c.session_id == sessions.c.id, messages.c.role == Role.USER, messages.c.created_at > _LAST
)
"""A condition on a session: a person has said something since its last farewell."""


def begin(conn: Connection, session: Session, now: int) -> Run | None:
    """Returns the farewell that is under way, or a new one if there is something to save; else None."""
    current = under_way(conn, session.id)
    if current is not None:
        return current
    # A session in which only jobs and the agent have spoken since has nothing new to save.
    unsaved = conn.scalar(select(sessions.c.id).where(sessions.c.id == session.id, IS_UNSAVED))
    if unsaved is None:
        return None
    begin_all(conn, {session.id: session.session_key}, now)
    return under_way(conn, session.id)


def begin_all(conn: Connection, wanted: Mapping[str, str], now: int) -> None:
    """Starts a farewell for each of these sessions (id → key), which must have none under way."""
    rows: list[dict[str, Any]] = [
        {
            "id": ids.new_id("run"),
            "session_id": session_id,
            "session_key": session_key,
            "kind": RunKind.FAREWELL,
            "status": RunStatus.RUNNING,
            "created_at": now,
            "updated_at": now,
        }
        for session_id, session_key in wanted.items()
    ]
    if rows:
        conn.execute(insert(runs), rows)
    for row in rows:
        record_touch(conn, FarewellBegun.by(row["id"], row["session_key"]))


_UNDER_WAY = select(runs).where(RUN_FAREWELL, runs.c.session_id == param("session"))


def under_way(conn: Connection, session_id: str) -> Run | None:
    row = conn.execute(_UNDER_WAY, {"session": session_id}).mappings().first()
    return Run.from_row(row) if row else None


def under_way_in(conn: Connection, session_ids: Collection[str]) -> dict[str, int]:
    """Returns session → when its farewell began, of those whose farewell is not over."""
    query = select(runs.c.session_id, runs.c.created_at).where(RUN_FAREWELL, runs.c.session_id.in_(session_ids))
    return {row.session_id: row.created_at for row in conn.execute(query)}


def holds_up(conn: Connection, session_id: str, now: int) -> bool:
    """Returns whether to wait for the farewell of this session: it goes on, and its model is not away."""
    run = under_way(conn, session_id)
    return run is not None and is_time(run.wake_at, now)


_DUE = (
    select(runs.c.id, runs.c.session_key, runs.c.wake_at)
    .where(RUN_FAREWELL)
    .order_by(
        # Suspects last: each of them may have to wait for another one.
        runs.c.attempts,
        runs.c.created_at,
        runs.c.id,
    )
)


def due(conn: Connection, now: int, limit: int) -> list[tuple[str, str]]:
    """Returns run and session key of the oldest farewells that could go on now."""
    found = [(row.id, row.session_key) for row in conn.execute(_DUE) if is_time(row.wake_at, now)]
    return found[:limit]


def owed(conn: Connection, session_key: str | None = None) -> list[Run]:
    """Returns farewells of sessions that have ended already."""
    query = select(runs).join(sessions, sessions.c.id == runs.c.session_id).where(RUN_FAREWELL)
    query = query.where(sessions.c.ended_at.is_not(None)).order_by(runs.c.created_at)
    if session_key is not None:
        query = query.where(runs.c.session_key == session_key)
    return [Run.from_row(row) for row in conn.execute(query).mappings()]


def notes_saved(conn: Connection, session_id: str) -> int:
    """Returns how many notes the last farewell of the session has saved."""
    mine = and_(runs.c.session_id == session_id, runs.c.kind == RunKind.FAREWELL)
    began = select(func.max(runs.c.created_at)).where(mine).scalar_subquery()
    saved = observations.c.session_id == session_id, observations.c.said_at >= began, observations.c.weight == PINNED
    return conn.scalar(select(func.count()).select_from(observations).where(*saved)) or 0


def stop_holding_up(conn: Connection, farewell: Run) -> None:
    """Lets whoever waits for this farewell go on: it is over, or its model is away."""
    waiting = active(conn, farewell.session_key)
    # A run that was claimed once sleeps for another reason: for its model, or for its time.
    if waiting is None or waiting.fence or waiting.wake_at is None or waiting.session_id == farewell.session_id:
        return
    conn.execute(update(runs).where(runs.c.id == waiting.id).values(wake_at=None))
    touch(conn, Topic.INBOX, farewell.session_key)
