"""Full-text search over the messages of one namespace or of all, and the index that it needs.

Messages are indexed some time after they were written, each with words of the messages before and after it. A session's messages are
indexed in order, and the last one again when it gets a successor. So the indexed words of a message can be computed from the rows and
`indexed_to` at any time. That is necessary to delete an entry: the index of SQLite does not store what was indexed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, func, or_, select, update

from sessions.db.schema import messages, sessions
from sessions.db.sql import param
from sessions.errors import Invalid
from sessions.records import Message, Role, Session
from sessions.search import postgres, sqlite
from sessions.search.days import Span
from sessions.search.query import (
    Entry,
    Query,
    SearchScope,
    any_of_its_words,
    content_words,
    namespace_token,
    parse,
    spaced,
)
from sessions.search.ranking import MOST_TERMS, merged

_NEIGHBOUR = 60  # content words of a neighbour
_CLIP = 100_000
_LONG = 500  # characters that cost as much as a message
_STREAMED, _TOGETHER = 10_000, 1_000
"""Messages that are read at a time to fill the index, and entries that are added at a time."""
_ROLES = {role.value: role for role in Role}
_NOBODY: dict[str, None] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    message: Message
    session: Session


# --- indexing -----------------------------------------------------------------------------------------------------------------


class _Said(NamedTuple):
    id: int
    content: str
    sender: str | None


class _Behind(NamedTuple):
    id: str
    ns: str
    indexed_to: int
    settled_to: int


SAID = and_(
    messages.c.content != "",
    or_(
        messages.c.role.in_((Role.USER, Role.ASSISTANT)),
        and_(messages.c.role == Role.TOOL, messages.c.sender.is_not(None)),
    ),
)
"""Messages of people and of the agent. Results of tools are left out, or earlier searches would come back as hits; except those that hold
a person's answer to a question (they have a sender)."""
_INDEXABLE = select(messages.c.id, messages.c.content, messages.c.sender).where(
    messages.c.session_id == param("session"), SAID
)
_KNOWN = _INDEXABLE.where(messages.c.id <= param("up_to")).order_by(messages.c.id.desc())
_LAST_KNOWN = _KNOWN.limit(3)
_FRESH = (
    _INDEXABLE.where(messages.c.id > param("above"), messages.c.id <= param("up_to"))
    .order_by(messages.c.id)
    .limit(param("limit"))
)
_BEHIND = (
    select(sessions.c.id, sessions.c.ns, sessions.c.indexed_to, sessions.c.settled_to)
    .where(sessions.c.indexed_to < sessions.c.settled_to)
    .limit(param("limit"))
    .with_for_update(skip_locked=True)  # PostgreSQL: whoever works on a session now gives it back in a moment
)
_BEHIND_IN_NAMESPACE = _BEHIND.where(sessions.c.ns == param("of"))
_MISSING = (
    select(messages.c.id)
    .select_from(sessions.join(messages, messages.c.session_id == sessions.c.id))
    .where(sessions.c.indexed_to < sessions.c.settled_to, sessions.c.ns == param("of"))
    .where(messages.c.id > sessions.c.indexed_to, messages.c.id <= sessions.c.settled_to)
    .limit(param("most"))
)
_COUNT_MISSING = select(func.count()).select_from(_MISSING.subquery())
_REACHED = update(sessions).where(sessions.c.id == param("session")).values(indexed_to=param("reached"))


def index_some(conn: Connection, limit: int = 300, *, ns: str | None = None) -> bool:
    """Indexes about `limit` messages, fewer when they are long; with `ns` of this namespace only. Returns True when there are more: then call it
    again, in a new transaction."""
    left = limit
    behind = (
        conn.execute(_BEHIND, {"limit": limit})
        if ns is None
        else conn.execute(_BEHIND_IN_NAMESPACE, {"limit": limit, "of": ns})
    )
    for row in behind.all():
        left -= _index_session(conn, _Behind(*row), left)
        if left <= 0:
            return True
    return False


