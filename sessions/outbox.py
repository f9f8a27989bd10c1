"""The outbox table: messages that have to be sent, their order, state and number of tries, and undelivered messages. Adapters never retry.

When a message is sent again, `retry_decision` in `gateway/chats/delivery.py` decides.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, delete, exists, func, insert, or_, select, update

from sessions import audit, codec, lease_owners
from sessions.db.engine import touch
from sessions.db.schema import OUT_OPEN, RUN_ACTIVE, outbox, runs
from sessions.db.sql import insert_once, param
from sessions.keys import Address
from sessions.messages import Content, Piece
from sessions.records import OutRow, OutState, Route
from sessions.topics import Topic

MAX_AGE_MS = 3_600_000
"""A message whose first sending may have arrived is not tried again after this long."""

FURTHER_TRIES = 3
"""How often it is tried again before that."""

LONGEST_WAIT_MS = 3_600_000
"""No row is put off for longer. One that seems to be is due: the machine's clock was set back meanwhile."""

FILE = "file:"
"""How the keys of messages begin that carry a file of the agent."""


def put(
    conn: Connection,
    route: Route,
    content: Content,
    now: int,
    *,
    dedup_key: str,
    session_key: str,
    run_id: str | None = None,
) -> bool:
    """Inserts a row. Returns False when a row of this dedup key is there already."""
    body = codec.plain(Content, content)
    return _insert(conn, route, body, now, dedup_key=dedup_key, session_key=session_key, run_id=run_id)


def _insert(
    conn: Connection,
    route: Route,
    body: dict[str, Any],
    now: int,
    *,
    dedup_key: str,
    session_key: str,
    run_id: str | None = None,
) -> bool:
    values = {
        "dedup_key": dedup_key,
        "platform": route.address.platform,
        "chat": route.address.chat_id,
        "address": route,
        "session_key": session_key,
        "run_id": run_id,
        "body": codec.dump(body),
        "state": OutState.PENDING,
        "due_at": now,
        "created_at": now,
    }
    added = insert_once(conn, outbox, values)
    touch(conn, Topic.OUTBOX, route.address.platform)
    return added is not None


def follow(conn: Connection, dedup_key: str, then: Content | int, now: int) -> None:
    """Inserts a row behind the message of that key, once, into the same chat; nothing where there was no such message. `then`: what it says;
    or, where that message is a card, the number of its ask: the card loses its buttons.
    """
    query = select(outbox.c.address, outbox.c.session_key).where(outbox.c.dedup_key == dedup_key)
    if (found := conn.execute(query).first()) is not None:
        key = f"{dedup_key}:then"
        body = {"closes": then} if isinstance(then, int) else codec.plain(Content, then)
        _insert(conn, found.address, body, now, dedup_key=key, session_key=found.session_key)


def previous_message_ids(conn: Connection, row: OutRow) -> list[str]:
    """Returns the platform's ids of the message that this one follows, piece by piece; empty when it has not arrived."""
    first = select(outbox.c.id).where(outbox.c.dedup_key == row.dedup_key.removesuffix(":then")).scalar_subquery()
    pieces = select(outbox.c.platform_ids).where(or_(outbox.c.id == first, outbox.c.root == first))
    ids = conn.scalars(pieces.order_by(outbox.c.part)).all()
    # A piece without an id has not arrived, so the message as a whole cannot be edited yet.
    return [names[0] for names in ids] if all(ids) else []


def claim(
    conn: Connection,
    platform: str,
    owner: str,
    now: int,
    *,
    lease_ms: int,
    limit: int = 200,
    busy_chats: Sequence[str] = (),
    chat: str | None = None,
) -> list[OutRow]:
    """The next row of every chat (or of one) that is due, taken under a lease. A row waits for all earlier ones of its chat."""
    values = {"on": platform, "who": owner, "now": now, "until": now + lease_ms, "most": limit}
    values |= {"busy": list(busy_chats)} if chat is None else {"one": chat}
    rows = conn.execute(_claiming(conn.dialect.name, one_chat=chat is not None), values).mappings()
    # RETURNING promises no order.
    return sorted((OutRow.from_row(row) for row in rows), key=lambda row: row.id)


_DUE = or_(
    outbox.c.due_at <= param("now"),
    # Never put off: due whatever the clock was when it was written.
    outbox.c.due_at <= outbox.c.created_at,
    outbox.c.due_at > param("now") + LONGEST_WAIT_MS,
)


