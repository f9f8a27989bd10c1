"""Compares and resolves routes: where a message comes from and its answer goes to."""

from sqlalchemy import Connection

from sessions import aliases
from sessions.records import Route


def same_place(conn: Connection, one: Route | None, other: Route | None) -> bool:
    """Returns whether two routes are the same chat and thread, under whichever ids. Two routes without a chat are the same place."""
    if one is None or other is None:
        return one is other
    if one.address == other.address:
        return True
    if one.address.thread_id != other.address.thread_id:
        return False
    return aliases.first_address(conn, one.address) == aliases.first_address(conn, other.address)
