"""`hermes` as a person uses it: a real terminal, real processes, and a model server that keeps what it was sent."""

import asyncio
import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest
import yaml

from tests.fakes.model_replies import Pause, Reply, bad_key, call, calls
from tests.fakes.model_server import ModelServer

HERMES = str(Path(sys.executable).with_name("hermes"))
WIDTH, HEIGHT = 80, 40
ASKED_WHERE = "\x1b[6n"


class SlowModel:
    """Says what it heard; on "slowly" it stops in the middle of its answer until it is let go."""

    def __init__(self) -> None:
        self.halfway = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, body: dict[str, Any]) -> Any:
        last = body["messages"][-1]
        said = str(last["content"]).rpartition("\n\n")[2]
        if last["role"] == "tool":
            return f"The tool said {last['content']}"
        match said.split()[0]:
            case "slowly":
                chunks = ("First part.\n\n", "Second part.")
                return Reply(text="".join(chunks), chunks=chunks, between=self._waiting_after_the_first())
            case "half":
                chunks = ("The first half.\n\nnot yet a line, ", "never said.")
                return Reply(text="".join(chunks), chunks=chunks, between=self._waiting_after_the_first())
            case "long":
                chunks = (" ".join(["A **bold** word is said."] * 8), " ".join(["", *["The end of it."] * 8]))
                return Reply(text="".join(chunks), chunks=chunks, between=self._waiting_after_the_first())
            case "choose":
                return calls(call("ask_human", {"question": "Which one?", "options": ["Red", "Green"]}))
            case "note":
                return calls(call("memory", {"action": "save", "text": said}))
            case "refuse":
                return bad_key()
            case _:
                return f"You said **{said}**.\n\n- one\n- two"

    def _waiting_after_the_first(self) -> Pause:
        passed = count()

        async def wait() -> None:
            if next(passed) > 0:
                self.halfway.set()
                while not self.go_on.is_set():
                    await asyncio.sleep(0.005)

        return wait


@pytest.fixture
def model() -> Generator[tuple[ModelServer, SlowModel]]:
    """A model server on a loop of its own, since a terminal is watched by blocking."""
    slow = SlowModel()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = ModelServer(slow)
    run = lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(30)  # noqa: E731
    run(server.__aenter__())
    yield server, slow
    slow.go_on.set()
    run(server.__aexit__())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def configured(home: Path, model: tuple[ModelServer, SlowModel]) -> Path:
    section = {"base_url": model[0].url, "name": "fake-model", "api_key": "sk-fake-1234567890"}
    (home / "config.yaml").write_text(yaml.safe_dump({"model": section}))
    return home


