"""Queries for runs: by id, the active one of a key, those in flight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from sessions import inbox
from sessions.db.schema import RUN_ACTIVE, RUN_RUNNING, asks, runs
from sessions.db.sql import param
from sessions.errors import NotFound
from sessions.keys import Address
from sessions.policy import ResetPolicy
from sessions.records import Ask, CallOptions, Route, Run, RunKind, RunStatus

_GET = select(runs).where(runs.c.id == param("run"))
_ACTIVE_OF = select(runs).where(runs.c.session_key == param("key"), RUN_ACTIVE)


def get(conn: Connection, run_id: str) -> Run:
    """Raises NotFound."""
    row = conn.execute(_GET, {"run": run_id}).mappings().first()
    if row is None:
        raise NotFound(f"There is no run {run_id}.")
    return Run.from_row(row)


def find(conn: Connection, run_id: str) -> Run | None:
    row = conn.execute(_GET, {"run": run_id}).mappings().first()
    return Run.from_row(row) if row else None


def active(conn: Connection, session_key: str) -> Run | None:
    row = conn.execute(_ACTIVE_OF, {"key": session_key}).mappings().first()
    return Run.from_row(row) if row else None


def newest_since(conn: Connection, session_key: str, since: int) -> Run | None:
    """Returns the newest run of this key that is active, or was made since this moment. A farewell is none."""
    seen = or_(RUN_ACTIVE, and_(runs.c.created_at >= since, runs.c.kind != RunKind.FAREWELL))
    query = (
        select(runs).where(runs.c.session_key == session_key, seen).order_by(runs.c.created_at.desc(), runs.c.id.desc())
    )
    row = conn.execute(query.limit(1)).mappings().first()
    return Run.from_row(row) if row else None


def latest(conn: Connection, limit: int, *, status: RunStatus | None = None) -> list[Run]:
    """Returns the newest runs, of one status or of all."""
    # One read of the index for each status: the newest of all are among the newest of each.
    found: list[Run] = []
    for each in RunStatus if status is None else (status,):
        query = select(runs).where(runs.c.status == each).order_by(runs.c.created_at.desc()).limit(limit)
        found += [Run.from_row(row) for row in conn.execute(query).mappings()]
    return sorted(found, key=lambda run: (run.created_at, run.id), reverse=True)[:limit]


def open_questions(conn: Connection, limit: int) -> list[tuple[Run, Ask]]:
    """Returns the questions that wait for a person, the oldest first, each with its run."""
    query = (
        select(asks)
        .join(runs, runs.c.id == asks.c.run_id)
        .where(runs.c.status == RunStatus.WAITING, asks.c.answered_at.is_(None))
        .order_by(asks.c.id)
        .limit(limit)
    )
    return [(get(conn, ask.run_id), ask) for ask in map(Ask.from_row, conn.execute(query).mappings())]


def lost(conn: Connection, claimed: Mapping[str, int]) -> list[str]:
    """Returns those of these runs (id → the fence of its claim) that were stopped or taken over since."""
    found = conn.execute(select(runs.c.id, runs.c.fence).where(runs.c.id.in_(claimed))).all()
    return [row.id for row in found if row.fence != claimed[row.id]]


def is_waiting(conn: Connection, run_id: str) -> bool:
    """Whether it waits for an answer of a person."""
    return get(conn, run_id).status is RunStatus.WAITING


_RUNNING = (
    select(runs.c.session_key, runs.c.wake_at, runs.c.away_since, runs.c.away_model)
    .where(RUN_RUNNING, runs.c.kind != RunKind.FAREWELL)
    .order_by(runs.c.created_at, runs.c.id)
)


def in_flight(conn: Connection) -> list[str]:
    """Returns keys with a run that works or sleeps, or with a message that no run has taken in, the oldest first."""
    running = [row.session_key for row in conn.execute(_RUNNING)]
    return list(dict.fromkeys([*running, *inbox.keys_with_unread(conn)]))


def in_flight_now(conn: Connection, now: int) -> list[str]:
    """Returns those of these keys that have something to do now: what a crash left, what came in meanwhile, what has slept enough. Of the
    runs that wait for a model, only the oldest tries it, and wakes the others.
    """
    waiting, looked_for = set[str](), set[str | None]()
    for row in conn.execute(_RUNNING):
        is_asleep = row.away_since is not None and row.wake_at is not None
        if not is_time(row.wake_at, now) or (is_asleep and row.away_model in looked_for):
            waiting.add(row.session_key)
        if is_asleep:
            looked_for.add(row.away_model)
    return [key for key in in_flight(conn) if key not in waiting]


LONGEST_SLEEP_MS = 15 * 60_000
"""Nobody sleeps longer in one go. For what seems to it is time: the machine's clock was set back meanwhile."""


