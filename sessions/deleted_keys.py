"""Keys of events whose session was deleted. A platform may send such an event again, days later: it must neither bring the message back nor be
answered once more. Only a keyed hash is kept, from which nobody reads the key.
"""

import hashlib
import secrets
from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from sessions.db.schema import deleted_keys, meta
from sessions.db.sql import insert_or_ignore, param

KEPT_MS = 30 * 24 * 3_600_000
"""As far back as a platform is read after an absence."""

_SECRET = "deleted_keys_secret"  # noqa: S105  # its name
_IN_USE = select(meta.c.value).where(meta.c.key == _SECRET, select(deleted_keys.c.hash).exists())
_FIND = select(deleted_keys.c.hash).where(deleted_keys.c.hash == param("hashed"))


def add(conn: Connection, keys: Sequence[str], now: int) -> None:
    if not keys:
        return
    insert_or_ignore(conn, meta, {"key": _SECRET, "value": secrets.token_hex(32)})
    secret = conn.scalars(select(meta.c.value).where(meta.c.key == _SECRET)).one()
    for key in keys:
        insert_or_ignore(conn, deleted_keys, {"hash": _hash(secret, key), "deleted_at": now})


def holds(conn: Connection, key: str) -> bool:
    secret = conn.scalar(_IN_USE)
    return secret is not None and conn.scalar(_FIND, {"hashed": _hash(secret, key)}) is not None


def prune(conn: Connection, before: int, limit: int) -> int:
    """Deletes the oldest ones and returns how many."""
    old = select(deleted_keys.c.hash).where(deleted_keys.c.deleted_at < before).limit(limit)
    return conn.execute(delete(deleted_keys).where(deleted_keys.c.hash.in_(old))).rowcount


def _hash(secret: str, key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=16, key=bytes.fromhex(secret)).hexdigest()
