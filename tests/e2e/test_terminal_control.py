"""What a model or a stranger has written never drives the terminal on which it is printed, whatever prints it."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection

from gateway.cli.main import hermes
from sessions import jobs, memory, outbox, people, store
from sessions.db import open_database
from sessions.keys import Address, ChatKind, SessionKey
from sessions.messages import Content
from sessions.records import Message, Role, Route, Source

NOW = 1_750_000_000_000
EVIL = "tea\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b2J\u202e"
CHAT = Address(platform="telegram", kind=ChatKind.DM, chat_id="7")
ID = "20250305_091523_a1b2c3d4"


def _fill(conn: Connection) -> None:
    session = store.start(conn, SessionKey.cli(ID), NOW, source=Source.CLI, session_id=ID, title=EVIL)
    messages = [Message(role=Role.USER, content=EVIL), Message(role=Role.ASSISTANT, content=EVIL)]
    store.append(conn, session.id, messages, NOW)
    jobs.create(conn, jobs.new_job(name=EVIL, schedule="@daily", prompt=EVIL, timezone="UTC", deliver="local", now=NOW))
    memory.note(conn, "agent:main", EVIL, NOW, cause=EVIL)
    people.request_access(conn, "telegram", "7", EVIL, CHAT, NOW)
    outbox.put(conn, Route(address=CHAT), Content(text=EVIL), NOW, dedup_key="1", session_key="")
    outbox.give_up(conn, 1, EVIL)


@pytest.fixture
def filled(home: Path) -> Path:
    database = open_database(home)
    database.write_now(_fill)
    database.close()
    return home


@pytest.mark.parametrize(
    "command",
    [
        "sessions list",
        "sessions list --json",
        "sessions show 2025",
        "sessions search tea",
        "sessions search tea --json",
        "sessions rename 2025 x",
        "jobs list",
        "jobs list --json",
        "jobs show tea",
        "jobs pause tea",
        "memory list",
        "memory list --json",
        "memory forget 1",
        "outbox list",
        "outbox list --json",
        "pair list",
        "gateway status",
        "chat -r 2025 -q /sessions",
        "chat -q /memory",
    ],
)
def test_nothing_that_was_stored_drives_the_terminal(filled: Path, command: str) -> None:
    arguments = [EVIL if word == "tea" and "search" not in command else word for word in command.split()]
    done = CliRunner().invoke(hermes, arguments, env={"HERMES_HOME": str(filled)}, prog_name="hermes", color=True)
    assert "Traceback" not in done.output
    for sign in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e"):
        assert sign not in done.output, f"{sign!r} in {done.output!r}"
