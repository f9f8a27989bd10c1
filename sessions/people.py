"""People: who was approved by a pairing code, who waits for approval, who owns the bot on each platform, and which ids are one person's."""

import hashlib
import secrets
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Connection, delete, exists, func, insert, select
from sqlalchemy.exc import DBAPIError

from sessions import audit, meta, outbox
from sessions.clock import now_ms
from sessions.db.engine import touch
from sessions.db.schema import aliases, messages, pairings, people, sessions
from sessions.db.schema import meta as values
from sessions.db.sql import lock, param
from sessions.errors import NotFound, StateError
from sessions.keys import Address, ChatKind, SessionKey
from sessions.messages import Content
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


def _hashed(code: str) -> str:
    plain = "".join(char for char in code.upper() if char.isalnum())
    # Only the hash is stored: whoever reads the database cannot let anybody in. Eight random letters need no salt for an hour.
    return hashlib.sha256(f"hermes pairing {plain}".encode()).hexdigest()


def request_access(conn: Connection, platform: str, user_id: str, name: str, address: Address, now: int) -> str | None:
    """Makes a code for a stranger; None when one is pending for them, or too many are pending."""
    _lock(conn, platform)
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
    _lock(conn, platform)
    of_owner = (pairings.c.platform == platform, pairings.c.user_id == _OWNER)
    newest = select(pairings.c.code_hash).where(*of_owner).order_by(pairings.c.created_at.desc(), pairings.c.code_hash)
    kept = conn.scalars(newest.limit(OWNER_CODES - 1)).all()
    conn.execute(delete(pairings).where(*of_owner, pairings.c.code_hash.not_in(kept)))
    return _put(conn, platform, _OWNER, "", "", now, 24 * VALID_MS)


def _put(conn: Connection, platform: str, user_id: str, name: str, address: str, now: int, valid_ms: int) -> str:
    code = "-".join("".join(secrets.choice(_ALPHABET) for _ in range(4)) for _ in range(2))
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


def _lock(conn: Connection, platform: str) -> None:
    """Lets one transaction at a time count codes and choose owners."""
    lock(conn, f"people of {platform}")


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


def let_in(conn: Connection, code: str, now: int, welcome: Content, *, by: str) -> Person:
    """As `approve`; the person is told, and the audit who let them in."""
    person, route = approve(conn, code, now)
    audit.record(conn, now, by, "person.let_in", f"{person.platform}:{person.user_id}")
    key = f"paired:{person.platform}:{person.user_id}:{now}"
    outbox.put(conn, route, welcome, now, dedup_key=key, session_key="")
    return person


def redeem_owner_code(conn: Connection, platform: str, code: str, user_id: str, name: str, now: int) -> Person | None:
    """Makes the first person who presents the owner's code the owner. None for any other code."""
    _expire(conn, now)
    fitting = (pairings.c.code_hash == _hashed(code), pairings.c.platform == platform, pairings.c.user_id == _OWNER)
    # Deleting and looking are one statement: of two people with the same code one becomes the owner.
    if conn.execute(delete(pairings).where(*fitting)).rowcount != 1:
        return None
    conn.execute(delete(pairings).where(pairings.c.platform == platform, pairings.c.user_id == _OWNER))
    person = admit(conn, platform, user_id, name, now)
    store_owner(conn, platform, user_id)
    return Person(platform=platform, user_id=user_id, name=name, owner=True, approved_at=person.approved_at)


def admit(conn: Connection, platform: str, user_id: str, name: str, now: int) -> Person:
    """Gives access. The first person of a platform becomes its owner, where none is known."""
    _lock(conn, platform)
    known = conn.execute(select(people).where(people.c.platform == platform, people.c.user_id == user_id)).first()
    if known is None:
        first = conn.scalar(select(func.count()).select_from(people).where(people.c.platform == platform)) == 0
        values = {"platform": platform, "user_id": user_id, "name": name, "approved_at": now}
        conn.execute(insert(people), values)
        if first and platform not in known_owners(conn, [platform]):
            store_owner(conn, platform, user_id)
        known = conn.execute(select(people).where(people.c.platform == platform, people.c.user_id == user_id)).one()
    conn.execute(delete(pairings).where(pairings.c.platform == platform, pairings.c.user_id == user_id))
    touch(conn, Topic.PEOPLE, platform)
    is_owner = owners(conn).get(platform) == user_id
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


def shut_out(conn: Connection, user: str, now: int, *, by: str) -> list[Person]:
    """As `revoke`; the audit has who did it."""
    gone = revoke(conn, user)
    for person in gone:
        audit.record(conn, now, by, "person.revoked", f"{person.platform}:{person.user_id}")
    return gone


