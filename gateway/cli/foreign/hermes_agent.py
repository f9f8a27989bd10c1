"""Hermes Agent: `state.db` with sessions and messages, and the notes in `memories/`."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from gateway.cli.foreign.contents import ForeignConversation, ForeignMessage, HomeContents, leaving_out
from sessions.errors import Invalid
from sessions.keys import ChatKind
from sessions.records import Role

PROGRAM = "hermes-agent"
_BETWEEN_NOTES = "\n§\n"
_KINDS = {"dm": ChatKind.DM, "group": ChatKind.GROUP, "supergroup": ChatKind.GROUP, "channel": ChatKind.CHANNEL}


def read(home: Path) -> HomeContents:
    """Raises Invalid when this is no home of Hermes Agent."""
    if not (home / "state.db").exists():
        raise Invalid(f"{home} is no home of Hermes Agent: it has no state.db.")
    found = HomeContents()
    try:
        with closing(sqlite3.connect(home / "state.db")) as conn:
            conn.row_factory = sqlite3.Row
            tables = {row[0] for row in conn.execute("SELECT name FROM sqlite_master")}
            if not {"sessions", "messages", "schema_version"} <= tables:
                raise Invalid(f"{home / 'state.db'} was not written by Hermes Agent.")
            for row in conn.execute("SELECT * FROM sessions ORDER BY started_at, id").fetchall():
                with leaving_out(found, f"session {row['id']}"):
                    _take(conn, dict(row), found)
    except sqlite3.DatabaseError as error:
        raise Invalid(f"{home / 'state.db'} cannot be read: {error}.") from error
    for name in ("MEMORY.md", "USER.md"):
        path = home / "memories" / name
        if path.exists():
            found.notes += [
                note.strip() for note in path.read_text("utf-8", "replace").split(_BETWEEN_NOTES) if note.strip()
            ]
    return found


def _take(conn: sqlite3.Connection, session: dict[str, Any], found: HomeContents) -> None:
    messages = list(_messages(conn, session["id"], found))
    if not messages:
        found.left_out.append(f"session {session['id']}: it has no messages")
        return
    found.conversations.append(
        ForeignConversation(
            program=PROGRAM,
            name=session["id"],
            started_at=_ms(session["started_at"]),
            messages=messages,
            platform=session.get("source") or "",
            kind=_KINDS.get(session.get("chat_type") or "", ChatKind.DM),
            chat_id=str(session.get("chat_id") or session.get("user_id") or ""),
            title=session.get("title"),
            model=session.get("model"),
        )
    )


def _messages(conn: sqlite3.Connection, session_id: str, found: HomeContents) -> Iterator[ForeignMessage]:
    for row in conn.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY id", (session_id,)).fetchall():
        message = dict(row)
        # Compacted messages are inactive there as well, but they were said; what /undo took back was not.
        if not message.get("active", 1) and not message.get("compacted", 0):
            continue  # taken back over there
        if message["role"] not in set(Role):
            found.left_out.append(f"a message with the role {message['role']} in session {session_id}")
            continue
        yield ForeignMessage(
            role=Role(message["role"]),
            content=message["content"] or "",
            at=_ms(message["timestamp"]),
            tool_calls=json.loads(message["tool_calls"]) if message["tool_calls"] else (),
            tool_call_id=message["tool_call_id"],
            tool_name=message["tool_name"],
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
