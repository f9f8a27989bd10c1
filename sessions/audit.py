"""Who decided what: one row for each decision, written in the transaction of the act. Never the text of a message."""

from sqlalchemy import Connection, insert, select

from sessions.db.schema import audit
from sessions.db.sql import insert_once


def record(conn: Connection, now: int, who: str, action: str, about: str, detail: str = "", *, once: str = "") -> None:
    """Stores the decision. `action`: such as `approval.approved`. `about`: what was decided on. `once`: a key under which it is stored only
    once."""
    values = {"at": now, "who": who, "action": action, "about": about, "detail": detail, "dedup_key": once or None}
    if once:
        insert_once(conn, audit, values)
    else:
        conn.execute(insert(audit), values)


def actions(conn: Connection, about: str) -> list[tuple[str, str]]:
    """Returns who did what about this, the oldest first."""
    rows = conn.execute(select(audit.c.who, audit.c.action).where(audit.c.about == about).order_by(audit.c.id))
    return [(who, action) for who, action in rows]
