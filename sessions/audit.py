"""Who decided, changed or deleted what: one row for each act, written in its own transaction. Never the text of a message.

`who` is a name of `people`, `<platform>:<id>`, `key:<name>`, `cli:<user>`, or what acts by itself, such as `retention`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from sessions import meta
from sessions.db.schema import audit
from sessions.db.sql import insert_once, lock
from sessions.records import Record

_MARKS = "config_marks"
_LONGEST_LIST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow(Record):
    at: int
    who: str
    action: str
    about: str
    detail: str


def record(conn: Connection, now: int, who: str, action: str, about: str, detail: str = "", *, once: str = "") -> None:
    """Stores the act. `action`: such as `approval.approved`. `about`: what it was done to. `once`: a key under which it is stored only once."""
    values = {"at": now, "who": who, "action": action, "about": about, "detail": detail, "dedup_key": once or None}
    if once:
        insert_once(conn, audit, values)
    else:
        conn.execute(insert(audit), values)


def record_configuration(
    conn: Connection, marks: Mapping[str, str], now: int, *, ignored: tuple[str, ...] = ()
) -> None:
    """Records which keys have another value than at the last call, whichever process made it; the first call records nothing. `marks`: a
    digest of each value, by its key. `ignored`: beginnings of keys that each machine has for itself.
    """
    lock(conn, _MARKS)
    stored = meta.get(conn, _MARKS)
    if stored is not None:
        before: dict[str, str] = json.loads(stored)
        changed = sorted(
            key
            for key in before.keys() | marks.keys()
            if before.get(key) != marks.get(key) and not key.startswith(ignored)
        )
        if not changed:
            return
        record(conn, now, "config.yaml", "config.changed", ", ".join(changed)[:_LONGEST_LIST])
    meta.put(conn, _MARKS, json.dumps(marks))


def listing(
    conn: Connection, *, since: int | None = None, who: str | None = None, action: str | None = None, limit: int = 1_000
) -> list[AuditRow]:
    """Returns the newest acts, the oldest of them first. `action`: whole, or the part before its dot."""
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if since is not None:
        query = query.where(audit.c.at >= since)
    if who is not None:
        query = query.where(audit.c.who == who)
    if action is not None:
        query = query.where(audit.c.action == action if "." in action else audit.c.action.startswith(f"{action}."))
    return [AuditRow.from_row(row) for row in conn.execute(query).mappings()][::-1]


def actions(conn: Connection, about: str) -> list[tuple[str, str]]:
    """Returns who did what about this, the oldest first."""
    rows = conn.execute(select(audit.c.who, audit.c.action).where(audit.c.about == about).order_by(audit.c.id))
    return [(who, action) for who, action in rows]


def prune(conn: Connection, before: int, limit: int) -> int:
    """Deletes acts from before this time, and returns how many."""
    old = select(audit.c.id).where(audit.c.at < before).order_by(audit.c.at).limit(limit)
    return conn.execute(delete(audit).where(audit.c.id.in_(old))).rowcount