def is_time(wake_at: int | None, now: int) -> bool:
    """Returns whether a run that waits until `wake_at` may go on."""
    return wake_at is None or not now < wake_at <= now + LONGEST_SLEEP_MS


_LAST_ROUTE = (
    select(runs.c.route)
    .where(runs.c.session_key == param("key"), runs.c.route.is_not(None))
    .order_by(runs.c.created_at.desc())
    .limit(1)
)


def last_route(conn: Connection, session_key: str) -> Route | None:
    """Returns the route of the newest run of this key."""
    found = conn.scalar(_LAST_ROUTE, {"key": session_key})
    return None if found is None else replace(found, reply_to=None)


_IN_PLACE = select(runs.c.id).where(
    runs.c.session_key == param("key"), func.substr(runs.c.route, 1, func.length(param("place"))) == param("place")
)


def answered_in(conn: Connection, session_key: str, address: Address) -> bool:
    """Returns whether a run of this key has its answer in this chat and thread."""
    place = f"{Route(address=address).to_json().removesuffix(' null]')} "
    return conn.execute(_IN_PLACE.limit(1), {"key": session_key, "place": place}).first() is not None


def ended_since(conn: Connection, platform: str, since: int) -> list[Run]:
    """Returns the runs on this platform that ended or began to wait since then."""
    # A route is stored as JSON text; its first element is the platform. LIKE would take _ and % in a name for wildcards.
    there = func.substr(runs.c.route, 1, len(platform) + 5) == f'["{platform}", '
    query = select(runs).where(there, runs.c.updated_at >= since, runs.c.status != RunStatus.RUNNING)
    return [Run.from_row(row) for row in conn.execute(query).mappings()]


def counts(conn: Connection) -> dict[str, int]:
    """Returns status → runs, of those that are not over."""
    query = select(runs.c.status, func.count()).where(or_(RUN_ACTIVE, RUN_RUNNING)).group_by(runs.c.status)
    return {row.status: row[1] for row in conn.execute(query)}


MAX_TAKEOVERS = 5
SUSPECT_TAKEOVERS = 2
"""After so many interruptions without progress a run is worked on only while no other such run is."""
ACTIVE = (RunStatus.RUNNING, RunStatus.WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What became of a message that came in. `fresh`: it was not here before. `joined`: a run was at work already."""

    fresh: bool
    run_id: str | None
    joined: bool = False
    status: RunStatus | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A model's answer as it goes into the journal. `tool_calls` are raw, as they go back to the model.

    `cut_off`: by the output limit. `withheld`: by the service's content filter, the whole or a part. `system_prompt`, `model_config`: with what
    the session begins; None where that is stored.
    """

    text: str
    tool_calls: Sequence[Mapping[str, Any]] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""
    day: str = ""
    cut_off: bool = False
    withheld: bool = False
    system_prompt: str | None = None
    model_config: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a session of this key is opened, and what its runs are for. `wait_ms`: a run begins that much later, because more is coming.
    `options` count before those of the message. `reset`: the reset policy of the key; None: its sessions are never reset. `farewell`: the agent has the
    tools to save something before."""

    user_id: str | None = None
    model: str | None = None
    ns: str | None = None
    deployment: str | None = None
    thread_id: str | None = None
    kind: RunKind = RunKind.CHAT
    wait_ms: int = 0
    reset: ResetPolicy | None = None
    farewell: bool = True
    options: CallOptions = field(default_factory=CallOptions)
