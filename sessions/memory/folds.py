"""The transactions of a fold. A fold takes messages of one session, under a lease on its namespace.

It is committed only if nothing that it was made from has changed since. After a crash the model call is repeated when it was not
committed, and nothing is repeated when it was.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Integer, LargeBinary, and_, case, cast, func, or_, select, update

from sessions import lease_owners, runs, store
from sessions.db.schema import folds, memory_state, messages, observations, sessions
from sessions.db.schema import runs as runs_table
from sessions.db.sql import insert_or_ignore, lock, param
from sessions.errors import NotFound
from sessions.memory import forgotten
from sessions.memory.digest import changed, ensure, state
from sessions.memory.observations import add, find_open, get_open, lock_memory, matching, open_notes
from sessions.records import Message, Observation, Role, RunKind, Session
from sessions.search import message_index
from sessions.search.message_index import SAID
from sessions.search.query import any_of_its_words, stems

OVERHEAD = 8
"""What a message costs beside its text, in tokens."""
CANDIDATES, FOR_EACH = 20, 3
LONGEST_PAUSE_MS = 30 * 60_000
"""Folds are put off for no longer. A pause that seems to be longer began before the clock was set back."""
_FAREWELL = select(runs_table.c.id).where(runs_table.c.kind == RunKind.FAREWELL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfolded:
    """What of a session is not folded yet: how much, in tokens, how many messages, and since when it is silent. `asks`: somebody asks in it to
    remember something, or the agent says that it has noted something: small models say so without a call."""

    session_id: str
    ns: str
    source: str
    ended: bool
    tokens: int
    count: int
    last_at: int
    asks: bool


_ASKS = (
    "%remember%",
    "%don_t forget%",
    "%do not forget%",
    "%note that%",
    "%make a note%",
    "%keep in mind%",
    "%merk dir%",
)
_SAYS_SO = (
    "%i noted%",
    "%i remembered%",
    "%i_ve noted%",
    "%i have noted%",
    "%i saved%",
    "%i_ve saved%",
    "%i have saved%",
    "%i_ll remember%",
)


def unfolded(conn: Connection, session_ids: Collection[str] | None = None) -> list[Unfolded]:
    """Returns what is not folded yet of these sessions; None: of all. Sessions without such messages are left out."""
    # Bytes, as `cost` counts them: `length` of a text counts characters.
    size = (
        func.length(cast(messages.c.content, LargeBinary))
        if conn.dialect.name == "sqlite"
        else func.octet_length(messages.c.content)
    )
    past = func.coalesce(folds.c.folded_to, 0)
    said = func.lower(messages.c.content).like
    asks = or_(
        and_(messages.c.role == Role.USER, or_(*map(said, _ASKS))),
        and_(messages.c.role == Role.ASSISTANT, or_(*map(said, _SAYS_SO))),
    )
    query = (
        select(
            sessions.c.id,
            sessions.c.ns,
            sessions.c.source,
            sessions.c.ended_at,
            cast(func.sum(size) / 4 + func.count() * OVERHEAD, Integer).label("tokens"),
            func.count().label("count"),
            func.max(messages.c.created_at).label("last_at"),
            func.max(case((asks, 1), else_=0)).label("asks"),
        )
        .select_from(sessions)
        .join(folds, folds.c.session_id == sessions.c.id, isouter=True)
        .join(messages, messages.c.session_id == sessions.c.id)
        # The first condition rules out sessions before any message of them is read.
        .where(sessions.c.settled_to > past, messages.c.id > past, messages.c.id <= sessions.c.settled_to, SAID)
        .group_by(sessions.c.id, sessions.c.ns, sessions.c.source, sessions.c.ended_at)
    )
    if session_ids is not None:
        query = query.where(sessions.c.id.in_(session_ids))
    return [
        Unfolded(
            session_id=row.id,
            ns=row.ns,
            source=row.source,
            ended=row.ended_at is not None,
            tokens=row.tokens,
            count=row[5],  # `row.count` is a method of every row
            last_at=row.last_at,
            asks=bool(row.asks),
        )
        for row in conn.execute(query)
    ]


_FOLDED_TO = select(folds.c.folded_to).where(folds.c.session_id == param("session"))


def folded_to(conn: Connection, session_id: str) -> int:
    """Returns the id of the last folded message of the session; 0: none is."""
    return conn.scalar(_FOLDED_TO, {"session": session_id}) or 0


def count_unfolded(conn: Connection, session_id: str, *, before: int, most: int = 500) -> int:
    """Returns how many messages before this one are not folded, and `most` when there are more."""
    mine = (messages.c.session_id == session_id, messages.c.id > folded_to(conn, session_id), messages.c.id < before)
    found = select(messages.c.id).where(*mine, SAID).limit(most).subquery()
    return conn.scalar(select(func.count()).select_from(found)) or 0


def skip(conn: Connection, session_id: str) -> None:
    """Marks all messages of the session as folded, so that no model call is spent on them. For imported sessions; search finds them."""
    row = conn.execute(select(sessions.c.ns, sessions.c.settled_to).where(sessions.c.id == session_id)).one()
    if insert_or_ignore(conn, folds, {"session_id": session_id, "ns": row.ns}):
        conn.execute(update(folds).where(folds.c.session_id == session_id).values(folded_to=row.settled_to))


def begin(conn: Connection, ns: str, owner: str, now: int, *, lease_ms: int) -> bool:
    """Takes the lease on folding in this namespace. Returns False when a living process holds it, or when a failure has put folds off."""
    lock_memory(conn, ns)
    current = state(conn, ns)
    held = current.lease_owner is not None and (current.lease_until or 0) > now and current.lease_owner != owner
    # The lease of a killed process is free at once: it would hold up all folds here for minutes.
    if now < current.retry_at <= now + LONGEST_PAUSE_MS or (
        held and not lease_owners.is_gone(conn, current.lease_owner or "")
    ):
        return False
    ensure(conn, ns)
    taken = {"lease_owner": owner, "lease_until": now + lease_ms}
    conn.execute(update(memory_state).where(memory_state.c.ns == ns).values(taken))
    return True


def release(conn: Connection, ns: str, owner: str) -> None:
    """Gives the lease back."""
    mine = (memory_state.c.ns == ns, memory_state.c.lease_owner == owner)
    conn.execute(update(memory_state).where(*mine).values(lease_owner=None, lease_until=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldMaterial:
    """What one fold is made from. `up_to`: id of the last message that is marked as folded when the fold is committed."""

    session: Session
    rev: int
    folded_to: int
    up_to: int
    digest: str
    fails: int
    messages: Sequence[Message]
    candidates: Sequence[Observation]


def material(conn: Connection, session_id: str, *, keep: int, most: int) -> FoldMaterial | None:
    """Returns the oldest messages that are not folded, up to `most` tokens, without the newest `keep` tokens; None: there are none.

    Messages of an active run are left for a later fold. Messages of farewell runs are left out, because no person wrote the request.
    """
    try:
        session = store.get(conn, session_id)
    except NotFound:
        return None
    past = folded_to(conn, session_id)
    end = conn.scalar(select(sessions.c.settled_to).where(sessions.c.id == session_id)) or 0
    active = runs.active(conn, session.session_key)
    waiting = active.id if active is not None and active.session_id == session_id else ""
    first = conn.scalar(
        select(func.min(messages.c.id)).where(messages.c.session_id == session_id, messages.c.run_id == waiting)
    )
    end = min(end, first - 1) if first else end
    if end <= past:
        return None
    mine = (messages.c.session_id == session_id, messages.c.id > past, messages.c.id <= end, SAID)
    own = func.coalesce(messages.c.run_id, "").not_in(_FAREWELL)
    rows = conn.execute(select(messages).where(*mine, own).order_by(messages.c.id)).mappings()
    said = [Message.from_row(row) for row in rows]
    left = sum(map(cost, said))
    taken: list[Message] = []
    used = 0
    for message in said:
        size = min(cost(message), most)
        # The first one is always taken: a message larger than `most` would hold up all after it.
        if left <= keep or (taken and used + size > most):
            break
        taken.append(message)
        used += size
        left -= cost(message)
    if not taken and said:
        return None
    # With all that was said the mark also passes what was left out, which nobody has to read again.
    now = state(conn, session.ns)
    return FoldMaterial(
        session=session,
        rev=now.rev,
        folded_to=past,
        up_to=end if len(taken) == len(said) else taken[-1].id,
        digest=now.digest,
        fails=now.fails,
        messages=taken,
        candidates=_candidates(conn, session.ns, taken),
    )


def cost(message: Message) -> int:
    """Returns the estimated tokens of the message in a fold."""
    return len((message.content or "").encode("utf-8", "replace")) // 4 + OVERHEAD


def _candidates(conn: Connection, ns: str, said: Sequence[Message]) -> list[Observation]:
    """Returns the open notes that the model may replace, in the order of their numbers, at most CANDIDATES: for each message of a person
    the three that share most words with it, then the newest."""
    chosen: dict[int, Observation] = {}
    for message in said:
        query = any_of_its_words(message.content or "", 12) if message.role is not Role.ASSISTANT else None
        if query is not None and len(chosen) < CANDIDATES:
            numbers = message_index.notes(conn, query, ns, limit=4 * FOR_EACH)  # some of them are closed
            still = {
                each.id: each
                for each in matching(conn, observations.c.id.in_(numbers), observations.c.closed_at.is_(None))
            }
            chosen |= {number: still[number] for number in [n for n in numbers if n in still][:FOR_EACH]}
    alike = dict(list(chosen.items())[:CANDIDATES])
    # A change may be told in other words: `merged into a monolith` shares none with `committed to microservices`.
    newest = {each.id: each for each in open_notes(conn, ns, limit=CANDIDATES)}
    fill = [number for number in sorted(newest, reverse=True) if number not in alike][: CANDIDATES - len(alike)]
    return [(alike | newest)[number] for number in sorted([*alike, *fill])]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObservation:
    """A note that a fold has found and that has passed the checks."""

    kind: str
    text: str
    src: tuple[int, ...]
    cause: str | None = None
    happened: str | None = None
    replaces: int | None = None
    asked_as: tuple[str, ...] = ()


def commit(
    conn: Connection, folded: FoldMaterial, found: Sequence[NewObservation], digest: str | None, now: int
) -> int | None:
    """Stores new notes, the closing of replaced ones, the digest and how far the session is folded. `digest` None: the old one stays.
    Returns how many notes are new. Returns None, and stores nothing, when something has changed since the material was read."""
    ns, session_id = folded.session.ns, folded.session.id
    lock_memory(conn, ns)
    current = state(conn, ns)
    if (
        current.rev != folded.rev
        or folded_to(conn, session_id) != folded.folded_to
        or not store.exists(conn, session_id)
    ):
        return None
    gone = forgotten.of_namespace(conn, ns)
    wanted = [each for each in found if not gone.holds(f"{each.text} {each.cause or ''}", each.src)]
    said_at = {message.id: message.created_at for message in folded.messages}
    new = sum(
        _take_in(conn, folded, each, max((said_at.get(number, now) for number in each.src), default=now))
        for each in wanted
    )
    values = {"session_id": folded.session.id, "ns": folded.session.ns}
    insert_or_ignore(conn, folds, values)
    conn.execute(update(folds).where(folds.c.session_id == folded.session.id).values(folded_to=folded.up_to))
    kept = current.digest if digest is None else gone.without(digest)
    changed(conn, ns, revises=True, digest=kept or None, fails=0, retry_at=0)
    return new


def _take_in(conn: Connection, folded: FoldMaterial, each: NewObservation, said_at: int) -> bool:
    """Adds the note. Returns False when it is known already; then the known note gets more weight instead."""
    ns = folded.session.ns
    # The same text, or the same stems in another order.
    known = find_open(conn, ns, each.text) or next(
        (old for old in folded.candidates if stems(old.text) == stems(each.text) and old.id != each.replaces), None
    )
    if known is not None:
        heavier = observations.c.weight + 1
        conn.execute(update(observations).where(observations.c.id == known.id).values(weight=heavier))
        return False
    values = {
        "kind": each.kind,
        "text": each.text,
        "cause": each.cause,
        "happened": each.happened,
        "said_at": said_at,
        "src": list(each.src),
        "session_id": folded.session.id,
        # The tool, or an earlier note of this fold, may have closed the replaced one meanwhile.
        "supersedes": each.replaces if _is_open(conn, ns, each.replaces) else None,
        "fold": folded.rev + 1,
        "weight": 1,
        "asked_as": list(each.asked_as) or None,
    }
    add(conn, ns, values, said_at)
    return True


def _is_open(conn: Connection, ns: str, number: int | None) -> bool:
    try:
        return number is not None and get_open(conn, ns, number).id == number
    except NotFound:
        return False


def put_off(conn: Connection, ns: str, until: int, *, failed: bool) -> int:
    """Puts folds of this namespace off until this time. `failed`: the messages seem to be the cause, so the failure is counted. Returns the
    count of failures."""
    lock_memory(conn, ns)
    ensure(conn, ns)
    fails = state(conn, ns).fails + failed
    conn.execute(update(memory_state).where(memory_state.c.ns == ns).values(fails=fails, retry_at=until))
    return fails


def give_up(conn: Connection, folded: FoldMaterial, line: str, now: int) -> int | None:
    """Marks these messages as folded after too many failures, with `line` as their only note. Returns as `commit` does."""
    numbers = tuple(message.id for message in folded.messages)
    return commit(conn, folded, [NewObservation(kind="event", text=line, src=numbers[:1] + numbers[-1:])], None, now)


def continue_if_long(conn: Connection, session_id: str, now: int) -> Session | None:
    """Ends a session of very many folded messages and opens a child that continues it. Returns the child; None when the session is not long
    enough, has ended, or has an active run."""
    session = store.get(conn, session_id)
    lock(conn, session.session_key)
    mine = (messages.c.session_id == session_id, messages.c.id <= folded_to(conn, session_id))
    if session.ended_at is not None or runs.active(conn, session.session_key) is not None:
        return None
    if (conn.scalar(select(func.count()).select_from(messages).where(*mine)) or 0) <= store.CHAIN_LENGTH:
        return None
    return store.continue_in_child(conn, session, now)
