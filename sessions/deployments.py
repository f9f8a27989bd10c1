"""Deployments and their threads. A deployment is one isolated agent; a thread is a session of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, delete, func, insert, or_, select, update

from sessions import ids, memory, runs, store
from sessions.db.schema import asks, deployments, events, messages, sessions
from sessions.db.sql import lock
from sessions.errors import NotFound
from sessions.keys import MAIN_DEPLOYMENT, SessionKey
from sessions.records import Ask, Role, RunStatus, Session, Source

MAIN = MAIN_DEPLOYMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    id: str
    name: str
    customer_id: str | None
    system_prompt: str | None
    model: str | None
    created_by: str
    default_thread: str | None
    created_at: int

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        return cls(**{f.name: row[f.name] for f in fields(cls)})

    @property
    def agent(self) -> str:
        return agent_of(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    id: str
    title: str | None
    status: RunStatus | None
    message_count: int
    created_at: int
    last_activity_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a thread, of a person or of the agent."""

    by_agent: bool
    content: str
    run_id: str | None
    created_at: int


def agent_of(deployment_id: str) -> str:
    return "main" if deployment_id == MAIN else deployment_id


def key_of(deployment_id: str, thread_id: str) -> SessionKey:
    return SessionKey.thread(agent_of(deployment_id), thread_id)


def get(conn: Connection, deployment_id: str) -> Deployment:
    """Raises NotFound."""
    row = conn.execute(select(deployments).where(deployments.c.id == deployment_id)).mappings().first()
    if row is None:
        raise NotFound(f"There is no deployment {deployment_id}.")
    return Deployment.from_row(row)


def create(
    conn: Connection,
    now: int,
    *,
    name: str,
    created_by: str,
    customer_id: str | None = None,
    system_prompt: str | None = None,
    model: str | None = None,
    deployment_id: str | None = None,
) -> Deployment:
    """Creates the deployment and its default thread."""
    new_id = deployment_id or ids.new_id("dep")
    values = {
        "id": new_id,
        "name": name,
        "customer_id": customer_id,
        "system_prompt": system_prompt,
        "model": model,
        "created_by": created_by,
        "created_at": now,
    }
    conn.execute(insert(deployments), values)
    default_thread(conn, get(conn, new_id), now)
    return get(conn, new_id)


def ensure_main(conn: Connection, now: int) -> Deployment:
    """Creates `dep_main`, which is `agents.main`, where it is missing."""
    lock(conn, MAIN)  # everybody's first request makes it
    try:
        return get(conn, MAIN)
    except NotFound:
        return create(conn, now, name="main", created_by="", deployment_id=MAIN)


def change(conn: Connection, deployment_id: str, values: Mapping[str, Any]) -> Deployment:
    if values:
        conn.execute(update(deployments).where(deployments.c.id == deployment_id).values(dict(values)))
    return get(conn, deployment_id)


def listing(
    conn: Connection, *, seen_by: str | None, among: Sequence[str], limit: int, after: tuple[int, str] | None
) -> list[Deployment]:
    """Newest first. `seen_by` None: all; otherwise those that this key created, and those in `among`."""
    query = select(deployments).order_by(deployments.c.created_at.desc(), deployments.c.id.desc()).limit(limit)
    if seen_by is not None:
        query = query.where(or_(deployments.c.created_by == seen_by, deployments.c.id.in_(among)))
    if after is not None:
        at, last = after
        query = query.where(
            or_(deployments.c.created_at < at, and_(deployments.c.created_at == at, deployments.c.id < last))
        )
    return [Deployment.from_row(row) for row in conn.execute(query).mappings()]


def remove(conn: Connection, deployment_id: str) -> None:
    """Deletes the deployment, its memory and its events. Its threads must be deleted before."""
    memory.remove_namespace(conn, f"agent:{agent_of(deployment_id)}")
    conn.execute(delete(events).where(events.c.deployment == deployment_id))
    conn.execute(delete(deployments).where(deployments.c.id == deployment_id))


# --- threads ------------------------------------------------------------------------------------------------------------------


def open_thread(conn: Connection, deployment: Deployment, now: int, *, title: str | None = None) -> str:
    """Creates an empty thread. Returns its id."""
    thread_id = ids.new_id("thread")
    store.start(conn, key_of(deployment.id, thread_id), now, source=Source.THREAD, title=title)
    return thread_id


def default_thread(conn: Connection, deployment: Deployment, now: int) -> str:
    """The thread for messages that name none; created again when it was deleted."""
    if deployment.default_thread and sessions_of(conn, deployment.id, deployment.default_thread):
        return deployment.default_thread
    thread_id = open_thread(conn, deployment, now)
    conn.execute(update(deployments).where(deployments.c.id == deployment.id).values(default_thread=thread_id))
    return thread_id


