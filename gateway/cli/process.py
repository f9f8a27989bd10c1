"""The life of a process that serves: signals, one daemon per home, telling systemd, a clean end."""

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import socket
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

from sessions.errors import Unusable

_MOST_FILES = 65_536


def raise_file_limit() -> int:
    """Raises the soft limit of open files to the hard one, and returns it: the soft limit is for programs that use select."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems refuse what they promise
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft if soft != resource.RLIM_INFINITY else _MOST_FILES


class AlreadyRunning(Unusable):
    """Another daemon serves this home."""


_PID_FILE = "gateway.pid"


def has_pid_file(home: Path) -> bool:
    """Returns whether a daemon serves this home, or one was killed there."""
    return (home / _PID_FILE).exists()


@contextlib.contextmanager
def single_instance(home: Path) -> Generator[bool]:
    """Holds the home for this daemon while the block lasts. Gives True when the one before it was killed. Raises AlreadyRunning."""
    path = home / _PID_FILE
    was_killed = path.exists()
    descriptor = _locked_file(path, home)
    try:
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):  # on a full disk nobody reads who holds the lock
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield was_killed
    finally:
        # Before the lock is given up: afterwards the name may belong to the next daemon.
        path.unlink(missing_ok=True)
        os.close(descriptor)


@contextlib.contextmanager
def stopped(home: Path) -> Generator[None]:
    """Holds the home, so that no gateway starts on it while the block lasts. Raises AlreadyRunning when one runs."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(single_instance(home))
        except AlreadyRunning:
            raise AlreadyRunning(
                f"A gateway runs on {home}. Stop it first: hermes gateway stop, or Ctrl-C where it runs."
            ) from None
        yield


def _locked_file(path: Path, home: Path) -> int:
    while True:
        # A lock of the kernel, which ends with the process; the id in the file is only for people.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            raise AlreadyRunning(
                f"A gateway already runs on {home} (process {pid or 'unknown'}). `hermes` talks with it; to start another, choose a home with --home DIR."
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # the daemon before us removed the file after we opened it


@contextlib.asynccontextmanager
async def signals() -> AsyncGenerator["Signals"]:
    """Handles SIGTERM and SIGINT by asking for the end, and SIGHUP by reading the configuration, or by asking for the end when it says that the
    terminal was closed.
    """
    loop = asyncio.get_running_loop()
    asked = Signals()
    is_to_outlive_it = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup leaves it
    ends_with_terminal = _has_terminal() and not is_to_outlive_it

    def on_hangup() -> None:
        (asked.end if ends_with_terminal and not _has_terminal() else asked.reload).set()

    loop.add_signal_handler(signal.SIGTERM, asked.end.set)
    loop.add_signal_handler(signal.SIGINT, asked.end.set)
    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    try:
        yield asked
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Signals:
    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.reload = asyncio.Event()


def notify_systemd(state: str) -> None:
    """Sends READY=1, STOPPING=1, WATCHDOG=1 … to whoever started us, if it listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # An @ stands for the null byte of Linux's abstract sockets.
    target = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
        notify.connect(target)
        notify.sendall(state.encode())


async def feed_watchdog() -> None:
    """Tells systemd that the loop turns, at half the time that it allows."""
    micros = os.environ.get("WATCHDOG_USEC", "")
    if not micros.isdecimal():
        return
    while True:
        notify_systemd("WATCHDOG=1")
        # On the event loop and not in a thread: a loop that hangs has to be noticed.
        await asyncio.sleep(int(micros) / 2_000_000)
