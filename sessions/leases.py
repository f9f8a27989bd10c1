"""Leases on what only one process of a team may do: be connected with a platform, or keep the house."""

from collections.abc import Collection

from sqlalchemy import Connection, delete, or_

from sessions.db.engine import touch
from sessions.db.schema import leases
from sessions.db.sql import inserting
from sessions.topics import Topic

LEASE_MS = 8_000
HOUSE = "house"


def of_platform(name: str) -> str:
    return f"platform:{name}"


def take(conn: Connection, names: Collection[str], owner: str, now: int) -> set[str]:
    """Takes what is free of these, and renews what this owner has. Returns what it has now."""
    if not names:
        return set()
    put = inserting(conn.dialect.name, leases)
    rows = [{"name": name, "owner": owner, "until": now + LEASE_MS} for name in sorted(names)]
    given = put.excluded
    taking = put.values(rows).on_conflict_do_update(
        index_elements=["name"],
        set_={"owner": given.owner, "until": given.until, "fence": leases.c.fence + 1},
        where=or_(leases.c.until <= now, leases.c.owner == owner),
    )
    return set(conn.scalars(taking.returning(leases.c.name)))


def give_up(conn: Connection, names: Collection[str], owner: str) -> None:
    """Frees these, as far as this owner has them, for whoever is first."""
    given = delete(leases).where(leases.c.name.in_(names), leases.c.owner == owner).returning(leases.c.name)
    for name in conn.scalars(given).all():
        touch(conn, Topic.HOLDER, name)
