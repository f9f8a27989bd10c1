"""Tells the chat, where possible, and the owner about messages that will never arrive."""

from sqlalchemy import Connection

from gateway.texts import say
from sessions import outbox, runs
from sessions.outbox_body import OutboxBody
from sessions.records import OutRow

NOTICE = "undelivered:"
HOUR_MS = 3_600_000


def notify(
    conn: Connection, row: OutRow, why: str, now: int, *, owner_key: str | None, chat_is_gone: bool = False
) -> None:
    """Tells the chat, unless it is gone, and the owner in their own chat, that a message cannot be delivered; at most once an hour for
    each chat. A notice that is itself undeliverable causes no other.
    """
    # Nobody misses these: notices themselves, what follows a row that is given up, and lines that were only meant to be seen in passing.
    if (
        row.dedup_key.startswith(NOTICE)
        or row.dedup_key.endswith(":then")
        or (isinstance(row.body, OutboxBody) and row.body.silent)
    ):
        return
    if row.dedup_key.startswith(outbox.FILE):  # the agent believes, and says, that it was sent
        outbox.follow(conn, row.dedup_key, OutboxBody(text=say("limits.file_not_sent")), now)
    elif not chat_is_gone:
        key = f"{NOTICE}{row.run_id or row.id}"  # one for all pieces of an answer
        text = say("limits.answer_not_sent")
        outbox.put(conn, row.address, OutboxBody(text=text), now, dedup_key=key, session_key=row.session_key)
    _notify_owner(conn, row, why, now, owner_key)


def _notify_owner(conn: Connection, row: OutRow, why: str, now: int, owner_key: str | None) -> None:
    route = runs.last_route(conn, owner_key) if owner_key is not None else None
    # Not in the chat that cannot be reached.
    if route is None or owner_key is None or route.address.chat_id == row.chat:
        return
    key = f"{NOTICE}{row.platform}:{row.chat}:{now // HOUR_MS}"
    text = say("limits.not_delivered", chat=row.chat, why=why)
    outbox.put(conn, route, OutboxBody(text=text), now, dedup_key=key, session_key=owner_key)
