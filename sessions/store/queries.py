"""Queries for sessions and their messages."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, case, func, or_, select
from sqlalchemy.sql import ColumnElement

from sessions.db.schema import messages, responses, runs, sessions
from sessions.db.sql import param
from sessions.errors import Ambiguous, NotFound
from sessions.records import EndReason, Message, Role, Session

# Built once: these run for every message.
_GET = select(sessions).where(sessions.c.id == param("session"))
_ACTIVE = select(sessions).where(sessions.c.session_key == param("key"), sessions.c.ended_at.is_(None))
_LAST = (
    select(messages)
    .where(messages.c.session_id == param("session"), messages.c.id < param("before"))
    .order_by(messages.c.id.desc())
    .limit(param("most"))
)
_NO_ID = 2**62
_SHOWN = 5
_LAST_ACTIVITY = case(
    (sessions.c.last_user_at > sessions.c.started_at, sessions.c.last_user_at), else_=sessions.c.started_at
)
_NEWEST_FIRST = (_LAST_ACTIVITY.desc(), sessions.c.started_at.desc(), sessions.c.id.desc())


def get(conn: Connection, session_id: str) -> Session:
    """Raises NotFound."""
    row = conn.execute(_GET, {"session": session_id}).mappings().first()
    if row is None:
        raise NotFound(f"There is no session {session_id}. `hermes sessions list` shows the newest.")
    return Session.from_row(row)


def exists(conn: Connection, session_id: str) -> bool:
    return conn.execute(_GET, {"session": session_id}).first() is not None


def resolve(conn: Connection, prefix: str) -> Session:
    """Returns the session with this id or unique prefix of one. Raises NotFound or Ambiguous."""
    query = select(sessions).where(sessions.c.id.startswith(prefix, autoescape=True)).order_by(sessions.c.id)
    query = query.limit(_SHOWN + 1)
    rows = conn.execute(query).mappings().all()
    if not rows or not prefix:
        raise NotFound(f"No session begins with {prefix!r}. `hermes sessions list` shows the newest.")
    # A whole id wins, although longer ones may begin with it.
    if len(rows) > 1 and rows[0]["id"] != prefix:
        found = "; ".join(map(_named, rows[:_SHOWN])) + ("; …" if len(rows) > _SHOWN else "")
        raise Ambiguous(f"{prefix!r} fits several sessions: {found}. Give more characters.")
    return Session.from_row(rows[0])


def _named(row: RowMapping) -> str:
    """Returns what somebody needs to choose among several."""
    title = " ".join((row["title"] or "").split())[:40]
    return f"{row['id']} ({row['source']}{f', “{title}”' if title else ''})"


def active(conn: Connection, key: str) -> Session | None:
    row = conn.execute(_ACTIVE, {"key": key}).mappings().first()
    return Session.from_row(row) if row else None


def last_ended(conn: Connection, key: str) -> Session | None:
    """The session of this key that has ended last."""
    ended = sessions.c.session_key == key, sessions.c.ended_at.is_not(None)
    query = select(sessions).where(*ended).order_by(sessions.c.ended_at.desc(), sessions.c.started_at.desc()).limit(1)
    row = conn.execute(query).mappings().first()
    return Session.from_row(row) if row else None


def around(conn: Connection, session_id: str, numbers: Iterable[int], room: int) -> list[int]:
    """Returns the ids of what was said around these messages, as much of it as `room` characters hold, in order."""
    from sessions.search.message_index import SAID

    query = select(messages.c.id, func.length(messages.c.content)).where(messages.c.session_id == session_id, SAID)
    rows = [(int(row[0]), int(row[1])) for row in conn.execute(query.order_by(messages.c.id))]
    place = {number: at for at, (number, _) in enumerate(rows)}
    centres = [place[number] for number in numbers if number in place]
    kept: set[int] = set()
    for distance in range(len(rows)):
        # One step further on both sides of each hit, until the room is used: all hits get the same share.
        new = {at + step for at in centres for step in (distance, -distance) if 0 <= at + step < len(rows)} - kept
        if not new:
            break
        for at in sorted(new):
            room -= rows[at][1]
            if room < 0 and kept:
                return [rows[i][0] for i in sorted(kept)]
            kept.add(at)
    return [rows[i][0] for i in sorted(kept)]


def last_of_person(conn: Connection, session_id: str) -> int | None:
    """The id of the last message of a person in this session."""
    mine = (messages.c.session_id == session_id, messages.c.role == Role.USER)
    return conn.scalar(select(func.max(messages.c.id)).where(*mine))


def messages_of(conn: Connection, numbers: Iterable[int]) -> list[Message]:
    """The messages with these ids, in order."""
    query = select(messages).where(messages.c.id.in_(list(numbers))).order_by(messages.c.id)
    return [Message.from_row(row) for row in conn.execute(query).mappings()]


_ENDED = select(sessions.c.id).where(sessions.c.session_key == param("key"), sessions.c.ended_at.is_not(None)).limit(1)


def has_ended(conn: Connection, key: str) -> bool:
    """Whether there is an ended session of this key."""
    return conn.scalar(_ENDED, {"key": key}) is not None


_AFTER = (
    select(messages)
    .where(messages.c.session_id == param("session"), messages.c.id > param("after"))
    .order_by(messages.c.id)
)


def messages_after(conn: Connection, session_id: str, after: int) -> list[Message]:
    """All messages of the session behind this one."""
    return [Message.from_row(row) for row in conn.execute(_AFTER, {"session": session_id, "after": after}).mappings()]


def newest(conn: Connection, source: str) -> Session | None:
    last = func.coalesce(sessions.c.last_user_at, sessions.c.started_at)
    row = (
        conn.execute(select(sessions).where(sessions.c.source == source).order_by(last.desc()).limit(1))
        .mappings()
        .first()
    )
    return Session.from_row(row) if row else None


def recent(
    conn: Connection,
    *,
    source: str | None = None,
    limit: int | None = 20,
    key: str | None = None,
    under: str | None = None,
    since: int | None = None,
) -> list[Session]:
    """Returns those with the latest activity, the newest first, without single responses that nobody has continued. `under`: the beginning
    of their keys. `since`: the time of their last activity.
    """

    def conditions() -> Iterable[ColumnElement[bool]]:
        if key is None:
            yield _is_conversation()
        yield from matching(source=source, key=key)
        if under is not None:
            yield sessions.c.session_key.startswith(under, autoescape=True)
        if since is not None:
            yield since <= _LAST_ACTIVITY

    wanted = tuple(conditions())
    ids = select(sessions.c.id).where(*wanted).order_by(*_NEWEST_FIRST).limit(limit)
    if key is None and limit is not None:
        # The newest by either time hold the newest by the later of both, and each of the two is read from its index.
        written = sessions.c.last_user_at.is_not(None), *wanted
        by_message = select(sessions.c.id).where(*written).order_by(sessions.c.last_user_at.desc()).limit(limit)
        by_start = select(sessions.c.id).where(*wanted).order_by(sessions.c.started_at.desc()).limit(limit)
        either = or_(*(sessions.c.id.in_(select(half.subquery().c.id)) for half in (by_message, by_start)))
        ids = select(sessions.c.id).where(either).order_by(*_NEWEST_FIRST).limit(limit)
    # The ids first: sorting whole rows would move all their prompts.
    query = select(sessions).where(sessions.c.id.in_(ids)).order_by(*_NEWEST_FIRST)
    return [Session.from_row(row) for row in conn.execute(query).mappings()]


def last_resets(conn: Connection, limit: int) -> list[Session]:
    """Returns the sessions that a policy has ended, the last one first."""
    query = (
        select(sessions)
        .where(sessions.c.end_reason.in_((EndReason.IDLE, EndReason.DAILY)), sessions.c.ended_at.is_not(None))
        .order_by(sessions.c.ended_at.desc())
        .limit(limit)
    )
    return [Session.from_row(row) for row in conn.execute(query).mappings()]


def _is_conversation() -> ColumnElement[bool]:
    of_chain = responses.c.session_key == sessions.c.session_key
    continued = select(responses.c.id).where(of_chain, responses.c.previous_id.is_not(None)).exists()
    return or_(~sessions.c.session_key.like("agent:%:response:%"), continued)


def matching(*, source: str | None = None, key: str | None = None) -> Iterable[ColumnElement[bool]]:
    if source is not None:
        yield sessions.c.source == source
    if key is not None:
        yield sessions.c.session_key == key


def chain(conn: Connection, session: Session) -> list[Session]:
    """Returns all sessions of the conversation that this one is a part of, oldest first."""
    found = [session]
    # `not in found` ends the walk where an import has brought a circle.
    while (parent := one(conn, sessions.c.id == found[0].parent_session_id)) is not None and parent not in found:
        found.insert(0, parent)
    while (child := one(conn, sessions.c.parent_session_id == found[-1].id)) is not None and child not in found:
        found.append(child)
    return found


def one(conn: Connection, condition: ColumnElement[bool]) -> Session | None:
    row = conn.execute(select(sessions).where(condition).order_by(sessions.c.id).limit(1)).mappings().first()
    return Session.from_row(row) if row else None


def read_messages(conn: Connection, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Message]:
    query = (
        select(messages)
        .where(messages.c.session_id == session_id, messages.c.id > after)
        .order_by(messages.c.id)
        .limit(limit)
    )
    return [Message.from_row(row) for row in conn.execute(query).mappings()]


def message_in(conn: Connection, ns: str, message_id: int) -> Message:
    """One message of this namespace. Raises NotFound for any other."""
    query = (
        select(messages)
        .join(sessions, sessions.c.id == messages.c.session_id)
        .where(messages.c.id == message_id, sessions.c.ns == ns)
    )
    row = conn.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"There is no message {message_id} here.")
    return Message.from_row(row)


def last_messages(conn: Connection, session_id: str, limit: int, *, before: int | None = None) -> list[Message]:
    """The newest `limit` messages, oldest first."""
    values = {"session": session_id, "before": _NO_ID if before is None else before, "most": limit}
    return [Message.from_row(row) for row in conn.execute(_LAST, values).mappings()][::-1]


def messages_of_run(conn: Connection, session_id: str, run_id: str, *, limit: int) -> list[Message]:
    """The newest `limit` messages of a run, oldest first."""
    query = select(messages).where(messages.c.session_id == session_id, messages.c.run_id == run_id)
    rows = conn.execute(query.order_by(messages.c.id.desc()).limit(limit)).mappings()
    return [Message.from_row(row) for row in rows][::-1]


def user_text(conn: Connection, session_id: str, *, newest: bool) -> str | None:
    """Returns what the user said last (or first: `newest` False). In a group, the first answered message, since others may have been
    overheard before.
    """
    mine = messages.c.session_id == session_id
    query = select(messages.c.content).where(mine, messages.c.role == Role.USER).order_by(messages.c.id.desc())
    if not newest:
        answer = select(func.min(messages.c.id)).where(mine, messages.c.role == Role.ASSISTANT).scalar_subquery()
        query = query.where(or_(answer.is_(None), messages.c.id < answer))
    return conn.scalar(query.limit(1))


_LABEL = 48


def label(conn: Connection, session: Session) -> str:
    """Returns the title of the session, or how it began."""
    return session.title or _excerpt(conn, session, newest=False) or session.id


def last_words(conn: Connection, session: Session) -> str:
    """Returns how the last message of the user begins."""
    return _excerpt(conn, session, newest=True)


def _excerpt(conn: Connection, session: Session, *, newest: bool) -> str:
    text = " ".join((user_text(conn, session.id, newest=newest) or "").split())
    return text if len(text) <= _LABEL else text[: _LABEL - 1].rstrip() + "…"


def last_text_of_run(conn: Connection, run_id: str, role: Role) -> str | None:
    """The last words of this run."""
    of_run = messages.c.session_id == select(runs.c.session_id).where(runs.c.id == run_id).scalar_subquery()
    query = select(messages.c.content).where(of_run, messages.c.run_id == run_id, messages.c.role == role)
    return conn.scalar(query.order_by(messages.c.id.desc()).limit(1))


def ended_before(conn: Connection, moment: int, *, source: str | None = None) -> list[str]:
    query = select(sessions.c.id).where(sessions.c.ended_at < moment).order_by(sessions.c.ended_at)
    for condition in matching(source=source):
        query = query.where(condition)
    return list(conn.scalars(query))


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
