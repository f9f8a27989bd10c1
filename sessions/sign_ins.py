"""Who is signed in to the page in the browser.

A link is a secret that is given once and redeemed once, for a cookie; of both only hashes are stored, so whoever reads the database cannot sign
in.
"""

import hashlib
import secrets
from enum import StrEnum

from sqlalchemy import Connection, delete, insert, select, update

from sessions import audit
from sessions.db.schema import sign_ins
from sessions.errors import NotFound

LINK_MS = 5 * 60_000
IDLE_MS = 12 * 3_600_000
"""A cookie that nobody has used for so long is over."""
LONGEST_MS = 30 * 24 * 3_600_000
_NOTE_MS = 60_000
"""A cookie in use is prolonged at most so often: looking at a page is not a write."""


class SignInKind(StrEnum):
    LINK = "link"
    COOKIE = "cookie"


def _hashed(secret: str) -> str:
    return hashlib.sha256(f"hermes sign-in {secret}".encode("utf-8", "replace")).hexdigest()


def _put(conn: Connection, kind: SignInKind, who: str, now: int, expires_at: int) -> str:
    secret = secrets.token_urlsafe(32)
    values = {"hash": _hashed(secret), "kind": kind, "who": who, "created_at": now, "expires_at": expires_at}
    conn.execute(insert(sign_ins), values)
    return secret


def new_link(conn: Connection, who: str, now: int) -> str:
    """Returns the secret of a link with which this person can sign in once, within five minutes."""
    conn.execute(delete(sign_ins).where(sign_ins.c.expires_at <= now))
    return _put(conn, SignInKind.LINK, who, now, now + LINK_MS)


def redeem(conn: Connection, secret: str, now: int) -> str:
    """Signs in with a link. Returns the secret of the cookie. Raises NotFound for a link that is unknown, used or over."""
    link = sign_ins.c.hash == _hashed(secret), sign_ins.c.kind == SignInKind.LINK, sign_ins.c.expires_at > now
    # Deleted and not marked: of two requests at once only one gets the row.
    who = conn.scalar(delete(sign_ins).where(*link).returning(sign_ins.c.who))
    if who is None:
        raise NotFound("This link was used, or is older than five minutes. Run `hermes dashboard` for another.")
    audit.record(conn, now, who, "dashboard.signed_in", "dashboard")
    return _put(conn, SignInKind.COOKIE, who, now, now + IDLE_MS)


def signed_in(conn: Connection, secret: str, now: int) -> tuple[str, bool] | None:
    """Returns who has this cookie, and whether it is time to `prolong` it; None when it is unknown or over."""
    cookie = sign_ins.c.hash == _hashed(secret), sign_ins.c.kind == SignInKind.COOKIE, sign_ins.c.expires_at > now
    row = conn.execute(select(sign_ins).where(*cookie)).first()
    return None if row is None else (row.who, _prolonged(row.created_at, now) - row.expires_at > _NOTE_MS)


def prolong(conn: Connection, secret: str, now: int) -> None:
    row = conn.execute(select(sign_ins).where(sign_ins.c.hash == _hashed(secret))).first()
    if row is not None:
        later = update(sign_ins).where(sign_ins.c.hash == row.hash)
        conn.execute(later.values(expires_at=_prolonged(row.created_at, now)))


def _prolonged(created_at: int, now: int) -> int:
    return min(created_at + LONGEST_MS, now + IDLE_MS)


def sign_out(conn: Connection, secret: str) -> None:
    conn.execute(delete(sign_ins).where(sign_ins.c.hash == _hashed(secret)))


def revoke_all(conn: Connection, who: str, now: int) -> int:
    """Ends every sign-in and every link. Returns how many people were signed in."""
    audit.record(conn, now, who, "dashboard.revoked", "dashboard")
    ended = conn.execute(delete(sign_ins).returning(sign_ins.c.kind)).scalars().all()
    return sum(kind == SignInKind.COOKIE for kind in ended)