def is_paired(conn: Connection, platform: str, user_id: str) -> bool:
    query = select(people.c.user_id).where(people.c.platform == platform, people.c.user_id == user_id)
    return conn.execute(query).first() is not None


def everybody(conn: Connection) -> list[Person]:
    rows = conn.execute(select(people).order_by(people.c.platform, people.c.approved_at))
    stored = owners(conn)
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


_OWNER_KEY = "owner:"


def owners(conn: Connection) -> dict[str, str]:
    """Returns the stored owner of each platform."""
    rows = conn.execute(select(values).where(values.c.key.startswith(_OWNER_KEY, autoescape=True)))
    return {row.key.removeprefix(_OWNER_KEY): row.value for row in rows}


def known_owners(conn: Connection, platforms: Collection[str]) -> dict[str, str]:
    """Returns the stored owners; for a home that has stored none yet, whoever the owner's conversation of a platform was with."""
    found = owners(conn)
    for platform in set(platforms) - found.keys():
        key = str(SessionKey(agent="main", scope=platform, kind=ChatKind.DM))
        # A run: what was only imported may have been somebody else's owner.
        lived = exists().where(messages.c.session_id == sessions.c.id, messages.c.run_id.is_not(None))
        query = select(sessions.c.user_id).where(sessions.c.session_key == key, sessions.c.user_id.is_not(None), lived)
        if owner := conn.scalar(query.order_by(sessions.c.started_at.desc()).limit(1)):
            found[platform] = owner
    return found


def known_owners_in(home: Path, url: str, platforms: Collection[str]) -> Mapping[str, str]:
    """As `known_owners`, for whoever only checks the configuration: nothing is made or upgraded. Empty where nothing can be read."""
    if not url and not (home / "state.db").exists():
        return {}
    try:
        if not url:
            from sessions.db.sqlite import SqliteUnwritable

            with SqliteUnwritable(home / "state.db").read() as conn:
                return known_owners(conn, platforms)
        from sessions.db import postgres

        engine = postgres.make_engine(url)
        try:
            with engine.connect() as conn:
                return known_owners(conn, platforms)
        finally:
            engine.dispose()
    except (StateError, DBAPIError, sqlite3.Error):
        return {}


def store_owner(conn: Connection, platform: str, owner: str) -> None:
    if owners(conn).get(platform) != owner:
        audit.record(conn, now_ms(), "gateway", "owner.stored", f"{platform}:{owner}")
    meta.put(conn, _OWNER_KEY + platform, owner)
    touch(conn, Topic.PEOPLE, platform)


def decide_owner(
    conn: Connection, platform: str, configured: str, first_allowed: str | None, *, from_history: bool = True
) -> None:
    """Stores the owner: the configured one; else, if none is stored, whose the conversation was, or the first who may talk to the bot.

    `from_history=False`: several people have shared the owner's conversation, so that it says nothing.
    """
    paired = conn.scalar(select(people.c.user_id).where(people.c.platform == platform, people.c.owner))
    stored = owners(conn).get(platform)
    lived = known_owners(conn, [platform]).get(platform) if from_history else stored
    owner = configured or lived or first_allowed or paired
    if owner and owner != stored:
        store_owner(conn, platform, owner)


_EARLIER = select(aliases.c.id).where(aliases.c.platform == param("on"), aliases.c.alias == param("later"))


def first_id(conn: Connection, platform: str, id: str) -> str:  # noqa: A002  # it is the platform's word
    """The first id of this person or chat; the id itself when it was never joined with another."""
    while (earlier := conn.scalar(_EARLIER, {"on": platform, "later": id})) is not None:
        id = earlier  # noqa: A001
    return id


def join_ids(conn: Connection, platform: str, alias: str, id: str) -> None:  # noqa: A002
    """From now on `alias` means the same as `id`, whose first id stays the key. What was joined with either is
    joined with both."""
    lock(conn, f"aliases of {platform}")
    known, first = first_id(conn, platform, alias), first_id(conn, platform, id)
    if known != first:  # both are first ids, so this can close no circle
        conn.execute(insert(aliases), {"platform": platform, "alias": known, "id": first})


def first_address(conn: Connection, address: Address) -> Address:
    """The address with the id from which the chat's key was made."""
    return replace(address, chat_id=first_id(conn, address.platform, address.chat_id))


def same_place(conn: Connection, one: Route | None, other: Route | None) -> bool:
    """Returns whether two routes are the same chat and thread, under whichever ids. Two routes without a chat are the same place."""
    if one is None or other is None:
        return one is other
    if one.address == other.address:
        return True
    if one.address.thread_id != other.address.thread_id:
        return False
    return first_address(conn, one.address) == first_address(conn, other.address)
