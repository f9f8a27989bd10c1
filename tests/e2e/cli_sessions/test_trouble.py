"""Others at work, and homes and databases that cannot be used."""

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessions import store
from sessions.records import Role
from sessions.search.message_index import index_some
from tests.e2e.cli_sessions.stock import BEGIN, CLI_ID, DAY, EVERYTHING, LATER_ID, LONG_ID, ids, new_message

WRITER = """
import sys
from pathlib import Path
from sessions import store
from sessions.db import open_database
from sessions.records import Message, Role

database = open_database(Path(sys.argv[1]))
for number in range(1_000_000):
    database.write_now(store.append, sys.argv[2], [Message(role=Role.USER, content=f"busy {number}")], number)
    if number == 20:
        print("writing", flush=True)
"""


def test_everything_works_while_another_program_writes(stocked, run, home):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(home), LATER_ID], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "writing\n"
        answers = {" ".join(command): run(*command) for command in EVERYTHING}
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()

    assert {name: answer.stderr for name, answer in answers.items() if answer.exit_code} == {}
    assert ids(run) == [LATER_ID, LONG_ID]


@pytest.mark.parametrize("command", [*EVERYTHING, ["import", "/dev/null"]], ids=" ".join)
def test_a_damaged_database(run, home, command):
    home.mkdir()
    (home / "state.db").write_bytes(b"this is no database at all" * 1000)

    answer = run(*command)

    assert answer.exit_code == 1
    assert "state.db is damaged" in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stdout == ""


@pytest.mark.parametrize("command", [["list"], ["import", "/dev/null"]], ids=" ".join)
def test_the_home_of_another_program(run, home, command):
    home.mkdir()
    with sqlite3.connect(home / "state.db") as conn:
        conn.execute("CREATE TABLE theirs (x)")
    before = (home / "state.db").read_bytes()

    answer = run(*command)

    assert answer.exit_code == 2
    assert "another program" in answer.stderr
    assert (home / "state.db").read_bytes() == before


@pytest.mark.parametrize("command", [["list"], ["import", "/dev/null"]], ids=" ".join)
def test_a_home_that_is_a_file(run, home, command):
    home.write_text("")

    answer = run(*command)

    assert answer.exit_code == 1
    assert f"{home} is a file" in answer.stderr


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may write everywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)


CHANGING = [["rename", CLI_ID, "x"], ["delete", CLI_ID, "--yes"], ["prune", "--yes"]]
LOOKING = [["list"], ["search", "deploy"], ["show", CLI_ID], ["stats"], ["export", "-"], ["prune", "--dry-run"]]


@pytest.fixture
def unwritable(stocked) -> Iterator[Path]:
    """The same home where only its owner may write."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with sqlite3.connect(stocked / "state.db") as conn:
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (home / "state.db").write_bytes((stocked / "state.db").read_bytes())
        home.chmod(0o555)
        yield home
        home.chmod(0o700)


@pytest.mark.parametrize("command", CHANGING, ids=" ".join)
def test_a_home_that_cannot_be_written(unwritable, run, command):
    run("list")  # imports what it needs, while it may
    with without_rights():
        answer = run(*command, HERMES_HOME=str(unwritable))

    assert answer.exit_code == 1
    assert answer.stderr.startswith(f"{unwritable} cannot be written: permission denied.")
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_home_that_cannot_be_written_can_be_looked_at(unwritable, run, command):
    there = run(*command)  # imports what it needs, while it may, and indexes
    with without_rights():
        answer = run(*command, HERMES_HOME=str(unwritable))

    told = "7 new messages could not be indexed, because this home cannot be written. What they say is not found.\n"
    assert (answer.exit_code, answer.stderr) == (0, told if command[0] == "search" else "")
    if command[0] not in {"search", "stats"}:
        assert answer.stdout == there.stdout
    assert [path.name for path in unwritable.iterdir()] == ["state.db"]


def test_an_index_that_is_up_to_date_is_searched_without_writing(stocked, unwritable, run):
    there = run("search", "deploy")
    with sqlite3.connect(stocked / "state.db") as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (unwritable / "state.db").write_bytes((stocked / "state.db").read_bytes())

    with without_rights():
        answer = run("search", "deploy", HERMES_HOME=str(unwritable))

    assert there.stdout.count("deploy") == 4
    assert (answer.stdout, answer.stderr) == (there.stdout, "")


def test_words_that_only_the_log_holds_are_not_left_out_in_silence(unwritable, run):
    (unwritable / "state.db-wal").write_bytes(b"x")
    run("list")

    with without_rights():
        answer = run("list", HERMES_HOME=str(unwritable))

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "Copy the home to a place that can be written" in answer.stderr


def test_an_older_database_is_not_upgraded_where_it_cannot_be(unwritable, run):
    with sqlite3.connect(unwritable / "state.db") as conn:
        conn.execute("PRAGMA journal_mode = DELETE")
        conn.execute("UPDATE alembic_version SET version_num = '0011'")
    conn.close()
    run("list")

    with without_rights():
        answer = run("list", HERMES_HOME=str(unwritable))

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "is of an older version" in answer.stderr


def test_an_index_that_trails_far_behind_is_brought_up(database, run):
    lines = [new_message(Role.USER, f"line {number}") for number in range(700)]
    database.write_now(store.append, CLI_ID, lines, BEGIN + DAY)

    assert "line 699" in run("search", "699").stdout
    assert not database.write_now(index_some)
