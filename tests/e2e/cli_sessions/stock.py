"""A home with three conversations in it, and the command in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
from click.testing import Result

from sessions import store
from sessions.keys import SessionKey
from sessions.records import EndReason, Message, Role, Source

Hermes = Callable[..., Result]

HERMES = str(Path(sys.executable).with_name("hermes"))
BEGIN = 1_741_166_123_000  # 2025-03-05 09:15:23 UTC
MINUTE, DAY = 60_000, 86_400_000
CLI_ID, ENDED_ID, LONG_ID, LATER_ID = (
    "20250305_091523_a1b2c3d4",
    "20250305_101523_b1b2c3d4",
    "20250306_091523_c1b2c3d4",
    "20250307_091523_d1b2c3d4",
)
CALL = {"id": "c1", "type": "function", "function": {"name": "files", "arguments": '{"action": "list"}'}}
EVERYTHING = [
    ["list"],
    ["list", "--json"],
    ["search", "deploy"],
    ["show", CLI_ID],
    ["stats"],
    ["rename", CLI_ID, "x"],
    ["export", "-"],
    ["delete", CLI_ID, "--yes"],
    ["prune", "--yes"],
]


LIST = """\
ID                             Source       Model                          Messages Started
────────────────────────────────────────────────────────────────────────────────────────────────
20250307_091523_d1b2c3d4       slack        -                                     1 2025-03-07 09:15
20250306_091523_c1b2c3d4       slack        -                                     1 2025-03-06 09:15 (ended)
20250305_101523_b1b2c3d4       telegram     a-provider/with-a-name-that-i…        1 2025-03-05 10:15 (ended)
20250305_091523_a1b2c3d4       cli          anthropic/claude-opus-4.6             4 2025-03-05 09:15
"""


def new_message(role: Role, content: str, **more: object) -> Message:
    return Message(role=role, content=content, **more)


def fill(conn) -> None:
    """A terminal session; an ended one of Telegram; a Slack conversation in two parts, the second still open."""
    start = store.start
    cli = start(
        conn,
        SessionKey.parse(f"agent:main:cli:{CLI_ID}"),
        BEGIN,
        source=Source.CLI,
        session_id=CLI_ID,
        model="anthropic/claude-opus-4.6",
        title="The garden app",
    )
    store.append(
        conn,
        cli.id,
        [
            new_message(Role.USER, "How do we deploy the garden app?"),
            new_message(Role.ASSISTANT, "Let me look.", tool_calls=[CALL]),
            new_message(Role.TOOL, "notes.txt\nplan.txt", tool_name="files", tool_call_id="c1"),
            new_message(Role.ASSISTANT, "Run this:\n\n  make deploy"),
        ],
        BEGIN + 1000,
    )
    ended = start(
        conn,
        SessionKey.parse("agent:main:telegram:dm"),
        BEGIN + 60 * MINUTE,
        source=Source.TELEGRAM,
        session_id=ENDED_ID,
        user_id="111",
        model="a-provider/with-a-name-that-is-much-too-long",
    )
    store.append(
        conn,
        ended.id,
        [new_message(Role.USER, "deployed \x1b]0;owned\x07 it", sender="Ann\x1b[31m")],
        BEGIN + 61 * MINUTE,
    )
    store.end(conn, ended.id, EndReason.IDLE, BEGIN + 62 * MINUTE)
    key = SessionKey.parse("agent:main:slack:channel:C1")
    first = start(conn, key, BEGIN + DAY, source=Source.SLACK, session_id=LONG_ID, title="tulips")
    store.append(conn, first.id, [new_message(Role.USER, "[Dana] Which tulips?", sender="Dana")], BEGIN + DAY)
    store.end(conn, first.id, EndReason.COMPRESSED, BEGIN + 2 * DAY)
    second = start(
        conn, key, BEGIN + 2 * DAY, source=Source.SLACK, session_id=LATER_ID, title="tulips", parent=first.id
    )
    store.append(conn, second.id, [new_message(Role.ASSISTANT, "The red ones.")], BEGIN + 2 * DAY)


def really(home: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [HERMES, "--home", str(home), "sessions", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def ids(run: Hermes) -> list[str]:
    return [session["id"] for session in json.loads(run("list", "--json").stdout)]


def terminal(home: Path, *arguments: str, lines: int = 200, **environ: str) -> pexpect.spawn:
    inherited = {name: value for name, value in os.environ.items() if name not in {"LINES", "COLUMNS", "NO_COLOR"}}
    return pexpect.spawn(
        HERMES,
        ["--home", str(home), "sessions", *arguments],
        env={**inherited, "TERM": "xterm", "PAGER": "cat", **environ},
        encoding="utf-8",
        timeout=60,
        dimensions=(lines, 200),
    )
