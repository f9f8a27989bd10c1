"""`hermes chat` as a person meets it: in a terminal, from a pipe, stopped, left, killed and resumed."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest
import yaml

from tests.fakes.model_replies import Failure, Reply, call, calls
from tests.fakes.model_server import ModelServer

HERMES = str(Path(sys.executable).with_name("hermes"))
SIZE = (40, 100)
PROMPT = "you › "


class Gate:
    """Holds an answer back until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await asyncio.to_thread(self._open.wait, 20)

    def open(self) -> None:
        self._open.set()

    def is_reached(self) -> bool:
        return self.reached.wait(15)


@pytest.fixture
def model() -> Generator[ModelServer]:
    """The scripted server in a thread of its own. Its `script` is set by the test."""
    server, ready, loop = ModelServer(), threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield server
    loop.call_soon_threadsafe(over.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def environ(tmp_path: Path, model: ModelServer) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    chosen = {"provider": "openai", "base_url": model.url, "name": "fake-model", "api_key": "sk-fake-key-1234567890"}
    (home / "config.yaml").write_text(yaml.safe_dump({"model": chosen}))
    unwanted = {"COLUMNS", "LINES", "OPENAI_API_KEY", "OPENROUTER_API_KEY"}
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, "HERMES_HOME": str(home), "TERM": "xterm-256color"}


