"""OpenClaw: one SQLite database for each agent, and the notes of the workspace. It brings homes of older versions into this form itself."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway.cli.foreign.contents import (
    ForeignConversation,
    ForeignMessage,
    HomeContents,
    leaving_out,
    notes_in,
    text_of,
)
from sessions.errors import Invalid
from sessions.keys import ChatKind
from sessions.records import Role

PROGRAM = "openclaw"
_KINDS = {"direct": ChatKind.DM, "group": ChatKind.GROUP, "channel": ChatKind.CHANNEL}
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "toolResult": Role.TOOL, "tool": Role.TOOL}
_WINDOWS = "SELECT * FROM session_windows ORDER BY created_at, session_id"
_EVENTS = "SELECT event_json FROM transcript_events WHERE session_id = ? ORDER BY seq"


def read(home: Path) -> HomeContents:
    """Raises Invalid when there is nothing of OpenClaw in this folder."""
    found = HomeContents()
    for path in sorted(home.rglob("openclaw-agent.sqlite")):
        try:
            with closing(sqlite3.connect(path)) as conn:
                conn.row_factory = sqlite3.Row
                for row in conn.execute(_WINDOWS).fetchall():
                    window = dict(row)
                    events = [each[0] for each in conn.execute(_EVENTS, (window["session_id"],))]
                    packed = sum(event is None for event in events)
                    if packed:
                        found.left_out.append(f"{packed} packed entries of session {window['session_id']}")
                    with leaving_out(found, f"session {window['session_id']}"):
                        known = [json.loads(event) for event in events if event is not None]
                        _take(window, known, _peer(conn, window), found)
        except (sqlite3.DatabaseError, ValueError) as error:
            found.left_out.append(f"{path.name}: {error}")
    for path in sorted([*home.glob("workspace*/MEMORY.md"), *home.glob("workspace*/memory/*.md")]):
        found.notes += notes_in(path.read_text("utf-8", "replace"))
    if not found.conversations and not found.notes and not found.left_out:
        raise Invalid(f"{home} is no home of OpenClaw: there is no session in it.")
    return found


def _peer(conn: sqlite3.Connection, window: Mapping[str, Any]) -> str:
    wanted = (window.get("primary_conversation_id"),)
    row = conn.execute("SELECT peer_id FROM conversations WHERE conversation_id = ?", wanted).fetchone()
    return str(row[0]) if row else ""


def _take(window: Mapping[str, Any], events: Iterable[dict[str, Any]], peer: str, found: HomeContents) -> None:
    messages = [made for event in events if event.get("type") == "message" for made in _messages(event, window, found)]
    if not messages:
        found.left_out.append(f"session {window['session_id']}: it has no messages")
        return
    found.conversations.append(
        ForeignConversation(
            program=PROGRAM,
            name=str(window["session_id"]),
            started_at=int(window.get("started_at") or window.get("created_at") or messages[0].at),
            messages=messages,
            platform=str(window.get("channel") or ""),
            kind=_KINDS.get(str(window.get("chat_type")), ChatKind.DM),
            chat_id=peer,
            title=window.get("display_name"),
            model=window.get("model"),
        )
    )


def _messages(event: dict[str, Any], window: Mapping[str, Any], found: HomeContents) -> Iterator[ForeignMessage]:
    message: dict[str, Any] = event.get("message") or {}
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        found.left_out.append(f"an entry {message.get('role')} in session {window['session_id']}")
        return
    content = message.get("content")
    parts: list[dict[str, Any]] = content if isinstance(content, list) else []  # pyright: ignore[reportUnknownVariableType]  # of another program
    yield ForeignMessage(
        role=role,
        content=text_of(content),
        at=_ms(message.get("timestamp") or event.get("timestamp")),
        tool_calls=[_call(part) for part in parts if part.get("type") == "toolCall"],
        tool_call_id=message.get("toolCallId"),
        tool_name=message.get("toolName"),
    )


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": part.get("name"), "arguments": json.dumps(part.get("arguments") or {}, ensure_ascii=False)}
    return {"id": part.get("id"), "type": "function", "function": function}


def _ms(moment: object) -> int:
    if isinstance(moment, int | float):
        return round(moment)
    try:
        return round(datetime.fromisoformat(str(moment)).timestamp() * 1000)
    except ValueError:
        return 0
