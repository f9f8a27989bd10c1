"""People who were approved by a pairing code, and people who wait for approval."""

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select

from sessions import owners
from sessions.db.engine import touch
from sessions.db.schema import pairings, people
from sessions.errors import NotFound
from sessions.inbox import serialize
from sessions.keys import Address
from sessions.records import Route
from sessions.topics import Topic

VALID_MS = 3_600_000
MAX_PENDING = 3
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without look-alikes
OWNER_CODES = 3
_OWNER = ""  # the user of a code that makes whoever redeems it the owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    platform: str
    user_id: str
    name: str
    owner: bool
    approved_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    platform: str
    user_id: str
    name: str
    route: Route
    expires_at: int


def _new_code() -> str:
    code = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    return f"{code[:4]}-{code[4:]}"


def _hashed(code: str) -> str:
    plain = "".join(char for char in code.upper() if char.isalnum())
    # Only the hash is stored: whoever reads the database cannot let anybody in. Eight random letters need no salt for an hour.
    return hashlib.sha256(f"hermes pairing {plain}".encode()).hexdigest()


def ask_in(conn: Connection, platform: str, user_id: str, name: str, address: Address, now: int) -> str | None:
    """Makes a code for a stranger; None when one is pending for them, or too many are pending."""
    _serialize(conn, platform)
    _expire(conn, now)
    waiting = (
        conn.execute(select(pairings.c.user_id).where(pairings.c.platform == platform, pairings.c.user_id != _OWNER))
        .scalars()
        .all()
    )
    # Strangers could otherwise fill the owner's screen with codes.
    if user_id in waiting or len(waiting) >= MAX_PENDING:
        return None
    return _put(conn, platform, user_id, name, Route(address=address).to_json(), now, VALID_MS)


def owner_code(conn: Connection, platform: str, now: int) -> str:
    """Makes a code for the person who sets the gateway up. The two before it stay valid: the running gateway may show one, and setup another."""
    _serialize(conn, platform)
    owners = (pairings.c.platform == platform, pairings.c.user_id == _OWNER)
    newest = select(pairings.c.code_hash).where(*owners).order_by(pairings.c.created_at.desc(), pairings.c.code_hash)
    kept = conn.scalars(newest.limit(OWNER_CODES - 1)).all()
    conn.execute(delete(pairings).where(*owners, pairings.c.code_hash.not_in(kept)))
    return _put(conn, platform, _OWNER, "", "", now, 24 * VALID_MS)


def _put(conn: Connection, platform: str, user_id: str, name: str, address: str, now: int, valid_ms: int) -> str:
    code = _new_code()
    values = {
        "platform": platform,
        "user_id": user_id,
        "name": name,
        "address": address,
        "created_at": now,
        "expires_at": now + valid_ms,
    }
    conn.execute(insert(pairings), {"code_hash": _hashed(code), **values})
    touch(conn, Topic.PEOPLE, platform)
    return code


def _serialize(conn: Connection, platform: str) -> None:
    """Lets one transaction at a time count codes and choose owners."""
    serialize(conn, f"people of {platform}")


def _expire(conn: Connection, now: int) -> None:
    conn.execute(delete(pairings).where(pairings.c.expires_at <= now))


def pending(conn: Connection, now: int) -> list[Pending]:
    rows = conn.execute(
        select(pairings)
        .where(pairings.c.expires_at > now, pairings.c.user_id != _OWNER)
        .order_by(pairings.c.created_at)
    )
    return [
        Pending(
            platform=r.platform,
            user_id=r.user_id,
            name=r.name,
            route=Route.from_json(r.address),
            expires_at=r.expires_at,
        )
        for r in rows
    ]


def approve(conn: Connection, code: str, now: int) -> tuple[Person, Route]:
    """Gives access to the person who has this code. Raises NotFound for a wrong, expired or used code."""
    _expire(conn, now)
    row = conn.execute(
        select(pairings).where(pairings.c.code_hash == _hashed(code), pairings.c.user_id != _OWNER)
    ).first()
    if row is None:
        raise NotFound(
            f"{code} is not a code that waits for approval; codes are valid for one hour. `hermes pair list` shows who waits."
        )
    conn.execute(delete(pairings).where(pairings.c.code_hash == row.code_hash))
    return admit(conn, row.platform, row.user_id, row.name, now), Route.from_json(row.address)


def redeem_owner_code(conn: Connection, platform: str, code: str, user_id: str, name: str, now: int) -> Person | None:
    """Makes the first person who presents the owner's code the owner. None for any other code."""
    _expire(conn, now)
    fitting = (pairings.c.code_hash == _hashed(code), pairings.c.platform == platform, pairings.c.user_id == _OWNER)
    # Deleting and looking are one statement: of two people with the same code one becomes the owner.
    if conn.execute(delete(pairings).where(*fitting)).rowcount != 1:
        return None
    conn.execute(delete(pairings).where(pairings.c.platform == platform, pairings.c.user_id == _OWNER))
    person = admit(conn, platform, user_id, name, now)
    owners.store(conn, platform, user_id)
    return Person(platform=platform, user_id=user_id, name=name, owner=True, approved_at=person.approved_at)


def admit(conn: Connection, platform: str, user_id: str, name: str, now: int) -> Person:
    """Gives access. The first person of a platform becomes its owner, where none is known."""
    _serialize(conn, platform)
    known = conn.execute(select(people).where(people.c.platform == platform, people.c.user_id == user_id)).first()
    if known is None:
        first = conn.scalar(select(func.count()).select_from(people).where(people.c.platform == platform)) == 0
        values = {"platform": platform, "user_id": user_id, "name": name, "approved_at": now}
        conn.execute(insert(people), values)
        if first and platform not in owners.known(conn, [platform]):
            owners.store(conn, platform, user_id)
        known = conn.execute(select(people).where(people.c.platform == platform, people.c.user_id == user_id)).one()
    conn.execute(delete(pairings).where(pairings.c.platform == platform, pairings.c.user_id == user_id))
    touch(conn, Topic.PEOPLE, platform)
    is_owner = owners.everywhere(conn).get(platform) == user_id
    return Person(platform=platform, user_id=user_id, name=known.name, owner=is_owner, approved_at=known.approved_at)


def revoke(conn: Connection, user: str) -> list[Person]:
    """Removes access that came from pairing. `user` is an id, or `platform:id`. Raises NotFound."""
    found = [p for p in everybody(conn) if user in {p.user_id, f"{p.platform}:{p.user_id}"}]
    if not found:
        raise NotFound(f"Nobody with the id {user} was paired. `hermes pair list` shows who was.")
    for person in found:
        conn.execute(delete(people).where(people.c.platform == person.platform, people.c.user_id == person.user_id))
        touch(conn, Topic.PEOPLE, person.platform)
    return found


def is_paired(conn: Connection, platform: str, user_id: str) -> bool:
    query = select(people.c.user_id).where(people.c.platform == platform, people.c.user_id == user_id)
    return conn.execute(query).first() is not None


def everybody(conn: Connection) -> list[Person]:
    rows = conn.execute(select(people).order_by(people.c.platform, people.c.approved_at))
    stored = owners.everywhere(conn)
    return [
        Person(
            platform=r.platform,
            user_id=r.user_id,
            name=r.name,
            owner=stored[r.platform] == r.user_id if r.platform in stored else bool(r.owner),
            approved_at=r.approved_at,
        )
        for r in rows
    ]
