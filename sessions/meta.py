"""Single values about this database, by key."""

from sqlalchemy import Connection, delete, insert, select

from sessions.db.schema import meta

LAST_BACKUP = "last_backup"
"""When `hermes backup` was run last, in milliseconds."""


def put(conn: Connection, key: str, value: str) -> None:
    conn.execute(delete(meta).where(meta.c.key == key))
    conn.execute(insert(meta), {"key": key, "value": value})


def get(conn: Connection, key: str) -> str | None:
    return conn.scalar(select(meta.c.value).where(meta.c.key == key))
