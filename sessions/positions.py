"""How far the events of a platform were delivered, for platforms that keep none for a client that is away."""

from sqlalchemy import Connection, delete, insert, select

from sessions.db.schema import meta


def get(conn: Connection, platform: str) -> int | None:
    """Epoch milliseconds; None when nothing was ever noted."""
    value = conn.scalar(select(meta.c.value).where(meta.c.key == _key(platform)))
    return None if value is None else int(value)


def put(conn: Connection, platform: str, seen: int) -> None:
    conn.execute(delete(meta).where(meta.c.key == _key(platform)))
    conn.execute(insert(meta), {"key": _key(platform), "value": str(seen)})


def _key(platform: str) -> str:
    return f"seen:{platform}"
