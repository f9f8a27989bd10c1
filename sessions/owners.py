"""The owner of the bot on each platform: once known, they stay, because the owner's sessions and notes are those of whoever it is."""

import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path

from sqlalchemy import Connection, exists, select
from sqlalchemy.exc import DBAPIError

from sessions import meta
from sessions.db.engine import touch
from sessions.db.schema import messages, people, sessions
from sessions.db.schema import meta as values
from sessions.db.sqlite import SqliteUnwritable
from sessions.errors import StateError
from sessions.keys import ChatKind, SessionKey
from sessions.topics import Topic

_PREFIX = "owner:"


def everywhere(conn: Connection) -> dict[str, str]:
    """Returns the stored owner of each platform."""
    rows = conn.execute(select(values).where(values.c.key.startswith(_PREFIX, autoescape=True)))
    return {row.key.removeprefix(_PREFIX): row.value for row in rows}


def known(conn: Connection, platforms: Collection[str]) -> dict[str, str]:
    """Returns the stored owners; for a home that has stored none yet, whoever the owner's conversation of a platform was with."""
    found = everywhere(conn)
    for platform in set(platforms) - found.keys():
        key = str(SessionKey(agent="main", scope=platform, kind=ChatKind.DM))
        # A run: what was only imported may have been somebody else's owner.
        lived = exists().where(messages.c.session_id == sessions.c.id, messages.c.run_id.is_not(None))
        query = select(sessions.c.user_id).where(sessions.c.session_key == key, sessions.c.user_id.is_not(None), lived)
        if owner := conn.scalar(query.order_by(sessions.c.started_at.desc()).limit(1)):
            found[platform] = owner
    return found


def known_in(home: Path, url: str, platforms: Collection[str]) -> Mapping[str, str]:
    """As `known`, for whoever only checks the configuration: nothing is made or upgraded. Empty where nothing can be read."""
    if not url and not (home / "state.db").exists():
        return {}
    try:
        if not url:
            with SqliteUnwritable(home / "state.db").read() as conn:
                return known(conn, platforms)
        from sessions.db import postgres

        engine = postgres.make_engine(url)
        try:
            with engine.connect() as conn:
                return known(conn, platforms)
        finally:
            engine.dispose()
    except (StateError, DBAPIError, sqlite3.Error):
        return {}


def store(conn: Connection, platform: str, owner: str) -> None:
    meta.put(conn, _PREFIX + platform, owner)
    touch(conn, Topic.PEOPLE, platform)


def settle(
    conn: Connection, platform: str, configured: str, first_allowed: str | None, *, from_history: bool = True
) -> None:
    """Stores the owner: the configured one; else, if none is stored, whose the conversation was, or the first who may talk to the bot.

    `from_history=False`: several people have shared the owner's conversation, so that it says nothing.
    """
    paired = conn.scalar(select(people.c.user_id).where(people.c.platform == platform, people.c.owner))
    stored = everywhere(conn).get(platform)
    lived = known(conn, [platform]).get(platform) if from_history else stored
    owner = configured or lived or first_allowed or paired
    if owner and owner != stored:
        store(conn, platform, owner)
