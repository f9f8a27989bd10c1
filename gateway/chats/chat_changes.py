"""Handles events that are no message to the agent: ids that belong together, messages taken back or not delivered, chats that the bot has left.

Tells the chat, where possible, and the owner about messages that will never arrive.
"""

from dataclasses import replace

from sqlalchemy import Connection

from gateway.chats.access import ChatAccess
from gateway.observe.logging import get_logger
from gateway.texts import say
from sessions import inbox, outbox, overheard, people, runs, store
from sessions.clock import Clock
from sessions.db import Database
from sessions.keys import Address, ChatKind, KeyRules, Sender, SessionKey
from sessions.messages import Content, Inbound, InboundKind
from sessions.records import OutRow

log = get_logger(__name__)

CHANGES = frozenset({InboundKind.MOVED, InboundKind.LEFT, InboundKind.FAILED, InboundKind.DELETED, InboundKind.HOME})
_PAIRS = 4_096


class ChatChanges:
    """Stores these events. Every transaction may run more than once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._joined: dict[tuple[str, str, str], None] = {}

    async def take(self, inbound: Inbound, access: ChatAccess, *, has_access: bool) -> None:
        match inbound.kind:
            case InboundKind.MOVED:
                address = inbound.address
                await self._database.write(people.join_ids, address.platform, inbound.text, address.chat_id)
            case InboundKind.LEFT:  # what waits to be sent there is given up
                address, why = inbound.address, "we were removed from this chat, or blocked"
                dead = await self._database.write(outbox.give_up_chat, address.platform, address.chat_id, why)
                log.info("chat.left", platform=address.platform, chat=address.chat_id, undelivered=dead)
            case InboundKind.FAILED:
                await self._database.write(self._failed, inbound, access)
            case InboundKind.DELETED if has_access:
                await self._database.write(_withdraw, inbound, access)
            case _:
                return

    async def join(self, inbound: Inbound) -> None:
        """Notes two ids of one person, once for each process."""
        pair = (inbound.address.platform, inbound.sender.id, inbound.same_as)
        if pair in self._joined:
            return
        await self._database.write(_join_ids, *pair)
        self._joined[pair] = None  # after the write: what failed is tried again with the next message
        if len(self._joined) > _PAIRS:
            del self._joined[next(iter(self._joined))]

    def _failed(self, conn: Connection, inbound: Inbound, access: ChatAccess) -> None:
        """Marks a message as undelivered that the platform had accepted and could not deliver, and tells the owner."""
        row = outbox.failed_later(conn, inbound.address.platform, inbound.message_id, inbound.text)
        if row is not None:
            log.warning("outbox.dead", platform=row.platform, row=row.id, error=inbound.text)
            owner_key = access.owner_key(row.platform)
            key = None if owner_key is None else str(owner_key)
            notify_undelivered(conn, row, inbound.text, self._clock(), owner_key=key, chat_is_gone=True)


def first_known(conn: Connection, inbound: Inbound) -> Inbound:
    """Returns the event with the first ids of chat and person, from which keys and permissions were made."""
    address = people.first_address(conn, inbound.address)
    if inbound.sender.id == inbound.address.chat_id:  # in a DM they are the same for most platforms
        known = address.chat_id
    else:
        known = people.first_id(conn, inbound.address.platform, inbound.sender.id)
    return replace(inbound, address=address, sender=replace(inbound.sender, id=known))


def _join_ids(conn: Connection, platform: str, one: str, other: str) -> None:
    """Joins two ids of one person. The one that is known already stays the first; of two new ones, `one`."""
    is_older = _is_known(conn, platform, other) and not _is_known(conn, platform, one)
    first, later = (other, one) if is_older else (one, other)
    people.join_ids(conn, platform, later, first)


def _is_known(conn: Connection, platform: str, user_id: str) -> bool:
    address = Address(platform=platform, kind=ChatKind.DM, chat_id=user_id)
    key = str(SessionKey.of(address, Sender(id=user_id), KeyRules()))
    return bool(store.recent(conn, key=key, limit=1)) or people.is_paired(conn, platform, user_id)


def _withdraw(conn: Connection, inbound: Inbound, access: ChatAccess) -> None:
    """Forgets a message that nobody has read yet. What a run has read already stays in the journal."""
    first = first_known(conn, inbound)
    key = str(access.key(first.address, first.sender))
    if not overheard.forget(conn, key, inbound.message_id):
        inbox.withdraw(conn, key, inbound.message_id)


NOTICE = "undelivered:"
HOUR_MS = 3_600_000


def notify_undelivered(
    conn: Connection, row: OutRow, why: str, now: int, *, owner_key: str | None, chat_is_gone: bool = False
) -> None:
    """Tells the chat, unless it is gone, and the owner in their own chat, that a message cannot be delivered; at most once an hour for
    each chat. A notice that is itself undeliverable causes no other.
    """
    # Nobody misses these: notices themselves, what follows a row that is given up, and lines that were only meant to be seen in passing.
    if (
        row.dedup_key.startswith(NOTICE)
        or row.dedup_key.endswith(":then")
        or (row.content is not None and row.content.silent)
    ):
        return
    if row.dedup_key.startswith(outbox.FILE):  # the agent believes, and says, that it was sent
        outbox.follow(conn, row.dedup_key, Content(text=say("limits.file_not_sent")), now)
    elif not chat_is_gone:
        key = f"{NOTICE}{row.run_id or row.id}"  # one for all pieces of an answer
        text = say("limits.answer_not_sent")
        outbox.put(conn, row.route, Content(text=text), now, dedup_key=key, session_key=row.session_key)
    _notify_owner(conn, row, why, now, owner_key)


def _notify_owner(conn: Connection, row: OutRow, why: str, now: int, owner_key: str | None) -> None:
    route = runs.last_route(conn, owner_key) if owner_key is not None else None
    # Not in the chat that cannot be reached.
    if route is None or owner_key is None or route.address.chat_id == row.chat:
        return
    key = f"{NOTICE}{row.platform}:{row.chat}:{now // HOUR_MS}"
    text = say("limits.not_delivered", chat=row.chat, why=why)
    outbox.put(conn, route, Content(text=text), now, dedup_key=key, session_key=owner_key)