def _said(conn: Connection, query: Select[*tuple[Any, ...]], **parameters: object) -> list[_Said]:
    return [_Said(*row) for row in conn.execute(query, parameters)]


def _index_session(conn: Connection, behind: _Behind, limit: int) -> int:
    token = namespace_token(behind.ns)
    known = _said(conn, _LAST_KNOWN, session=behind.id, up_to=behind.indexed_to)[::-1]
    # The next rows to index, and their cost: one for each, more for a long one.
    values = {"session": behind.id, "above": behind.indexed_to, "up_to": behind.settled_to, "limit": limit}
    fresh: list[_Said] = []
    cost = 0
    with conn.execute(_FRESH, values) as rows:
        for row in rows:
            fresh.append(_Said(*row))
            cost += 1 + min(len(fresh[-1].content), _CLIP) // _LONG
            if cost >= limit:
                break
    cost = max(cost, 1)
    entries = _entries([*known, *fresh], token)
    new = entries[len(known) :]
    if known and fresh:  # the last known one has got a successor
        stale, renewed = _entries(known, token)[-1], entries[len(known) - 1]
        if renewed != stale:
            _index(conn).remove(conn, [stale])
            new.insert(0, renewed)
    _index(conn).add(conn, new)
    reached = fresh[-1].id if fresh and cost >= limit else behind.settled_to
    conn.execute(_REACHED, {"session": behind.id, "reached": reached})
    return cost


def _entries(rows: Sequence[_Said], ns: str) -> list[Entry]:
    """Returns the index entries of these rows, which follow each other in one session. An entry is right only when the two rows before its
    own, where the session has them, are among `rows`."""
    texts = [spaced(row.content[:_CLIP]) for row in rows]
    own = [content_words(text) for text in texts]
    near = [words if len(words) <= _NEIGHBOUR else dict.fromkeys(islice(words, _NEIGHBOUR)) for words in own]
    near = [_NOBODY, _NOBODY, *near, _NOBODY]
    return [
        Entry(
            message_id=row.id,
            ns=ns,
            sender=spaced(row.sender or ""),
            text=texts[i],
            words=" ".join(own[i]),
            ctx=" ".join(near[i] | near[i + 1] | near[i + 3]),
        )
        for i, row in enumerate(rows)
    ]


def forget(conn: Connection, session_id: str) -> None:
    """Removes every message of this session from the index. When the session stays, it is indexed again later."""
    query = select(sessions.c.ns, sessions.c.indexed_to).where(sessions.c.id == session_id)
    found = conn.execute(query.with_for_update()).first()
    if found is None or not found.indexed_to:
        return
    rows = _said(conn, _KNOWN, session=session_id, up_to=found.indexed_to)[::-1]
    _index(conn).remove(conn, _entries(rows, namespace_token(found.ns)))
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(indexed_to=0))


_ALL_KNOWN = (
    select(messages.c.session_id, sessions.c.ns, messages.c.id, messages.c.content, messages.c.sender)
    .select_from(sessions.join(messages, messages.c.session_id == sessions.c.id))
    .where(messages.c.id <= sessions.c.indexed_to, SAID)
    .order_by(messages.c.session_id, messages.c.id)
    .execution_options(yield_per=_STREAMED)
)
COUNT_KNOWN = select(func.count()).select_from(_ALL_KNOWN.order_by(None).subquery())


def fill(conn: Connection, done: Callable[[int], None]) -> None:
    """Adds to an empty index every message that is indexed by its row. `done` is told how many more are."""
    with _index(conn).filling(conn), conn.execute(_ALL_KNOWN) as rows:
        entries: list[Entry] = []
        for (_, ns), of_session in groupby(rows, itemgetter(0, 1)):
            entries += _entries([_Said(*row[2:]) for row in of_session], namespace_token(ns))
            if len(entries) >= _STREAMED:
                _add_all(conn, entries, done)
                entries = []
        _add_all(conn, entries, done)


