"""Looking a run up."""

from dataclasses import replace

from sqlalchemy import Connection, func, or_, select

from sessions import inbox
from sessions.db.schema import RUN_ACTIVE, RUN_RUNNING, runs
from sessions.db.sql import param
from sessions.errors import NotFound
from sessions.records import Route, Run

_GET = select(runs).where(runs.c.id == param("run"))
_ACTIVE_OF = select(runs).where(runs.c.session_key == param("key"), RUN_ACTIVE)


def get(conn: Connection, run_id: str) -> Run:
    """Raises NotFound."""
    row = conn.execute(_GET, {"run": run_id}).mappings().first()
    if row is None:
        raise NotFound(f"There is no run {run_id}.")
    return Run.from_row(row)


def active(conn: Connection, session_key: str) -> Run | None:
    row = conn.execute(_ACTIVE_OF, {"key": session_key}).mappings().first()
    return Run.from_row(row) if row else None


def in_flight(conn: Connection) -> list[str]:
    """Keys that have something to do: after a start, what a crash left and what came in meanwhile."""
    unfinished = conn.scalars(select(runs.c.session_key).where(RUN_RUNNING).order_by(runs.c.updated_at))
    return list(dict.fromkeys([*unfinished, *inbox.keys_with_unread(conn)]))


_LAST_ROUTE = (
    select(runs.c.route)
    .where(runs.c.session_key == param("key"), runs.c.route.is_not(None))
    .order_by(runs.c.created_at.desc())
    .limit(1)
)


def last_route(conn: Connection, session_key: str) -> Route | None:
    """Where the newest run of this key answers."""
    found = conn.scalar(_LAST_ROUTE, {"key": session_key})
    return None if found is None else replace(Route.from_json(found), reply_to=None)


def counts(conn: Connection) -> dict[str, int]:
    """Status → runs, of those that are not over."""
    query = select(runs.c.status, func.count()).where(or_(RUN_ACTIVE, RUN_RUNNING)).group_by(runs.c.status)
    return {row.status: row[1] for row in conn.execute(query)}
