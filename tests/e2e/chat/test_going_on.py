"""Sessions of the terminal: resumed, shared, killed, deleted, and a storage in trouble."""

import contextlib
import os
import sqlite3
import subprocess
import time
from pathlib import Path

from tests.e2e.chat.windows import HERMES, SlowModel, change, last_request, piped, session_in, stored, until
from tests.fakes.model_server import ModelServer


def test_resuming_has_the_whole_history(open_window, configured: Path, model: tuple[ModelServer, SlowModel]):
    server, _ = model
    session = session_in(piped(configured, "chat", "-q", "my name is Ann").stderr)
    window = open_window("-r", session[:15])
    window.sees("You last said: “my name is Ann”")
    window.types("who am I")
    window.sees("You said who am I.")
    answer = "You said **my name is Ann**.\n\n- one\n- two"
    assert last_request(server) == [("user", "my name is Ann"), ("assistant", answer), ("user", "who am I")]
    window.presses("\x04")
    window.ends()
    assert piped(configured, "-c", said="and now\n").returncode == 0
    assert [text for role, text in last_request(server) if role == "user"] == ["my name is Ann", "who am I", "and now"]


def test_a_second_process_in_the_same_session(open_window, configured: Path, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    session = session_in(piped(configured, "chat", "-q", "hello").stderr)
    window = open_window("-r", session)
    window.types("slowly please")
    window.sees("First part.")
    environ = {**os.environ, "HERMES_HOME": str(configured)}
    other = subprocess.Popen(
        [HERMES, "-r", session], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )
    with other:
        assert other.stdin is not None
        other.stdin.write("me too\n")
        other.stdin.close()
        until(lambda: stored(configured, "SELECT count(*) FROM inbox WHERE body LIKE '%me too%'"))
        slow.go_on.set()
        assert other.stdout is not None
        told = other.stdout.read()
    assert "You said **me too**." in told
    window.sees("You said me too.")


def test_what_another_process_asks_and_hears_is_shown_here_too(open_window, configured: Path):
    session = session_in(piped(configured, "chat", "-q", "hello").stderr)
    window = open_window("-r", session)
    # It begins and ends between two looks of the window.
    assert "**me too**" in piped(configured, "chat", "-r", session, "-q", "me too").stdout
    window.sees("You said me too.")


def test_a_killed_chat_goes_on_when_it_is_resumed(open_window, configured: Path, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    session = session_in(piped(configured, "chat", "-q", "hello").stderr)
    window = open_window("-r", session)
    window.types("slowly please")
    window.sees("First part.")
    os.kill(window.child.pid, 9)
    slow.go_on.set()
    again = open_window("-r", session)
    again.sees("Second part.")
    again.types("well")
    again.sees("You said well.")


def test_leaving_in_the_middle_does_not_hang_and_resuming_goes_on(open_window, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    window = open_window()
    window.types("slowly please")
    window.sees("First part.")
    window.sees("Ctrl-C stops")
    window.presses("\x04")
    end = window.ends()
    assert window.child.exitstatus == 0
    assert "The answer is not finished. Resuming goes on with it." in end
    slow.go_on.set()
    again = open_window("-r", session_in(end))
    again.sees("Second part.")


def test_a_deleted_session_does_not_blind_the_chat(open_window, configured: Path):
    window = open_window()
    window.types("hello")
    window.sees("You said hello.")
    until(lambda: stored(configured, "SELECT count(*) FROM runs WHERE status = 'running'") == 0)
    with contextlib.closing(sqlite3.connect(configured / "state.db")) as conn:
        session = conn.execute("SELECT id FROM sessions").fetchone()[0]
    assert piped(configured, "sessions", "delete", session, "--yes").returncode == 0
    time.sleep(1.2)  # the chat looks around every second; a slower one makes this test easier, never red
    window.types("are you there")
    window.sees("You said are you there.")
    window.types("refuse this")  # only who still watches the runs sees how this one ends
    window.sees("/retry")


def test_trouble_with_the_storage_is_told_and_the_chat_goes_on(open_window, configured: Path):
    window = open_window()
    window.types("hello")
    window.sees("• two")
    change(configured, "CREATE TRIGGER broken BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'full'); END")
    window.types("keep my words")
    window.sees("full")
    change(configured, "DROP TRIGGER broken")
    window.presses("\r")  # what was typed stands there again
    window.sees("You said keep my words.")
    change(configured, "ALTER TABLE runs RENAME TO elsewhere")
    window.sees("OperationalError")  # the watcher says so
    change(configured, "ALTER TABLE elsewhere RENAME TO runs")
    window.types("refuse this")
    window.sees("/retry")


def test_earlier_sessions_of_the_terminal_are_reached_from_inside(
    open_window, configured: Path, model: tuple[ModelServer, SlowModel]
):
    server, _ = model
    piped(configured, "chat", "-q", "my name is Ann")
    window = open_window()
    window.types("/sessions")
    window.sees("1. my name is Ann")
    window.types("/resume 1")
    window.sees("You last said: “my name is Ann”")
    window.types("who am I")
    window.sees("You said who am I.")
    assert [text for role, text in last_request(server) if role == "user"] == ["my name is Ann", "who am I"]
    window.presses("\x04")
    window.ends()


def test_a_question_that_waits_is_mentioned_at_the_start(open_window, configured: Path):
    piped(configured, "chat", "-q", "choose a colour")
    window = open_window()
    window.sees("waits for your answer: Which one?")
    window.types("/exit")
    window.ends()


def test_leaving_ends_the_session_and_continuing_opens_it_again(open_window, configured: Path):
    window = open_window()
    window.types("my name is Ann")
    window.sees("You said my name is Ann.")
    window.presses("\x04")
    window.ends()
    assert stored(configured, "SELECT count(*) FROM sessions WHERE end_reason = 'user'") == 1
    again = open_window("-c")
    again.sees("You last said: “my name is Ann”")
    again.sees("You said my name is Ann.")  # the last answer is shown, too
    assert stored(configured, "SELECT count(*) FROM sessions WHERE end_reason IS NULL") == 1
    other = open_window("-c")
    other.presses("\x04")
    other.ends()  # which ends the session of the first window
    again.types("who am I")
    again.sees("You said who am I.")
    assert stored(configured, "SELECT sum(message_count) FROM sessions") == 4
    assert stored(configured, "SELECT count(*) FROM sessions") == 1


def test_a_conversation_of_another_place_goes_on_as_a_branch(
    open_window, configured: Path, model: tuple[ModelServer, SlowModel]
):
    server, _ = model
    piped(configured, "chat", "-q", "in a chat")
    chat = (
        "UPDATE sessions SET id = 'old', source = 'discord', session_key = 'agent:main:discord:channel:1', ns = 'there'"
    )
    change(configured, chat)
    change(configured, "UPDATE messages SET session_id = 'old'")
    window = open_window("-r", "old")
    window.sees("a branch of that conversation from Discord")
    window.sees("You said in a chat.")
    window.types("and here")
    window.sees("You said and here.")
    assert [text for role, text in last_request(server) if role == "user"] == ["in a chat", "and here"]
    of_source = "SELECT message_count FROM sessions WHERE source = '{}' AND ns = 'there' AND ended_at IS NULL"
    until(lambda: stored(configured, of_source.format("cli")) == 4)
    assert stored(configured, of_source.format("discord")) == 2


def test_new_shows_nothing_of_the_farewell(open_window, configured: Path):
    window = open_window()
    window.types("my name is Ann")
    window.sees("You said my name is Ann.")
    window.types("/new")
    window.sees("New conversation.")
    until(lambda: stored(configured, "SELECT count(*) FROM runs WHERE kind = 'farewell' AND status = 'completed'"))
    window.types("hello again")
    window.sees("You said hello again.")
    assert "If there is nothing to save" not in window.shown  # the end of the request, which this model repeats
