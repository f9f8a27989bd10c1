"""Where a message comes from and an answer goes to."""

from sqlalchemy import Connection

from sessions import aliases
from sessions.records import Route


def same_place(conn: Connection, one: Route | None, other: Route | None) -> bool:
    """The same chat and thread, under whichever of its ids; what has no chat at all is in one place too."""
    if one is None or other is None:
        return one is other
    if one.address == other.address:
        return True
    if one.address.thread_id != other.address.thread_id:
        return False
    return aliases.first_address(conn, one.address) == aliases.first_address(conn, other.address)
