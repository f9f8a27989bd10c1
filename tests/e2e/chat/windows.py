"""`hermes` as a person uses it: a real terminal, real processes, and a model server that keeps what it was sent."""

import asyncio
import contextlib
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pexpect
import pyte

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


class TerminalWindow:
    """A terminal of 80 by 40 with `hermes` in it. `sees` waits until the screen shows something."""

    def __init__(self, home: Path, *arguments: str, program: str = HERMES) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in {"LINES", "COLUMNS"}}
        environ = {**inherited, "TERM": "xterm-256color", "HERMES_HOME": str(home), "NO_COLOR": ""}
        self.child = pexpect.spawn(
            program, list(arguments), dimensions=(HEIGHT, WIDTH), encoding="utf-8", timeout=60, env=environ
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
            self.more()
        return self.shown

    @property
    def shown(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def line_with(self, text: str) -> str:
        return next(line for line in self.shown.splitlines() if text in line)

    def is_dim(self, text: str) -> bool:
        escaped = re.search(rf"((?:\x1b\[[0-9;]*m)*)[^\n\x1b]*{re.escape(text)}", self.raw)
        return escaped is not None and "\x1b[2m" in escaped.group(1)

    def more(self) -> None:
        read = self.child.read_nonblocking(65_536, timeout=60)
        self.raw += read
        self._stream.feed(read)
        for _ in range(read.count(ASKED_WHERE)):
            cursor = self.screen.cursor
            self.child.send(f"\x1b[{cursor.y + 1};{cursor.x + 1}R")

    def ends(self) -> str:
        with contextlib.suppress(pexpect.EOF):
            while True:
                self.more()
        self.child.wait()
        return self.shown

    def is_left_by_ctrl_c(self) -> str:
        """Twice, and once more each time that the machine was too slow for that to be twice."""
        with contextlib.suppress(pexpect.EOF):
            for asked in count(1):
                self.presses("\x03")
                while self.shown.count("Ctrl-C once more leaves.") < asked:
                    self.more()
        return self.ends()


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


def last_request(server: ModelServer) -> list[tuple[str, str]]:
    """The last request as (role, text), without the system prompt and the time."""
    said = [(m["role"], re.sub(r"^\[[^\]]+\]\n\n", "", m["content"] or "")) for m in server.bodies[-1]["messages"]]
    return said[1:]


def change(home: Path, sql: str) -> None:
    """Another process does this to the database of this home."""
    with contextlib.closing(sqlite3.connect(home / "state.db")) as conn:
        conn.executescript(sql)