def sessions_of(conn: Connection, deployment_id: str, thread_id: str) -> list[Session]:
    """The sessions of a thread, oldest first; empty when there is no such thread."""
    query = select(sessions).where(sessions.c.session_key == str(key_of(deployment_id, thread_id)))
    return [Session.from_row(row) for row in conn.execute(query.order_by(sessions.c.started_at)).mappings()]


def thread_ids(conn: Connection, deployment_id: str) -> list[str]:
    query = select(sessions.c.session_key).where(
        sessions.c.agent == agent_of(deployment_id), sessions.c.source == Source.THREAD
    )
    return [SessionKey.parse(key).chat_id or "" for key in conn.scalars(query.distinct())]


def thread(conn: Connection, deployment_id: str, thread_id: str) -> Thread:
    """Raises NotFound."""
    parts = sessions_of(conn, deployment_id, thread_id)
    if not parts:
        raise NotFound(f"There is no thread {thread_id}.")
    return _thread(conn, thread_id, parts)


def _thread(conn: Connection, thread_id: str, parts: Sequence[Session]) -> Thread:
    shown = func.coalesce(func.sum(case((_SHOWN, 1), else_=0)), 0) + func.count(asks.c.id) + func.count(asks.c.answer)
    query = select(shown, func.max(messages.c.created_at)).select_from(messages.outerjoin(asks, _ASKED))
    count, last = conn.execute(query.where(_in(parts))).one()
    active = runs.active(conn, parts[0].session_key)
    return Thread(
        id=thread_id,
        title=parts[-1].title,
        status=active.status if active else None,
        message_count=int(count),
        created_at=parts[0].started_at,
        last_activity_at=int(last or parts[0].started_at),
    )


def threads(conn: Connection, deployment_id: str, *, limit: int, after: tuple[int, str] | None) -> list[Thread]:
    """Newest first."""
    began = func.min(sessions.c.started_at)
    query = (
        select(sessions.c.session_key, began.label("began"))
        .where(sessions.c.agent == agent_of(deployment_id), sessions.c.source == Source.THREAD)
        .group_by(sessions.c.session_key)
        .order_by(began.desc(), sessions.c.session_key.desc())
        .limit(limit)
    )
    if after is not None:
        at, last = after
        key = str(key_of(deployment_id, last))
        query = query.having(or_(began < at, and_(began == at, sessions.c.session_key < key)))
    found: list[Thread] = []
    for row in conn.execute(query):
        thread_id = SessionKey.parse(row.session_key).chat_id or ""
        found.append(_thread(conn, thread_id, sessions_of(conn, deployment_id, thread_id)))
    return found


_SHOWN = and_(
    messages.c.role.in_([Role.USER, Role.ASSISTANT]), messages.c.tool_calls.is_(None), messages.c.content != ""
)

_ASKED = and_(
    messages.c.role == Role.TOOL, asks.c.run_id == messages.c.run_id, asks.c.tool_call_id == messages.c.tool_call_id
)


def _in(parts: Sequence[Session]) -> ColumnElement[bool]:
    return messages.c.session_id.in_([part.id for part in parts])


def turns(conn: Connection, parts: Sequence[Session]) -> list[Turn]:
    """The messages of people and the agent, oldest first. A question and its answer stand at the place of the tool
    call."""
    written = select(messages).where(_in(parts), _SHOWN)
    asked = select(asks, messages.c.id.label("place")).join(messages, _ASKED).where(_in(parts))
    turns = [(int(row["id"]), _written(row)) for row in conn.execute(written).mappings()]
    for row in conn.execute(asked).mappings():
        # `sorted` keeps the order of equals, so the question stays before its answer.
        turns += [(int(row["place"]), turn) for turn in _exchange(Ask.from_row(row))]
    return [turn for _, turn in sorted(turns, key=itemgetter(0))]


def _written(row: RowMapping) -> Turn:
    by_agent = row["role"] == Role.ASSISTANT
    return Turn(by_agent=by_agent, content=row["content"], run_id=row["run_id"], created_at=row["created_at"])


def _exchange(ask: Ask) -> Iterator[Turn]:
    yield Turn(by_agent=True, content=ask.text, run_id=ask.run_id, created_at=ask.created_at)
    if ask.answer is not None:
        at = ask.answered_at or ask.created_at
        yield Turn(by_agent=False, content=ask.answer, run_id=ask.run_id, created_at=at)