class Tty:
    """A terminal with a person in front of it: it answers what programs ask of terminals, and shows its screen."""

    def __init__(self, environ: dict[str, str], *arguments: str) -> None:
        self.child = pexpect.spawn(
            HERMES, list(arguments), encoding="utf-8", timeout=15, dimensions=SIZE, env=environ, echo=False
        )
        self.child.delaybeforesend = None
        self._screen = pyte.HistoryScreen(SIZE[1], SIZE[0], history=500)
        self._screen.write_process_input = self.child.send
        self._stream = pyte.Stream(self._screen)
        self.child.logfile_read = self

    def write(self, data: str) -> None:
        self._stream.feed(data)

    def flush(self) -> None:
        pass

    def sees(self, text: str) -> None:
        self.child.expect(re.escape(text))

    def types(self, text: str) -> None:
        self.child.send(text + "\r")

    def pastes(self, text: str) -> None:
        self.child.send(f"\x1b[200~{text}\x1b[201~")

    @property
    def screen(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def leaves(self) -> str:
        """By Ctrl-D. The id of the session."""
        self.child.sendeof()
        self.sees("Resume  hermes -r ")
        self.child.expect(pexpect.EOF)
        self.child.close()
        assert self.child.exitstatus == 0, self.screen
        found = re.search(r"^Session (\d{8}_\d{6}_[0-9a-f]{8})\nResume  hermes -r \1$", self.screen, re.MULTILINE)
        assert found, self.screen
        return found[1]


@pytest.fixture
def chat(environ: dict[str, str]) -> Generator[Callable[..., Tty]]:
    opened: list[Tty] = []

    def open_one(*arguments: str) -> Tty:
        opened.append(Tty(environ, *arguments))
        opened[-1].sees(PROMPT.strip())
        return opened[-1]

    yield open_one
    for tty in opened:
        tty.child.close(force=True)


def once(environ: dict[str, str], *arguments: str, said: str | None = None) -> subprocess.CompletedProcess[str]:
    given: dict[str, Any] = {"input": said} if said is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run([HERMES, *arguments], capture_output=True, text=True, timeout=30, env=environ, **given)


def heard(body: dict[str, Any]) -> list[str]:
    """What the model was sent after the system prompt, without the block that tells the time."""
    return [re.sub(r"^\[[^\]]*\d\d:\d\d [^\]]*\]\n\n", "", str(turn["content"])) for turn in body["messages"][1:]]


# --- in a terminal ------------------------------------------------------------------------------------------------


def test_an_answer_its_tools_and_a_pasted_message(chat, model):
    model.script = [
        calls(call("memory", {"action": "save", "text": "Ann likes tea"}), text="I note it."),
        "Noted **well**.\n\n> as you said\n\nThe end of it.",
        "three lines they were",
    ]
    tty = chat()
    tty.types("remember tea")
    tty.sees("The end of it.")
    shown = tty.screen
    assert re.search(r"you › remember tea\nI note it\.\n\n· memory\nNoted well\.\n\n▌ as you said\n\nThe end", shown), (
        shown
    )
    assert "WARNING" not in shown
    tty.pastes("one\ntwo\nthree")
    tty.types("")
    tty.sees("three lines they were")
    tty.leaves()
    assert heard(model.bodies[2])[-1] == "one\ntwo\nthree"


def test_what_is_typed_while_it_works_is_taken_into_account(chat, model):
    gate = Gate()
    model.script = [Reply(text="first answer", before=gate), "second answer"]
    tty = chat()
    tty.types("begin")
    assert gate.is_reached()
    tty.sees("working")
    tty.types("and also this")
    tty.sees("Noted.")
    gate.open()
    tty.sees("first answer")
    tty.sees("second answer")
    tty.leaves()
    assert heard(model.bodies[1]) == ["begin", "first answer", "and also this"]


def test_ctrl_c_stops_the_answer_and_not_the_program(chat, model):
    gate = Gate()
    model.script = [Reply(text="never shown", before=gate), "still here"]
    tty = chat()
    tty.types("begin")
    assert gate.is_reached()
    tty.child.sendintr()
    tty.sees("Stopped. What was done so far is kept.")
    gate.open()
    tty.types("are you there")
    tty.sees("still here")
    assert "never shown" not in tty.screen
    assert "[stopped" not in tty.screen
    tty.leaves()


def test_commands_answer_without_the_model(chat, model):
    tty = chat()
    for typed, answer in [
        ("/help", "/stop – end what I am doing"),
        ("/status", "Ready. Nothing has been said here yet."),
        ("/hlep", "Did you mean /help?"),
        ("/stop", "I am not doing anything at the moment."),
    ]:
        tty.types(typed)
        tty.sees(answer)
    tty.child.sendeof()
    tty.child.expect(pexpect.EOF)
    assert model.count == 0


def test_a_question_is_answered_by_the_next_message(chat, model):
    model.script = [calls(call("ask_human", {"question": "Which colour?", "options": ["Red", "Blue"]})), "So be it."]
    tty = chat()
    tty.types("paint")
    tty.sees("2. Blue")
    tty.types("blue")
    tty.sees("So be it.")
    tty.leaves()
    assert heard(model.bodies[1])[-1] == "blue"


def test_a_failure_is_one_sentence(chat, model):
    model.script = [Failure(status=401, message="bad key", code="invalid_api_key")]
    tty = chat()
    tty.types("hello")
    tty.sees("/retry tries again.")
    assert "Traceback" not in tty.screen
    tty.leaves()


# --- coming back --------------------------------------------------------------------------------------------------


def test_resuming_by_prefix_and_by_newest_has_the_whole_history(chat, environ, model):
    model.script = ["first answer", "second answer", "third answer"]
    tty = chat()
    tty.types("first")
    tty.sees("first answer")
    session = tty.leaves()
    again = chat("-r", session[:20])
    assert "Back in “first”" in again.screen
    again.types("second")
    again.sees("second answer")
    assert again.leaves() == session
    ended = once(environ, "chat", "-c", "-q", "third")
    assert ended.stdout == "third answer\n"
    assert session in ended.stderr
    assert heard(model.bodies[2]) == ["first", "first answer", "second", "second answer", "third"]


def test_a_run_that_was_killed_goes_on_when_resumed(chat, model):
    lost = Gate()
    model.script = [
        calls(call("files", {"action": "list"})),
        Reply(text="lost", before=lost),
        "I went on and am done.",
    ]
    tty = chat()
    tty.types("begin")
    assert lost.is_reached()
    tty.child.kill(9)
    tty.child.wait()
    lost.open()
    again = chat("-c")
    again.sees("I went on and am done.")
    again.leaves()
    assert heard(model.bodies[2]) == heard(model.bodies[1])


def test_leaving_in_the_middle_does_not_hang_and_resuming_goes_on(chat, model):
    gate = Gate()
    model.script = [Reply(text="lost", before=gate), "Here I am again."]
    tty = chat()
    tty.types("begin")
    assert gate.is_reached()
    session = tty.leaves()
    assert "The answer is not finished. Resuming goes on with it." in tty.screen
    gate.open()
    again = chat("-r", session)
    again.sees("Here I am again.")
    again.leaves()


# --- from scripts -------------------------------------------------------------------------------------------------


def test_one_question_prints_the_answer_and_nothing_else(environ, model):
    model.script = ["**plain** text"]
    ended = once(environ, "chat", "-q", "hello")
    assert (ended.returncode, ended.stdout) == (0, "**plain** text\n")
    assert re.search(r"Resume  hermes -r \S+\n$", ended.stderr)


def test_one_question_that_fails_is_exit_code_1_and_a_sentence(environ, model):
    model.script = [Failure(status=401, message="bad key", code="invalid_api_key")]
    ended = once(environ, "chat", "-q", "hello")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "/retry tries again." in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_unknown_session_is_exit_code_1(environ, model):
    ended = once(environ, "-r", "20010101_0")
    assert ended.returncode == 1
    assert "20010101_0" in ended.stderr
    assert model.count == 0


def test_lines_from_a_pipe_are_said_one_after_the_other(environ, model):
    model.script = ["one", "two"]
    ended = once(environ, "chat", said="first\n\n/status\nsecond\n")
    assert ended.returncode == 0
    assert re.fullmatch(r"one\nReady\. .*\ntwo\n\nSession \S+\nResume .*\n", ended.stdout), ended.stdout
    assert heard(model.bodies[1]) == ["first", "one", "second"]
