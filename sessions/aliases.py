"""Aliases: several ids of one person or chat, such as a group and the supergroup that it becomes."""

from dataclasses import replace

from sqlalchemy import Connection, insert, select

from sessions import inbox
from sessions.db.schema import aliases
from sessions.db.sql import param
from sessions.keys import Address
from sessions.records import Route

_EARLIER = select(aliases.c.id).where(aliases.c.platform == param("on"), aliases.c.alias == param("later"))


def resolve(conn: Connection, platform: str, id: str) -> str:  # noqa: A002  # it is the platform's word
    """The first id of this person or chat; the id itself when it was never joined with another."""
    while (earlier := conn.scalar(_EARLIER, {"on": platform, "later": id})) is not None:
        id = earlier  # noqa: A001
    return id


def join(conn: Connection, platform: str, alias: str, id: str) -> None:  # noqa: A002
    """From now on `alias` means the same as `id`, whose first id stays the key. What was joined with either is
    joined with both."""
    inbox.serialize(conn, f"aliases of {platform}")
    known, first = resolve(conn, platform, alias), resolve(conn, platform, id)
    if known != first:  # both are first ids, so this can close no circle
        conn.execute(insert(aliases), {"platform": platform, "alias": known, "id": first})


def first_address(conn: Connection, address: Address) -> Address:
    """The address with the id from which the chat's key was made."""
    return replace(address, chat_id=resolve(conn, address.platform, address.chat_id))


def same_place(conn: Connection, one: Route | None, other: Route | None) -> bool:
    """Returns whether two routes are the same chat and thread, under whichever ids. Two routes without a chat are the same place."""
    if one is None or other is None:
        return one is other
    if one.address == other.address:
        return True
    if one.address.thread_id != other.address.thread_id:
        return False
    return first_address(conn, one.address) == first_address(conn, other.address)
