"""Questions from scripts and pipes."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.chat.windows import (
    HERMES,
    SlowModel,
    TerminalWindow,
    change,
    last_request,
    piped,
    session_in,
    stored,
    until,
)
from tests.fakes.model_server import ModelServer


def in_turn(*said: str) -> list[tuple[str, ...]]:
    """One after the other, in one conversation."""
    return [("chat", *(("-c",) if number else ()), "-q", text) for number, text in enumerate(said)]


def test_questions_from_scripts(configured: Path, model: tuple[ModelServer, SlowModel]):
    good = piped(configured, "chat", "-q", "hello")
    assert (good.returncode, good.stdout) == (0, "You said **hello**.\n\n- one\n- two\n")
    bad = piped(configured, "chat", "-q", "refuse this")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "/retry" in bad.stderr
    assert "Traceback" not in bad.stderr
    command = piped(configured, said="/status\n")
    assert (command.returncode, command.stdout.startswith("Ready")) == (0, True)
    unknown = piped(configured, "-r", "20990101", said="x\n")
    assert unknown.returncode == 1
    assert "No session begins with '20990101'" in unknown.stderr


def test_what_is_piped_is_one_message(configured: Path, model: tuple[ModelServer, SlowModel]):
    server, _ = model
    log = "one\n\n/etc/hosts is broken\n[tool] three\n"
    for arguments, said in (
        ((), log.strip()),
        (("chat", "-q", "-"), log.strip()),
        (("chat", "-q", "explain"), f"{log.strip()}\n\nexplain"),
    ):
        before = server.count
        answer = piped(configured, *arguments, said=log)
        assert answer.returncode == 0, answer.stderr
        assert server.count == before + 1
        assert last_request(server)[-1] == ("user", said)
    assert piped(configured, said="").returncode == 0
    nothing = piped(configured, "chat", "-q", "-", said="")
    assert nothing.returncode == 2
    assert "Nothing came through the pipe" in nothing.stderr


def test_a_question_of_a_script_gets_its_own_answer(configured: Path, model: tuple[ModelServer, SlowModel]):
    session = session_in(piped(configured, "chat", "-q", "hello").stderr)
    # What another process says in this session the moment that our run is over.
    change(
        configured,
        """CREATE TRIGGER another AFTER UPDATE OF status ON runs WHEN new.status = 'completed' BEGIN
             INSERT INTO messages (session_id, role, content, created_at, state)
             VALUES (new.session_id, 'assistant', 'not for you', 1, 'done');
           END""",
    )
    assert piped(configured, "chat", "-r", session, "-q", "mine").stdout.startswith("You said **mine**.")


@pytest.mark.parametrize("arguments", [("chat", "-q", "slowly please"), ()], ids=["-q", "pipe"])
def test_ctrl_c_ends_a_question_of_a_script_at_once(
    configured: Path, model: tuple[ModelServer, SlowModel], arguments: tuple[str, ...]
):
    _, slow = model
    environ = {**os.environ, "HERMES_HOME": str(configured)}
    asking = subprocess.Popen(
        [HERMES, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )
    with asking:
        assert asking.stdin is not None
        asking.stdin.write("slowly please\n" if not arguments else "")
        asking.stdin.close()
        asking.stdin = None
        assert slow.halfway.wait(60)
        asking.send_signal(signal.SIGINT)
        said, errors = asking.communicate(timeout=60)  # the model is never let go on
    assert asking.returncode == 130
    assert "Traceback" not in errors
    assert session_in(said + errors)
    assert stored(configured, "SELECT count(*) FROM runs WHERE stop_reason = 'cancelled'") == 1


def test_ctrl_c_in_a_question_on_a_terminal_keeps_what_was_shown(
    configured: Path, windows: list[TerminalWindow], model: tuple[ModelServer, SlowModel]
):
    _, slow = model
    windows.append(TerminalWindow(configured, "chat", "-q", "slowly please"))
    windows[0].sees("First part.")
    assert slow.halfway.wait(60)
    windows[0].presses("\x03")
    assert "Session " in windows[0].ends()
    assert windows[0].child.exitstatus == 130


def test_a_command_that_sets_the_agent_to_work_is_waited_for(configured: Path, model: tuple[ModelServer, SlowModel]):
    server, _ = model
    several = [piped(configured, *arguments).stdout for arguments in in_turn("one", "/retry", "two")]
    assert re.findall(r"\*\*(\w+)\*\*", "".join(several)) == ["one", "one", "two"]
    assert [text for role, text in last_request(server) if role == "user"] == ["one", "two"]
    again = piped(configured, "chat", "-c", "-q", "/retry")
    assert (again.returncode, again.stdout) == (0, "You said **two**.\n\n- one\n- two\n")


def test_what_cannot_be_asked_and_what_only_looks(configured: Path):
    for nothing in ("", "  \n"):
        refused = piped(configured, "chat", "-q", nothing)
        assert refused.returncode == 2
        assert "The question is empty." in refused.stderr
    for looking in ("/memory", "/forget 1", "/model", "/status"):
        seen = piped(configured, "chat", "-q", looking)
        assert (seen.returncode, seen.stderr) == (0, "")
        assert seen.stdout
    assert stored(configured, "SELECT count(*) FROM sessions") == 0


def test_what_failed_is_said_once(configured: Path):
    assert piped(configured, "chat", "-q", "refuse this").stderr.count("(401)") == 1


def test_a_number_chooses_an_option(configured: Path):
    asked, answered = [piped(configured, *arguments).stdout for arguments in in_turn("choose a colour", "2")]
    assert "2. Green" in asked
    assert "The tool said Green" in answered


def test_the_practice_model_answers_whatever_is_chosen(home: Path):
    (home / "config.yaml").write_text("model: {provider: practice}\n")
    said = piped(home, "chat", "-q", "/model foo").stdout
    assert "The practice model keeps answering" in said
    assert "From now on" not in said


def test_new_ends_the_conversation(home: Path) -> None:
    _, new = [piped(home, *arguments).stdout for arguments in in_turn("hello", "/new")]
    assert "New conversation." in new
    assert stored(home, "SELECT count(*) FROM sessions WHERE ended_at IS NOT NULL") == 1


def test_what_follows_new_is_said_in_the_new_session(home: Path) -> None:
    _, third = [piped(home, *arguments).stdout for arguments in in_turn("hello", "/new and a third")]
    assert "and a third" in third
    assert stored(home, "SELECT count(*) FROM sessions WHERE message_count = 2") == 2


def test_two_questions_in_one_session_each_get_their_own_answer(configured: Path, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    session = session_in(piped(configured, "chat", "-q", "hello").stderr)
    environ = {**os.environ, "HERMES_HOME": str(configured)}
    asked = ("slowly please", "one", "two")
    running = []
    for said in asked:
        command = [HERMES, "chat", "-r", session, "-q", said]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ))
        until(lambda said=said: stored(configured, f"SELECT count(*) FROM inbox WHERE body LIKE '%{said}%'"))
    slow.go_on.set()
    told = [process.communicate(timeout=60)[0] for process in running]
    assert [text.splitlines()[0] for text in told] == ["First part.", "You said **one**.", "You said **two**."]
