"""Lease owners: processes of a machine. A process that is known to be dead owns nothing."""

import os
import socket
from functools import lru_cache
from pathlib import Path


def _started(pid: int) -> str:
    """When the process began, in the kernel's ticks; empty when it is dead, reaped or not (or the system does not tell)."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in {"Z", "X"} else fields[18]
    except (OSError, ValueError, IndexError):
        return ""


@lru_cache(maxsize=1)
def _host() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def this_owner() -> str:
    return f"{_host()}:{os.getpid()}:{_started(os.getpid())}"


def is_dead(owner: str) -> bool:
    """True only when this machine can know it for certain."""
    host, _, process = owner.partition(":")
    pid, _, started = process.partition(":")
    if host.partition("/")[0] != socket.gethostname() or not pid.isdigit():
        return False
    if host != _host():
        return True  # before the last boot of this machine
    if not started:
        return not Path("/proc").is_dir() and not _alive(int(pid))
    return _started(int(pid)) != started


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