def _add_all(conn: Connection, entries: list[Entry], done: Callable[[int], None]) -> None:
    entries.sort(key=attrgetter("message_id"))  # FTS5 writes a segment whenever an id is smaller than the one before
    for start in range(0, len(entries), _TOGETHER):
        some = entries[start : start + _TOGETHER]
        _index(conn).add(conn, some)
        done(len(some))


def erase_step(conn: Connection) -> bool:
    """Rewrites a part of the index, so that no deleted word stays in it. Returns True when there is more to do."""
    return _index(conn).erase_step(conn)


def merge_step(conn: Connection) -> bool:
    """Merges parts of the index that were written one after the other, so that a search has few to look into. Returns True when there is more
    to do."""
    return _index(conn).merge_step(conn)


# --- searching ----------------------------------------------------------------------------------------------------------------


_PAGES = (40, 160, 800)
"""Sizes of the pages in which hits are read, best first, until enough of them are in the scope."""


class FoundMessage(NamedTuple):
    """What is shown of a message that was found."""

    id: int
    role: Role
    sender: str | None
    created_at: int
    content: str | None


def search(
    conn: Connection,
    query_text: str,
    *,
    ns: str | None = None,
    source: str | None = None,
    limit: int = 10,
    cut_off: int | None = None,
    without_run: str | None = None,
    also: Sequence[int] = (),
) -> list[Hit]:
    """Best hits first. `ns=None` is for the owner of the machine only. `also`: see `best`; phrases and operators are taken at their word.
    Raises Invalid for a query without letters or digits."""
    query = parse(query_text)
    if query is None:
        raise Invalid(
            f'{query_text!r} holds no letter or digit that could be searched. Give a word, a "phrase" or a prefix*.'
        )
    scope = SearchScope(ns=ns, without_run=without_run)
    also = () if query.literal else also
    found = best(conn, query, scope, limit=limit, source=source, cut_off=cut_off, also=also)
    # Words that are written together, such as `front-door`, follow each other in no message: each of them will do.
    if not found and not query.literal and (plain := any_of_its_words(query_text, MOST_TERMS)) is not None:
        found = best(conn, plain, scope, limit=limit, source=source, cut_off=cut_off, also=also)
    return found


def best(
    conn: Connection,
    query: Query,
    scope: SearchScope,
    *,
    limit: int,
    source: str | None = None,
    cut_off: int | None = None,
    recall: bool = False,
    also: Sequence[int] = (),
) -> list[Hit]:
    """The best hits of a parsed query in this scope. `recall`: see `found_messages`. `also`: what was found
    in another way, best first; both count by their ranks."""
    shown = found_messages(conn, query, scope, limit=limit, source=source, cut_off=cut_off, recall=recall, also=also)
    rows = conn.execute(_MESSAGES, {"ids": [each.id for each in shown]}).mappings().all() if shown else ()
    found = {row["id"]: Message.from_row(row) for row in rows}
    of_sessions = list({message.session_id for message in found.values()})
    rows = conn.execute(_SESSIONS, {"ids": of_sessions}).mappings() if found else ()
    by_session = {row["id"]: Session.from_row(row) for row in rows}
    return [Hit(message=found[each.id], session=by_session[found[each.id].session_id]) for each in shown]


def found_messages(
    conn: Connection,
    query: Query,
    scope: SearchScope,
    *,
    limit: int,
    source: str | None = None,
    cut_off: int | None = None,
    recall: bool = False,
    also: Sequence[int] = (),
) -> list[FoundMessage]:
    """Returns of the same hits only what is shown of them. With `recall` its time does not grow with the number of messages."""
    found = _index(conn).find(
        conn, query, scope, source, limit + sum(_PAGES[:2] if recall else _PAGES), cut_off, recall=recall
    )
    found = [number for number in (merged(found, also) if also else found) if number not in scope.without]
    chosen: list[FoundMessage] = []
    for size in (limit, *_PAGES):
        page, found = found[:size], found[size:]
        rows = _index(conn).read(conn, page) if page else ()
        chosen += [
            FoundMessage(number, _ROLES[role], sender, created_at, content)
            for number, role, sender, created_at, content, *where in rows
            if scope.takes(*where)
        ]
        if len(chosen) >= limit or not found:
            break
    return chosen[:limit]