@lru_cache
def _claiming(dialect: str, *, one_chat: bool) -> Any:
    """Returns the statement, built once, because it runs for every message."""
    earlier = outbox.alias()
    mine, theirs = _place(outbox.c), _place(earlier.c)
    blocked = exists().where(
        earlier.c.platform == outbox.c.platform,
        earlier.c.chat == outbox.c.chat,
        OUT_OPEN,
        or_(theirs < mine, and_(theirs == mine, earlier.c.part < outbox.c.part)),
    )
    free = or_(
        outbox.c.lease_until.is_(None), outbox.c.lease_until < param("now"), outbox.c.lease_owner == param("who")
    )
    chats = outbox.c.chat == param("one") if one_chat else outbox.c.chat.not_in(bindparam("busy", expanding=True))
    due = (
        select(outbox.c.id)
        .where(outbox.c.platform == param("on"), OUT_OPEN, _DUE, free, ~blocked, chats)
        .order_by(mine, outbox.c.part)
        .limit(param("most"))
    )
    if dialect != "sqlite":
        # Two workers claim at once on PostgreSQL: each takes what the other has not locked.
        due = due.with_for_update(skip_locked=True)
    taken = update(outbox).where(outbox.c.id.in_(due.scalar_subquery()))
    return taken.values(lease_owner=param("who"), lease_until=param("until")).returning(outbox)


def _place(columns: Any) -> Any:
    """Returns the position of a row in its chat: pieces stand where the whole message stood."""
    return func.coalesce(columns.root, columns.id)


_RENDERED = (
    update(outbox)
    .where(outbox.c.id == param("row"), ~outbox.c.rendered)
    .values(body=param("piece"), rendered=True, state=param("is"), attempts=outbox.c.attempts + 1)
    .returning(outbox)
)
_PIECE = insert(outbox)


def split(conn: Connection, row: OutRow, pieces: Sequence[Piece], *, edits: bool = False) -> tuple[OutRow, Piece]:
    """Replaces a message by its pieces, in its place, and marks the first as being sent, or edited. Returns the first row and its piece. A
    message that is split already stays as it is: some of its pieces may have been sent.
    """
    bodies = [codec.dump(piece) for piece in pieces]
    state = row.state if edits else OutState.SENDING
    first = conn.execute(_RENDERED, {"row": row.id, "piece": bodies[0], "is": state}).mappings().first()
    if first is None:
        (mark_editing if edits else mark_sending)(conn, row.id)
        first = conn.execute(select(outbox).where(outbox.c.id == row.id)).mappings().one()
        row = OutRow.from_row(first)
        return row, row.piece or {}
    shared = {
        "platform": row.platform,
        "chat": row.chat,
        "address": row.route,
        "session_key": row.session_key,
        "run_id": row.run_id,
        "rendered": True,
        "state": OutState.PENDING,
        "due_at": row.created_at,
        "created_at": row.created_at,
        "root": row.id,
    }
    for part, body in enumerate(bodies[1:], 1):
        conn.execute(_PIECE, {**shared, "part": part, "dedup_key": f"{row.dedup_key}:{part}", "body": body})
    return OutRow.from_row(first), pieces[0]


_NEARBY = 50
_BETWEEN = (
    select(outbox.c.id)
    .where(
        outbox.c.id < param("row"),
        outbox.c.id >= param("row") - _NEARBY,
        outbox.c.platform == param("on"),
        outbox.c.chat == param("one"),
        func.coalesce(outbox.c.run_id, "") != param("run"),
        outbox.c.created_at >= select(runs.c.created_at).where(runs.c.id == param("run")).scalar_subquery(),
    )
    .limit(1)
)


def came_between(conn: Connection, row: OutRow) -> bool:
    """Returns whether the chat was sent something else since this row's run began. Reads the nearest rows only."""
    if row.run_id is None:
        return False
    values = {"row": row.id, "on": row.platform, "one": row.chat, "run": row.run_id}
    return conn.execute(_BETWEEN, values).first() is not None


_TRYING = update(outbox).where(outbox.c.id == param("row")).values(attempts=outbox.c.attempts + 1)
_SENDING = _TRYING.values(state=OutState.SENDING)


def mark_sending(conn: Connection, row_id: int) -> None:
    """Marks the row as being sent. After a crash it is unknown whether the message arrived."""
    conn.execute(_SENDING, {"row": row_id})


def mark_editing(conn: Connection, row_id: int) -> None:
    """Marks the row as being edited. An edit may be repeated, so a crash leaves no doubt."""
    conn.execute(_TRYING, {"row": row_id})


