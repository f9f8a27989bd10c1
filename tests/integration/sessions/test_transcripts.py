"""The files beside the database: whole after every flush, and after every crash once repaired."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions import export, files, runs, store
from sessions.db import Database, open_database
from sessions.records import EndReason, InboxRow, Message, Session
from sessions.runs import ModelAnswer, Opening
from sessions.transcripts import Transcripts, as_line, transcript_path
from tests.integration.sessions.writing import conversation

KEY = "agent:main:telegram:group:-1"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def transcripts(home: Path, database: Database) -> Transcripts:
    return Transcripts(home, database)


def lines(home: Path, session: Session) -> list[dict[str, Any]]:
    return [json.loads(line) for line in transcript_path(home, session.id).read_text("utf-8").splitlines()]


def texts(home: Path, session: Session) -> list[Any]:
    return [line["content"] for line in lines(home, session)]


def index(home: Path) -> dict[str, str]:
    return json.loads((home / "sessions" / "sessions.json").read_text())


def is_whole(home: Path, database: Database, session: Session) -> bool:
    wanted = [json.loads(json.dumps(as_line(m))) for m in database.read_now(store.read_messages, session.id)]
    return lines(home, session) == wanted


def test_messages_are_appended_as_lines(home: Path, database: Database, transcripts: Transcripts) -> None:
    session = conversation(database, KEY, "one", "zwei: 東京 🎉")
    assert transcripts.due
    transcripts.flush()
    assert not transcripts.due
    conversation(database, KEY, "three\nwith a break")
    transcripts.flush()
    assert texts(home, session) == ["one", "zwei: 東京 🎉", "three\nwith a break"]
    assert is_whole(home, database, session)
    assert transcript_path(home, session.id).stat().st_mode & 0o777 == 0o600


def test_a_tool_call_is_mirrored_once_its_result_is_there(
    home: Path, database: Database, transcripts: Transcripts
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "files", "arguments": "{}"}}
    opening = Opening()
    database.write_now(
        runs.accept, InboxRow(dedup_key="k", session_key=KEY, messages=[Message(content="go")]), opening, 1
    )
    run = database.write_now(runs.claim, KEY, "me", opening, 2, lease_ms=9)
    assert run is not None
    database.write_now(runs.take_in_new_messages, run, 2)
    (row,) = database.write_now(runs.answered, run, ModelAnswer(text="", tool_calls=[call]), 3, step=0)
    session = database.read_now(store.get, run.session_id)
    transcripts.flush()
    assert [line["role"] for line in lines(home, session)] == ["user", "assistant"]
    transcripts.close()  # and the mark that it leaves does not skip the row that is still to come
    database.write_now(runs.tool_done, run, row.id, "result", 4)
    again = Transcripts(home, database)
    again.repair()
    assert [line["role"] for line in lines(home, session)] == ["user", "assistant", "tool"]
    assert is_whole(home, database, session)


def half_a_line(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 7)


def a_lost_break(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def all_gone(path: Path) -> None:
    path.unlink()


def nothing_left(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("crash", [half_a_line, a_lost_break, all_gone, nothing_left])
def test_what_a_crash_cut_off_is_made_whole(
    home: Path, database: Database, transcripts: Transcripts, crash: Callable[[Path], None]
) -> None:
    session = conversation(database, KEY, "one", "two " * 40_000, "three")
    transcripts.flush()
    crash(transcript_path(home, session.id))
    Transcripts(home, database).repair()
    assert is_whole(home, database, session)


def test_what_a_dead_process_did_not_mirror_is_mirrored_at_the_next_start(home: Path, database: Database) -> None:
    session = conversation(database, KEY, "one")
    assert not transcript_path(home, session.id).exists()
    Transcripts(home, database).repair()
    assert is_whole(home, database, session)
    assert index(home) == {KEY: session.id}


def test_a_process_that_closes_does_not_hide_what_another_left_behind(home: Path, database: Database) -> None:
    """A command that ends cleanly while the daemon has lines that it never wrote, because it is killed a moment later."""
    command = Transcripts(home, database)
    session = conversation(database, KEY, "by the daemon")
    command._dirty.clear()  # pyright: ignore[reportPrivateUsage]  # what another process commits is not heard here
    command.close()
    Transcripts(home, database).repair()
    assert is_whole(home, database, session)


def test_what_was_taken_back_leaves_the_file_too(home: Path, database: Database, transcripts: Transcripts) -> None:
    session = conversation(database, KEY, "one", "two", "three", "four")
    transcripts.flush()
    database.write_now(store.take_back, session.id)
    transcripts.flush()
    assert texts(home, session) == ["one", "two"]
    database.write_now(store.take_back, session.id)
    transcripts.flush()
    assert not transcript_path(home, session.id).exists()


def test_what_another_process_took_back_leaves_the_file_with_the_next_line(home: Path, database: Database) -> None:
    transcripts = Transcripts(home, database)
    session = conversation(database, KEY, "one", "two", "three", "four")
    transcripts.flush()
    database.write_now(store.take_back, session.id)
    transcripts._rewritten.clear()  # pyright: ignore[reportPrivateUsage]
    conversation(database, KEY, "five")
    transcripts.flush()
    assert texts(home, session) == ["one", "two", "five"]


def test_a_deleted_session_leaves_no_file_even_after_a_crash(home: Path, database: Database) -> None:
    transcripts = Transcripts(home, database)
    gone, kept = conversation(database, KEY, "one"), conversation(database, KEY + "2", "two")
    transcripts.flush()
    database.write_now(store.delete_session, gone.id)
    Transcripts(home, database).repair()
    assert not transcript_path(home, gone.id).exists()
    assert is_whole(home, database, kept)
    transcripts.flush()
    assert index(home) == {KEY + "2": kept.id}


def test_a_transcript_is_not_deleted_because_its_session_is_unknown(
    home: Path, database: Database, transcripts: Transcripts
) -> None:
    session = conversation(database, KEY, "one")
    transcripts.flush()
    stranger = transcript_path(home, "20250305_091523_a1b2c3d4")
    stranger.write_bytes(transcript_path(home, session.id).read_bytes())
    Transcripts(home, database).repair()
    assert stranger.exists()


def test_a_deleted_session_that_was_brought_back_keeps_its_transcript(home: Path, database: Database) -> None:
    session = conversation(database, KEY, "one")
    exported = database.read_now(export.export_session, session.id)
    database.write_now(store.delete_session, session.id)
    database.write_now(export.import_session, export.ImportedSession.model_validate(exported), "cli:ann")
    Transcripts(home, database).repair()
    assert texts(home, session) == ["one"]


def test_a_start_after_a_crash_looks_only_at_what_was_written_since_the_last_catching_up(
    home: Path, sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Transcripts(home, sqlite)
    for number in range(20):
        conversation(sqlite, f"{KEY}{number}", "old")
    running.flush()
    running.catch_up()
    late = conversation(sqlite, KEY, "new")
    opened: list[Path] = []
    real = files.open_locked

    def counted(path: Path) -> object:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(files, "open_locked", counted)
    Transcripts(home, sqlite).repair()
    assert opened == [transcript_path(home, late.id)]


def test_the_index_names_active_platform_chats_only(home: Path, database: Database, transcripts: Transcripts) -> None:
    group, dm = conversation(database, KEY, "x"), conversation(database, "agent:main:slack:dm", "x")
    for key in ("agent:main:cli:1", "agent:main:api:laptop:1", "agent:main:thread:t", "agent:main:job:j"):
        conversation(database, key, "x")
    transcripts.flush()
    assert index(home) == {KEY: group.id, "agent:main:slack:dm": dm.id}
    database.write_now(store.end, group.id, EndReason.USER, 1)
    transcripts.flush()
    assert index(home) == {"agent:main:slack:dm": dm.id}


def test_what_could_not_be_written_stays_due(home: Path, database: Database, transcripts: Transcripts) -> None:
    session = conversation(database, KEY, "one")
    blocker = transcript_path(home, session.id)
    blocker.mkdir()
    with pytest.raises(OSError, match="directory"):
        transcripts.flush()
    assert transcripts.due
    blocker.rmdir()
    transcripts.flush()
    assert is_whole(home, database, session)
    assert index(home) == {KEY: session.id}


def test_a_long_session_is_mirrored_in_chunks(home: Path, database: Database, transcripts: Transcripts) -> None:
    session = conversation(database, KEY, *(str(i) for i in range(1_203)))
    transcripts.flush()
    assert is_whole(home, database, session)


MIRROR = """
import sys
from pathlib import Path
from sessions import store
from sessions.db import open_database
from sessions.transcripts import Transcripts
from sessions.records import Message, Role
home, session_id, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
database = open_database(home)
transcripts = Transcripts(home, database)
for number in range(60):
    database.write_now(store.append, session_id, [Message(role=Role.USER, content=f"{name} {number}")], number)
    if number % 20 == 7:
        database.write_now(store.take_back, session_id)
    transcripts.flush()
transcripts.close()
database.close()
"""


def test_two_processes_mirror_one_session(home: Path, sqlite: Database) -> None:
    session = conversation(sqlite, KEY, "first")
    processes = [
        subprocess.Popen([sys.executable, "-c", MIRROR, home, session.id, name], cwd=ROOT) for name in ("ann", "bob")
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert is_whole(home, sqlite, session)


def test_only_ids_become_file_names(home: Path) -> None:
    for name in ("../../etc/passwd", "", "20250305_091523_a1b2c3d4/../x"):
        with pytest.raises(ValueError, match="no session id"):
            transcript_path(home, name)


def test_a_new_home_needs_no_repair(home: Path) -> None:
    database = open_database(home)
    transcripts = Transcripts(home, database)
    transcripts.repair()
    transcripts.close()
    assert index(home) == {}
    database.close()
