"""Runs one shell command and keeps it within its limits. Ends it, with everything that it has started, when the gateway is gone.

It is a process of its own between the gateway and the command, run by its path, so that it imports nothing but the standard library. On
Linux all that the command starts stays below it (a subreaper), also what detaches itself; elsewhere only the command's process group is
known. Its standard input brings the settings in one line, then one line for each request: `poll` or `end`. When the input ends, the gateway
has died. It writes one JSON object a line: the answer to `poll`, and a last one when the command has ended.
"""

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

LOOK_SECONDS = 0.1
GRACE_SECONDS = 2.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAGE = resource.getpagesize()
_THREADS_EACH = 16


class Output:
    """The beginning and the end of what was printed, together at most `limit` bytes, of which the beginning gets a fifth."""

    def __init__(self, limit: int) -> None:
        self._first_limit, self._last_limit = limit // 5, limit - limit // 5
        self._first = bytearray()
        self._last = deque[bytes]()
        self._last_size = 0
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        room = self._first_limit - len(self._first)
        self._first += piece[:room]
        if rest := piece[room:]:
            self._last.append(rest)
            self._last_size += len(rest)
            while self._last_size - len(self._last[0]) >= self._last_limit:
                self._last_size -= len(self._last.popleft())

    def text(self) -> str:
        last = b"".join(self._last)[-self._last_limit :]
        left_out = self.size - len(self._first) - len(last)
        between = f"\n[… {left_out} bytes left out …]\n" if left_out else ""
        return f"{self._first.decode(errors='replace')}{between}{last.decode(errors='replace')}"


def descendants(pid: int) -> list[int]:
    """Returns the processes below this one, as far as the system tells."""
    found, waiting = list[int](), [pid]
    while waiting:
        here = waiting.pop()
        with suppress(OSError):
            for task in Path(f"/proc/{here}/task").iterdir():
                with suppress(OSError):
                    children = [int(child) for child in (task / "children").read_text().split()]
                    found += children
                    waiting += children
    return found


def kill_with_descendants(pid: int) -> None:
    """Kills a process that hangs, and all that it has started: without it nobody would."""
    signal_all([pid, *descendants(pid)], signal.SIGKILL)


def end_with_parent() -> None:
    """To be called in a child before its program starts. On Linux the child is killed when its parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # what is ignored would stay so in the program
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _alive(pids: list[int]) -> list[int]:
    def is_alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
        except (OSError, IndexError):
            return False

    return [pid for pid in pids if is_alive(pid)]


def end_all(command: subprocess.Popen[bytes], grace: float) -> None:
    """Ends the command and all below us: first by asking, then for good. What forks faster than it is killed is stopped before."""
    me = os.getpid()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(command.pid, signal.SIGTERM)
    signal_all(descendants(me), signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until and (_alive(descendants(me)) or command.poll() is None):
        time.sleep(0.02)
        _reap(command)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        there = _alive(descendants(me))
        if not there and command.poll() is not None:
            return
        signal_all(there, signal.SIGSTOP)
        again = _alive(descendants(me))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(command.pid, signal.SIGKILL)
        signal_all(again, signal.SIGKILL)
        _reap(command)


def _reap(command: subprocess.Popen[bytes]) -> None:
    """Collects what has ended below us and is nobody's child any more; the command itself is collected by its own object."""
    command.poll()
    for pid in descendants(os.getpid()):
        if pid != command.pid:
            with suppress(ChildProcessError, OSError):
                os.waitpid(pid, os.WNOHANG)


def _limit_child(settings: dict[str, Any]) -> None:
    os.setsid()
    os.nice(10)
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = settings["cpu_seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    if sys.platform == "linux":
        with suppress(OSError):  # the system should end these first, and not the gateway
            Path("/proc/self/oom_score_adj").write_text("1000")
        with suppress(OSError, ValueError):
            own = sum(
                1 for place in Path("/proc").iterdir() if place.name.isdigit() and place.stat().st_uid == os.getuid()
            )
            most = _THREADS_EACH * (own + settings["count"])
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


class Supervisor:
    """The command, what it has printed, and what is allowed to it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._output = Output(settings["output_bytes"])
        self._looked = 0.0
        self._requests = b""
        self._command = subprocess.Popen(  # noqa: S602  # a shell command is what was approved
            settings["command"],
            shell=True,
            cwd=settings["cwd"],
            env=settings["env"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: _limit_child(settings),  # noqa: PLW1509  # there is one thread
        )
        self._printed = self._command.stdout.fileno() if self._command.stdout is not None else -1
        os.set_blocking(self._printed, False)
        self._is_printing = True

    def run(self) -> None:
        """Returns when the command and all that it has started have ended, or the gateway is gone."""
        reason = ""
        while not reason and not self._is_over():
            sources = [sys.stdin.fileno(), *([self._printed] if self._is_printing else [])]
            ready, _, _ = select.select(sources, [], [], LOOK_SECONDS)
            if self._printed in ready:
                self._read_some()
            if sys.stdin.fileno() in ready:
                # A request of the gateway: what was printed, or that the command ends. End of file: the gateway is gone.
                received = os.read(sys.stdin.fileno(), 4_096)
                *lines, self._requests = (self._requests + received).split(b"\n")
                if b"poll" in lines:
                    say({"output": self._output.text()})
                reason = "gateway" if not received else "ended" if b"end" in lines else ""
            reason = reason or self._broken_limit()
        if reason:
            end_all(self._command, grace=GRACE_SECONDS if reason == "ended" else 0)
        while self._is_printing and select.select([self._printed], [], [], 0)[0]:  # what was printed last
            self._read_some()
        say({"code": self._command.poll(), "reason": reason, "output": self._output.text()})

    def _read_some(self) -> None:
        piece = os.read(self._printed, 65_536)
        self._is_printing = piece != b""
        self._output.add(piece)
        if self._output.size > self._settings["output_bytes"]:
            time.sleep(0.0005)  # nobody reads it: the command may wait

    def _broken_limit(self) -> str:
        """Looks now and then. Returns which limit is broken; empty: none."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return ""
        self._looked = time.monotonic()
        _reap(self._command)
        there = _alive(descendants(os.getpid()))
        if len(there) > self._settings["count"]:
            return "count"
        used = 0
        for pid in there:
            with suppress(OSError, ValueError, IndexError):
                used += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        return "memory" if used > self._settings["memory_bytes"] else ""

    def _is_over(self) -> bool:
        return self._command.poll() is not None and not self._is_printing and not _alive(descendants(os.getpid()))


def supervise(settings: dict[str, Any]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; the gateway decides
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Supervisor(settings).run()


def say(what: dict[str, Any]) -> None:
    """Writes one object to the gateway, as a line of JSON."""
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with open(0, "rb", buffering=0, closefd=False) as standard_input:  # not buffered: what follows is for select()
        settings = standard_input.readline()
    supervise(json.loads(settings))
