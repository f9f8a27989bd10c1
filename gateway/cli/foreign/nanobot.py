"""nanobot: one JSONL file for each session, and the notes in the workspace's `memory/`."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
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

PROGRAM = "nanobot"


def read(home: Path) -> HomeContents:
    """Raises Invalid when there is nothing of nanobot in this folder."""
    found = HomeContents()
    for path in sorted(home.rglob("*.jsonl")):
        with leaving_out(found, path.name):
            _take(path, found)
    for path in sorted(home.rglob("memory/MEMORY.md")):
        found.notes += notes_in(path.read_text("utf-8", "replace"))
    if not found.conversations and not found.notes:
        raise Invalid(f"{home} is no home of nanobot: there is no session in it.")
    return found


def _take(path: Path, found: HomeContents) -> None:
    lines = list(_lines(path, found))
    about = next((line for line in lines if line.get("_type") == "metadata"), None)
    if about is None:
        return
    name = str(about.get("key") or path.stem)
    messages = [message for line in lines if "role" in line and (message := _message(line, name, found))]
    if not messages:
        found.left_out.append(f"session {name}: it has no messages")
        return
    platform, _, chat = name.partition(":")
    more: dict[str, Any] = about.get("metadata") or {}
    found.conversations.append(
        ForeignConversation(
            program=PROGRAM,
            name=name,
            started_at=_ms(about.get("created_at")) or messages[0].at,
            messages=messages,
            platform=platform,
            kind=ChatKind.GROUP if chat.startswith("-") else ChatKind.DM,
            chat_id=chat.partition(":")[0],
            title=more.get("title"),
        )
    )


def _lines(path: Path, found: HomeContents) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        try:
            data = json.loads(line)
        except ValueError:
            found.left_out.append(f"{path.name}, line {number}: it is no JSON")
            continue
        if isinstance(data, dict):
            yield data


def _message(line: dict[str, Any], name: str, found: HomeContents) -> ForeignMessage | None:
    if line["role"] not in set(Role):
        found.left_out.append(f"a message with the role {line['role']} in session {name}")
        return None
    return ForeignMessage(
        role=Role(line["role"]),
        content=text_of(line.get("content")),
        at=_ms(line.get("timestamp")),
        tool_calls=line.get("tool_calls") or (),
        tool_call_id=line.get("tool_call_id"),
        tool_name=line.get("name"),
    )


def _ms(moment: object) -> int:
    """Returns epoch milliseconds of a time that nanobot writes as local time without a zone."""
    try:
        return round(datetime.fromisoformat(str(moment)).astimezone(UTC).timestamp() * 1000)
    except ValueError:
        return 0
