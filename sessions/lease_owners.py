"""Owners of leases (the owner of the bot is in `people.py`): processes of a machine, or workers of a PostgreSQL.

An owner that is known to be dead owns nothing."""

import os
import secrets
import socket
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

STALLED_SECONDS = 6.0
"""On PostgreSQL: a worker without a heartbeat for so long counts as dead. It gives one every two seconds."""


def _started(pid: int) -> str:
    """When the process began, in the kernel's ticks; empty when it is dead, reaped or not (or the system does not tell)."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in {"Z", "X"} else fields[18]
    except (OSError, ValueError, IndexError):
        return ""


@lru_cache(maxsize=1)
def _host() -> str:
    """The machine since its last boot, and the namespace in which process ids mean something."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        boot = ""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116  # the namespace, not the name of a link
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}/{boot}/{namespace}"


def this_owner() -> str:
    return _owner(os.getpid())


@lru_cache(maxsize=1)
def _owner(pid: int) -> str:
    # The random part tells processes apart where nothing else does: two containers with the same name and numbers.
    return f"{_host()}:{pid}:{_started(pid)}:{secrets.token_hex(4)}"


def of_worker(worker: int) -> str:
    """Returns the owner that is this worker of a PostgreSQL."""
    return f"{this_owner()}#{worker}"


def is_dead(owner: str, *, alone: bool = False) -> bool:
    """True only when this machine can know it for certain. `alone`: this process holds the home, so whoever of another PID namespace of this
    machine has held it is gone.
    """
    host, _, process = owner.partition(":")
    pid, started, *_ = *process.partition("#")[0].split(":"), "", ""
    name, boot, namespace = (*host.split("/"), "", "")[:3]
    our_name, our_boot, our_namespace = _host().split("/")
    if name != our_name or not pid.isdigit():
        return False
    if boot != our_boot:
        return True  # before the last boot of this machine
    if namespace and namespace != our_namespace:
        return alone  # its numbers say nothing here
    if not started:
        return not Path("/proc").is_dir() and not _alive(int(pid))
    return _started(int(pid)) != started


_BEATS = """
SELECT last_heartbeat > clock_timestamp() - make_interval(secs => %(seconds)s) FROM procrastinate_workers WHERE id = %(id)s
"""


def is_gone(conn: "Connection", owner: str) -> bool:
    """Returns whether this owner is dead: on PostgreSQL by its heartbeat, wherever it runs; else, and for an owner that has none, as `is_dead`."""
    worker = owner.rpartition("#")[2]
    if conn.dialect.name == "sqlite" or "#" not in owner:
        return is_dead(owner, alone=conn.dialect.name == "sqlite" and _holds_home)
    return not conn.exec_driver_sql(_BEATS, {"id": int(worker), "seconds": STALLED_SECONDS}).scalar()


_LAST_BEAT = "SELECT (extract(epoch FROM last_heartbeat) * 1000)::bigint FROM procrastinate_workers WHERE id = %(id)s"


def last_beat(conn: "Connection", owner: str) -> int | None:
    """Returns when this worker of a PostgreSQL last gave a sign of life; None where that is not known."""
    worker = owner.rpartition("#")[2]
    return conn.exec_driver_sql(_LAST_BEAT, {"id": int(worker)}).scalar() if "#" in owner else None


_holds_home = False


def hold_home() -> None:
    """Notes that this process is the only gateway on its home, as long as it lives."""
    global _holds_home  # noqa: PLW0603  # a fact about the process, as its id is
    _holds_home = True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
