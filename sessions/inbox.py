"""The inbox: everything that came in, and what became of it.

The unique key of a row recognises repeated events; its commit comes before the platform's acknowledgement.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, delete, func, select, update

from sessions.db.schema import deleted_keys, inbox, meta
from sessions.db.sql import insert_once, insert_or_ignore, lock, param
from sessions.records import InboxKind, InboxOutcome, InboxRow, Message


def put(
    conn: Connection, new: InboxRow, now: int, *, outcome: InboxOutcome | None = None, run_id: str | None = None
) -> int | None:
    """Inserts a row and returns its id; None when a row of this dedup key is there already, or was there in a session that was deleted."""
    if new.route is not None and is_deleted(conn, new.dedup_key):  # only platforms repeat an event so late
        return None
    return insert_once(
        conn,
        inbox,
        {
            "dedup_key": new.dedup_key,
            "session_key": new.session_key,
            "kind": new.kind,
            "mode": new.mode,
            "body": new.body(),
            "route": new.route,
            "fingerprint": new.fingerprint,
            "created_at": now,
            "outcome": outcome,
            "run_id": run_id,
        },
    )


_BY_DEDUP_KEY = select(inbox).where(inbox.c.dedup_key == param("dedup"))


def by_dedup_key(conn: Connection, dedup_key: str) -> InboxRow | None:
    row = conn.execute(_BY_DEDUP_KEY, {"dedup": dedup_key}).mappings().first()
    return InboxRow.from_row(row) if row else None


_LEFT = update(inbox).where(inbox.c.dedup_key == param("dedup")).values(left_at=param("at"))


def note_left(conn: Connection, dedup_key: str, at: int | None) -> None:
    """Notes when the caller left before the answer; None: the caller is back."""
    conn.execute(_LEFT, {"dedup": dedup_key, "at": at})


_UNREAD = select(inbox).where(inbox.c.session_key == param("key"), inbox.c.outcome.is_(None)).order_by(inbox.c.id)


def unread(conn: Connection, session_key: str) -> list[InboxRow]:
    return [InboxRow.from_row(row) for row in conn.execute(_UNREAD, {"key": session_key}).mappings()]


_COUNT_UNREAD = (
    select(func.count()).select_from(inbox).where(inbox.c.session_key == param("key"), inbox.c.outcome.is_(None))
)


def count_unread(conn: Connection, session_key: str) -> int:
    return conn.scalar(_COUNT_UNREAD, {"key": session_key}) or 0


_CLOSE = (
    update(inbox).where(inbox.c.id == param("row")).values(outcome=param("is"), run_id=param("run"), body=param("left"))
)


def close(conn: Connection, row_id: int, outcome: InboxOutcome, run_id: str | None, *, ask: int | None = None) -> None:
    """Stores the outcome of a row and removes its text, which is in the journal now. The key stays, to recognise doubles; `ask`: the
    question that it answered.
    """
    left = InboxRow(dedup_key="", session_key="", ask=ask)
    conn.execute(_CLOSE, {"row": row_id, "is": outcome, "run": run_id, "left": left.body()})


def keep_for(conn: Connection, row_id: int, run_id: str, ask: int, messages: Sequence[Message]) -> None:
    """Notes that the row has answered this ask, and that the run has still to take in these messages of it."""
    left = InboxRow(dedup_key="", session_key="", messages=tuple(messages), ask=ask)
    conn.execute(update(inbox).where(inbox.c.id == row_id).values(run_id=run_id, body=left.body()))


_ASSIGN = update(inbox).where(inbox.c.id == param("row")).values(run_id=param("run"))


def assign(conn: Connection, row_id: int, run_id: str) -> None:
    conn.execute(_ASSIGN, {"row": row_id, "run": run_id})


def keys_with_unread(conn: Connection) -> list[str]:
    return list(conn.scalars(select(inbox.c.session_key).where(inbox.c.outcome.is_(None)).distinct()))


def amend(conn: Connection, session_key: str, message_id: str, content: str) -> bool:
    """Changes an unread message after its sender has edited it. Returns False when it was taken in already."""
    # `reply_to` of an incoming message's route is that message itself: the answer replies to it.
    for row in unread(conn, session_key):
        if row.route is not None and row.route.reply_to == message_id and row.messages:
            *earlier, last = row.messages
            edited = replace(row, messages=(*earlier, replace(last, content=content)))
            conn.execute(update(inbox).where(inbox.c.id == row.id).values(body=edited.body()))
            return True
    return False


def withdraw(conn: Connection, session_key: str, message_id: str) -> bool:
    """Withdraws an unread message that waits for a run at work. Returns False when there is none: it was taken in."""
    lock(conn, session_key)
    for row in unread(conn, session_key):
        if row.run_id is None and row.route is not None and row.route.reply_to == message_id:
            close(conn, row.id, InboxOutcome.WITHDRAWN, None)
            return True
    return False


def record_once(conn: Connection, dedup_key: str, session_key: str, now: int) -> bool:
    """Notes that a command is executed in this transaction. Returns False when it was executed before."""
    new = InboxRow(dedup_key=dedup_key, session_key=session_key, kind=InboxKind.COMMAND)
    # With an outcome from the start, so that no run takes it in.
    return put(conn, new, now, outcome=InboxOutcome.EXECUTED) is not None


NOTES = "http"
"""The session key of notes about requests that belong to no session: a deployment or a thread was made."""


def prune_notes(conn: Connection, before: int, limit: int) -> int:
    """Deletes the oldest notes about requests and returns how many. A repeated request would then be executed again."""
    old = select(inbox.c.id).where(
        inbox.c.run_id.is_(None),  # the index for it knows few others
        inbox.c.session_key == NOTES,
        inbox.c.kind == InboxKind.COMMAND,
        inbox.c.outcome == InboxOutcome.EXECUTED,
        inbox.c.created_at < before,
    )
    return conn.execute(delete(inbox).where(inbox.c.id.in_(old.order_by(inbox.c.id).limit(limit)))).rowcount


DELETED_KEYS_KEPT_MS = 30 * 24 * 3_600_000
"""As far back as a platform is read after an absence."""

_SECRET = "deleted_keys_secret"  # noqa: S105  # its name
_IN_USE = select(meta.c.value).where(meta.c.key == _SECRET, select(deleted_keys.c.hash).exists())
_FIND = select(deleted_keys.c.hash).where(deleted_keys.c.hash == param("hashed"))


def keep_deleted_keys(conn: Connection, keys: Sequence[str], now: int) -> None:
    if not keys:
        return
    insert_or_ignore(conn, meta, {"key": _SECRET, "value": secrets.token_hex(32)})
    secret = conn.scalars(select(meta.c.value).where(meta.c.key == _SECRET)).one()
    for key in keys:
        insert_or_ignore(conn, deleted_keys, {"hash": _hash(secret, key), "deleted_at": now})


def is_deleted(conn: Connection, key: str) -> bool:
    secret = conn.scalar(_IN_USE)
    return secret is not None and conn.scalar(_FIND, {"hashed": _hash(secret, key)}) is not None


def prune_deleted_keys(conn: Connection, before: int, limit: int) -> int:
    """Deletes the oldest ones and returns how many."""
    old = select(deleted_keys.c.hash).where(deleted_keys.c.deleted_at < before).limit(limit)
    return conn.execute(delete(deleted_keys).where(deleted_keys.c.hash.in_(old))).rowcount


def _hash(secret: str, key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=16, key=bytes.fromhex(secret)).hexdigest()