class Window:
    """A terminal of 80 by 40 with `hermes` in it. `sees` waits until the screen shows something."""

    def __init__(self, home: Path, *arguments: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in {"LINES", "COLUMNS"}}
        environ = {**inherited, "TERM": "xterm-256color", "HERMES_HOME": str(home), "NO_COLOR": ""}
        self.child = pexpect.spawn(
            HERMES, list(arguments), dimensions=(HEIGHT, WIDTH), encoding="utf-8", timeout=60, env=environ
        )
        self.screen = pyte.HistoryScreen(WIDTH, HEIGHT)
        self._stream = pyte.Stream(self.screen)
        self.raw = ""

    def types(self, text: str) -> None:
        self.child.send(f"{text}\r")

    def presses(self, keys: str) -> None:
        self.child.send(keys)

    def sees(self, text: str) -> str:
        while text not in self.shown:
            self._more()
        return self.shown

    @property
    def shown(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def line_with(self, text: str) -> str:
        return next(line for line in self.shown.splitlines() if text in line)

    def is_dim(self, text: str) -> bool:
        escaped = re.search(rf"((?:\x1b\[[0-9;]*m)*)[^\n\x1b]*{re.escape(text)}", self.raw)
        return escaped is not None and "\x1b[2m" in escaped.group(1)

    def _more(self) -> None:
        read = self.child.read_nonblocking(65_536, timeout=60)
        self.raw += read
        self._stream.feed(read)
        for _ in range(read.count(ASKED_WHERE)):
            cursor = self.screen.cursor
            self.child.send(f"\x1b[{cursor.y + 1};{cursor.x + 1}R")

    def ends(self) -> str:
        with contextlib.suppress(pexpect.EOF):
            while True:
                self._more()
        self.child.wait()
        return self.shown

    def is_left_by_ctrl_c(self) -> str:
        """Twice, and once more each time that the machine was too slow for that to be twice."""
        with contextlib.suppress(pexpect.EOF):
            for asked in count(1):
                self.presses("\x03")
                while self.shown.count("Ctrl-C once more leaves.") < asked:
                    self._more()
        return self.ends()


@pytest.fixture
def windows() -> Generator[list[Window]]:
    opened: list[Window] = []
    yield opened
    for window in opened:
        window.child.close(force=True)


@pytest.fixture
def open_window(configured: Path, windows: list[Window]):
    def open_window(*arguments: str) -> Window:
        windows.append(Window(configured, *arguments))
        windows[-1].sees("you ›")
        return windows[-1]

    return open_window


def piped(home: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HERMES_HOME": str(home)}
    return subprocess.run([HERMES, *arguments], input=said, capture_output=True, text=True, timeout=60, env=environ)


def session_in(text: str) -> str:
    found = re.search(r"Session (\d{8}_\d{6}_[0-9a-f]{8})", text)
    assert found is not None
    return found[1]


def stored(home: Path, query: str) -> int:
    """What another process sees in the database of this home."""
    with contextlib.closing(sqlite3.connect(home / "state.db")) as conn:
        return int(conn.execute(query).fetchone()[0])


def until(ready: Callable[[], object]) -> None:
    ends = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < ends
        time.sleep(0.01)


def heard(server: ModelServer) -> list[tuple[str, str]]:
    """The last request as (role, text), without the system prompt and the time."""
    said = [(m["role"], re.sub(r"^\[[^\]]+\]\n\n", "", m["content"] or "")) for m in server.bodies[-1]["messages"]]
    return said[1:]


def test_a_conversation_in_the_terminal(open_window, configured: Path, model: tuple[ModelServer, SlowModel]):
    server, _ = model
    window = open_window()
    window.types("hello")
    window.sees("• two")
    assert "**" not in window.shown

    window.types("note tea")
    window.sees("The tool said Saved as o1.")
    assert window.is_dim("· memory")

    window.presses("\x1b[200~first line\nsecond line\x1b[201~\r")
    window.sees("second line.")
    assert heard(server)[-1] == ("user", "first line\nsecond line")

    window.types("/title Boats")
    window.sees("called “Boats”")
    window.types("/nwe")
    window.sees("Did you mean /new?")
    window.types("/etc/hosts is broken")
    window.sees("You said /etc/hosts is broken.")

    window.presses("\x04")
    end = window.ends()
    assert window.child.exitstatus == 0
    assert f"hermes -r {session_in(end)}" in end
    assert "hello" in (configured / "history").read_text()
    assert (configured / "history").stat().st_mode & 0o777 == 0o600


def test_steering_and_stopping(open_window, configured: Path, model: tuple[ModelServer, SlowModel]):
    server, slow = model
    window = open_window()
    window.types("slowly please")
    window.sees("First part.")
    window.sees("Ctrl-C stops")
    window.types("and mind the gap")
    window.sees("Noted.")
    slow.go_on.set()
    window.sees("You said and mind the gap.")
    assert heard(server) == [
        ("user", "slowly please"),
        ("assistant", "First part.\n\nSecond part."),
        ("user", "and mind the gap"),
    ]
    assert window.shown.count("First part.") == 1

    slow.go_on.clear()
    slow.halfway.clear()
    window.types("slowly again")
    assert slow.halfway.wait(60)
    window.sees("Ctrl-C stops")
    window.presses("\x03")
    window.sees("Stopped.")
    window.types("still there")
    window.sees("You said still there.")
    until(lambda: stored(configured, "SELECT count(*) FROM runs WHERE status = 'running'") == 0)
    end = window.is_left_by_ctrl_c()
    assert "Ctrl-C once more leaves." in end
    assert "Resume" in end


def test_resuming_has_the_whole_history(open_window, configured: Path, model: tuple[ModelServer, SlowModel]):
    server, _ = model
    session = session_in(piped(configured, "chat", "-q", "my name is Ann").stderr)
    window = open_window("-r", session[:15])
    window.sees("You last said: “my name is Ann”")
    window.types("who am I")
    window.sees("You said who am I.")
    answer = "You said **my name is Ann**.\n\n- one\n- two"
    assert heard(server) == [("user", "my name is Ann"), ("assistant", answer), ("user", "who am I")]
    window.presses("\x04")
    window.ends()
    assert piped(configured, "-c", said="and now\n").returncode == 0
    assert [text for role, text in heard(server) if role == "user"] == ["my name is Ann", "who am I", "and now"]


def test_questions_from_scripts(configured: Path, model: tuple[ModelServer, SlowModel]):
    good = piped(configured, "chat", "-q", "hello")
    assert (good.returncode, good.stdout) == (0, "You said **hello**.\n\n- one\n- two\n")
    bad = piped(configured, "chat", "-q", "refuse this")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "/retry" in bad.stderr
    assert "Traceback" not in bad.stderr
    several = piped(configured, said="one\n\n/status\ntwo\n")
    assert several.returncode == 0
    assert several.stdout.index("You said **one**") < several.stdout.index("Ready.") < several.stdout.index("**two**")
    unknown = piped(configured, "-r", "20990101", said="x\n")
    assert unknown.returncode == 1
    assert "No session begins with '20990101'" in unknown.stderr


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
        other.stdin.flush()
        until(lambda: stored(configured, "SELECT count(*) FROM inbox WHERE body LIKE '%me too%'"))
        slow.go_on.set()
        told, _ = other.communicate(timeout=60)
    assert "You said **me too**." in told
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


def test_after_new_the_next_message_begins_another_session(home: Path) -> None:
    ended = piped(home, said="hello\n/new\nhello again\n")
    assert ended.returncode == 0, ended.stderr
    assert "New conversation." in ended.stdout
    assert "hello again" in ended.stdout
    assert stored(home, "SELECT count(*) FROM sessions WHERE message_count = 2") == 2


def change(home: Path, sql: str) -> None:
    """Another process does this to the database of this home."""
    with contextlib.closing(sqlite3.connect(home / "state.db")) as conn:
        conn.executescript(sql)


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
        asking.stdin.write("slowly please\n")
        asking.stdin.flush()
        assert slow.halfway.wait(60)
        asking.send_signal(signal.SIGINT)
        said, errors = asking.communicate(timeout=60)  # the model is never let go on
    assert asking.returncode == 130
    assert "Traceback" not in errors
    assert session_in(said + errors)
    assert stored(configured, "SELECT count(*) FROM runs WHERE stop_reason = 'cancelled'") == 1


def test_ctrl_c_in_a_question_on_a_terminal_keeps_what_was_shown(
    configured: Path, windows: list[Window], model: tuple[ModelServer, SlowModel]
):
    _, slow = model
    windows.append(Window(configured, "chat", "-q", "slowly please"))
    windows[0].sees("First part.")
    assert slow.halfway.wait(60)
    windows[0].presses("\x03")
    assert "Session " in windows[0].ends()
    assert windows[0].child.exitstatus == 130


def test_a_command_that_sets_the_agent_to_work_is_waited_for(configured: Path, model: tuple[ModelServer, SlowModel]):
    server, _ = model
    several = piped(configured, said="one\n/retry\ntwo\n")
    assert re.findall(r"\*\*(\w+)\*\*", several.stdout) == ["one", "one", "two"]
    assert [text for role, text in heard(server) if role == "user"] == ["one", "two"]
    again = piped(configured, "chat", "-c", "-q", "/retry")
    assert (again.returncode, again.stdout) == (0, "You said **two**.\n\n- one\n- two\n")


def test_two_answers_of_one_run_are_apart(open_window, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    window = open_window()
    window.types("slowly please")
    window.sees("Ctrl-C stops")
    assert slow.halfway.wait(60)
    window.types("and more")
    window.sees("Noted.")
    slow.go_on.set()
    window.sees("You said and more.")
    assert window.line_with("Second part.") == "Second part."
    assert window.shown.count("Second part.") == window.shown.count("You said and more.") == 1


@pytest.mark.parametrize(("command", "notice"), [("/undo", "I took back"), ("/new", "New conversation.")])
def test_nothing_follows_the_notice_that_an_answer_was_ended(
    open_window, model: tuple[ModelServer, SlowModel], command: str, notice: str
):
    _, slow = model
    window = open_window()
    window.types("half of a paragraph")
    window.sees("The first half")
    assert slow.halfway.wait(60)
    window.types(command)
    window.sees(notice)
    slow.go_on.set()
    window.types("hello")
    window.sees("You said hello.")
    shown = window.shown
    assert "not yet a line" not in shown
    assert "never said" not in shown


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
    assert piped(configured, "chat", "-q", "refuse this").stderr.count("401") == 1


def test_a_number_chooses_an_option(configured: Path):
    answered = piped(configured, said="choose a colour\n2\n")
    assert "2. Green" in answered.stdout
    assert "The tool said Green" in answered.stdout


def test_the_practice_model_answers_whatever_is_chosen(home: Path):
    (home / "config.yaml").write_text("model: {provider: practice}\n")
    said = piped(home, "chat", "-q", "/model foo").stdout
    assert "the practice model answers on here" in said
    assert "From now on" not in said


def test_a_long_paragraph_grows_line_by_line(open_window, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    window = open_window()
    window.types("long")
    window.sees("A bold word is said. A bold word is said.")
    slow.go_on.set()
    window.sees("The end of it.")
    window.presses("\x04")
    words = " ".join(window.ends().split())
    assert words.count("A bold word is said.") == words.count("The end of it.") == 8