_SENT = (
    update(outbox)
    .where(outbox.c.id == param("row"))
    .values(
        state=OutState.SENT,
        sent_at=param("now"),
        platform_ids=param("names"),
        lease_owner=None,
        lease_until=None,
        last_error=None,
    )
)


def mark_sent(conn: Connection, row_id: int, message_id: str, now: int) -> None:
    """Marks the row as sent, under the platform's id."""
    conn.execute(_SENT, {"row": row_id, "now": now, "names": [message_id]})
    touch(conn, Topic.SENT, str(row_id))


def put_off(conn: Connection, row_id: int, due_at: int, error: str, *, ambiguous: bool) -> None:
    """Lets the row be tried again at `due_at`. `ambiguous`: it may have arrived; the caller gives up after too many such sends."""
    doubts = outbox.c.doubts + (1 if ambiguous else 0)
    state = case((doubts > 0, OutState.UNKNOWN), else_=OutState.PENDING)
    conn.execute(
        update(outbox)
        .where(outbox.c.id == row_id)
        .values(state=state, doubts=doubts, due_at=due_at, last_error=error, lease_owner=None, lease_until=None)
    )


def give_up(conn: Connection, row_id: int, error: str) -> None:
    conn.execute(
        update(outbox)
        .where(outbox.c.id == row_id)
        .values(state=OutState.DEAD, last_error=error, lease_owner=None, lease_until=None)
    )


_NEWEST = 20_000


def failed_later(conn: Connection, platform: str, message_id: str, error: str) -> OutRow | None:
    """Marks a message as undelivered that the platform had accepted and could not deliver. Returns its row; None for a message that is
    not ours or not among the newest.
    """
    newest = select(func.max(outbox.c.id)).scalar_subquery()
    changed = conn.execute(
        update(outbox)
        .where(
            outbox.c.id > newest - _NEWEST,
            outbox.c.platform == platform,
            # There is no index on these ids, since this is rare: only the newest rows are looked at.
            outbox.c.platform_ids == [message_id],
            outbox.c.state == OutState.SENT,
        )
        .values(state=OutState.DEAD, last_error=error)
        .returning(outbox)
    )
    row = changed.mappings().first()
    return None if row is None else OutRow.from_row(row)


def chats_since(conn: Connection, platform: str, since: int) -> list[Address]:
    """Returns the chats to which messages went since then."""
    query = select(outbox.c.address).where(outbox.c.platform == platform, outbox.c.created_at >= since).distinct()
    return list(dict.fromkeys(route.address for route in conn.scalars(query)))


def give_up_chat(conn: Connection, platform: str, chat: str, error: str) -> int:
    """Gives up everything that waits for this chat. Returns the number of rows."""
    waiting = update(outbox).where(outbox.c.platform == platform, outbox.c.chat == chat, OUT_OPEN)
    return conn.execute(waiting.values(state=OutState.DEAD, last_error=error)).rowcount


def interrupted(conn: Connection, platform: str, now: int) -> list[OutRow]:
    """Handles what a dead process was sending, which may have arrived. Returns the rows that are not tried again: they were
    tried too often, or are too old.
    """
    old = outbox.c.created_at < now - MAX_AGE_MS
    hopeless = or_(old, outbox.c.doubts >= FURTHER_TRIES)
    cut_off = and_(outbox.c.state == OutState.SENDING, outbox.c.lease_until < now)
    forgotten = and_(outbox.c.state == OutState.UNKNOWN, old)
    changed = conn.execute(
        update(outbox)
        .where(outbox.c.platform == platform, OUT_OPEN, or_(cut_off, forgotten))
        .values(
            state=case((hopeless, OutState.DEAD), else_=OutState.UNKNOWN),
            # The sending that was cut off is itself a doubtful one.
            doubts=outbox.c.doubts + 1,
            last_error="interrupted while sending: it may have arrived",
            lease_owner=None,
            lease_until=None,
        )
        .returning(outbox)
    ).mappings()
    return [row for row in map(OutRow.from_row, changed) if row.state is OutState.DEAD]


def release(conn: Connection, platform: str, rows: Sequence[int]) -> None:
    """Frees these rows, which nobody sends any more."""
    conn.execute(
        update(outbox)
        .where(outbox.c.platform == platform, outbox.c.id.in_(rows), OUT_OPEN)
        # In the past and not NULL: `interrupted` looks for leases that have run out.
        .values(lease_until=0)
    )