_OF_DAY = 200
"""The most messages of one day that are looked at."""
_AT_THAT_TIME = (
    select(sessions.c.id)
    .where(sessions.c.ns == param("of"), sessions.c.started_at < param("ends"))
    .where(or_(sessions.c.ended_at.is_(None), sessions.c.ended_at >= param("begins")))
    .order_by(sessions.c.started_at.desc())
    .limit(20)
)
_AT_THAT_TIME_OF_KEY = _AT_THAT_TIME.where(sessions.c.session_key == param("key"))
_FROM_ID_ON = (
    select(messages.c.id, messages.c.created_at)
    .where(messages.c.session_id == param("session"), messages.c.id >= param("first"))
    .order_by(messages.c.id)
    .limit(1)
)
_LAST_ID = select(func.max(messages.c.id)).where(messages.c.session_id == param("session"))
_SAID_FROM = (
    select(messages.c.id, messages.c.role, messages.c.created_at)
    .where(messages.c.session_id == param("session"), messages.c.id >= param("first"), SAID)
    .order_by(messages.c.id)
    .limit(_OF_DAY)
)


def of_day(conn: Connection, span: Span, *, ns: str, key: str | None = None) -> list[int]:
    """Returns the ids of what was said on this day in the namespace, or under the key: what people said before what the agent said."""
    begins, ends = span
    statement = _AT_THAT_TIME if key is None else _AT_THAT_TIME_OF_KEY
    of_people: list[int] = []
    of_agent: list[int] = []
    for session in conn.scalars(statement, {"of": ns, "key": key, "begins": begins, "ends": ends}).all():
        values = {"session": session, "first": _first_since(conn, session, begins)}
        for number, role, created_at in conn.execute(_SAID_FROM, values):
            if begins <= created_at < ends:
                (of_agent if role is Role.ASSISTANT else of_people).append(number)
    return [*sorted(of_people), *sorted(of_agent)][:_OF_DAY]


def _first_since(conn: Connection, session: str, moment: int) -> int:
    """Returns an id from which on the messages of the session are of this moment or later. There is no index by time: the ids, which grow with
    time, are halved until it is found."""
    low, high = 0, (conn.scalar(_LAST_ID, {"session": session}) or 0) + 1
    while low < high:
        middle = (low + high) // 2
        row = conn.execute(_FROM_ID_ON, {"session": session, "first": middle}).first()
        if row is None or row.created_at >= moment:
            high = middle
        else:
            low = row.id + 1
    return low


def notes(conn: Connection, query: Query, ns: str, *, limit: int) -> list[int]:
    """Returns the ids of the notes of this namespace that share words with the query, best first."""
    return _index(conn).find_notes(conn, query.terms(), ns, limit)


_MESSAGES = select(messages).where(messages.c.id.in_(bindparam("ids", expanding=True)))
_SESSIONS = select(sessions).where(sessions.c.id.in_(bindparam("ids", expanding=True)))


def _index(conn: Connection):  # noqa: ANN202  # one of two modules with the same functions
    return sqlite if conn.dialect.name == "sqlite" else postgres


def lags(conn: Connection, ns: str, *, by: int) -> bool:
    """Returns whether more than `by` messages of this namespace are not indexed yet."""
    return (conn.scalar(_COUNT_MISSING, {"of": ns, "most": by + 1}) or 0) > by


def unindexed(conn: Connection) -> int:
    """Returns how many messages are not indexed yet; for metrics and benches."""
    behind = select(func.count()).select_from(messages.join(sessions, messages.c.session_id == sessions.c.id))
    return conn.scalar(behind.where(messages.c.id > sessions.c.indexed_to)) or 0