_CLAIMED = select(outbox.c.id, outbox.c.chat, outbox.c.lease_owner, outbox.c.lease_until).where(
    outbox.c.platform == param("on"), OUT_OPEN, outbox.c.lease_owner.is_not(None)
)


def left_claimed(
    conn: Connection, platform: str, owner: str, busy_chats: Collection[str], *, alone: bool = False
) -> list[int]:
    """Returns the rows that are claimed and sent by nobody: by a process that is gone, or by this one in a chat that it does not send to.
    `alone`: only this process may send now, so every other is gone."""
    claimed = conn.execute(_CLAIMED, {"on": platform}).all()
    others = {row.lease_owner for row in claimed} - {owner}
    gone = others if alone else {by for by in others if lease_owners.is_gone(conn, by)}
    return [
        row.id
        for row in claimed
        if row.lease_until and (row.lease_owner in gone or (row.lease_owner == owner and row.chat not in busy_chats))
    ]


_NEXT_DUE = select(func.min(case((_DUE, 0), else_=outbox.c.due_at))).where(outbox.c.platform == param("on"), OUT_OPEN)


def next_due(conn: Connection, platform: str, now: int) -> int | None:
    """Returns when the next row is due; 0: now."""
    return conn.scalar(_NEXT_DUE, {"on": platform, "now": now})


def dead_letters(conn: Connection, limit: int = 100) -> list[OutRow]:
    rows = conn.execute(
        select(outbox).where(outbox.c.state == OutState.DEAD).order_by(outbox.c.id.desc()).limit(limit)
    ).mappings()
    return [OutRow.from_row(row) for row in rows]


def send_again(conn: Connection, row_id: int, now: int) -> bool:
    """Queues an undelivered message again. False when there is none of this number."""
    revived = conn.execute(
        update(outbox)
        .where(outbox.c.id == row_id, outbox.c.state == OutState.DEAD)
        # `created_at` anew: its age would make it undeliverable again at the first doubt.
        .values(state=OutState.PENDING, attempts=0, doubts=0, due_at=now, created_at=now)
        .returning(outbox.c.platform)
    ).scalar()
    if revived is not None:
        touch(conn, Topic.OUTBOX, revived)
    return revived is not None


def drop(conn: Connection, row_id: int, now: int, *, by: str) -> bool:
    """Deletes an undelivered message. False when there is none of this number. `by`: for the audit."""
    dropped = delete(outbox).where(outbox.c.id == row_id, outbox.c.state == OutState.DEAD).returning(outbox.c.platform)
    platform = conn.execute(dropped).scalar()
    if platform is not None:
        audit.record(conn, now, by, "message.dropped", f"outbox:{row_id}", platform)
        touch(conn, Topic.OUTBOX, platform)
    return platform is not None


def prune(conn: Connection, before: int, limit: int) -> int:
    """Deletes messages that were sent or given up before this time, and returns how many. Chats with a run at work keep theirs: a card
    that waits for an answer has to be found.
    """
    is_over = outbox.c.state.in_((OutState.SENT, OutState.DEAD))
    at_work = exists().where(RUN_ACTIVE, runs.c.session_key == outbox.c.session_key)
    old = select(outbox.c.id).where(is_over, outbox.c.created_at < before, ~at_work).order_by(outbox.c.id).limit(limit)
    return conn.execute(delete(outbox).where(outbox.c.id.in_(old))).rowcount


def unsent_files(conn: Connection) -> list[str]:
    """Returns the keys of messages with a file that wait, or are undelivered and may be sent again. Of answers that are said aloud, too."""
    key = outbox.c.dedup_key
    has_file = or_(and_(key >= FILE, key < "file;"), outbox.c.body.contains('"path": ', autoescape=True))
    found = conn.execute(select(key, outbox.c.part).where(has_file, outbox.c.state != OutState.SENT))
    # The file belongs to the whole message, also where a piece of it is what waits.
    return [key.removesuffix(f":{part}") if part else key for key, part in found]


def waiting(conn: Connection) -> dict[str, int]:
    """Returns platform → messages that are still to be sent."""
    query = select(outbox.c.platform, func.count()).where(OUT_OPEN).group_by(outbox.c.platform)
    return {row[0]: row[1] for row in conn.execute(query)}


def counts(conn: Connection) -> dict[tuple[str, str], int]:
    """Returns (platform, state) → rows, of those that are not sent."""
    query = select(outbox.c.platform, outbox.c.state, func.count()).where(outbox.c.state != OutState.SENT)
    return {
        (platform, state): count
        for platform, state, count in conn.execute(query.group_by(outbox.c.platform, outbox.c.state))
    }
