"""What the doctor finds, one line what it is and one line what to do, and its checks of the home and of the machine.

The home: who may read it, the database, the disk, the last backup. The machine: the port, the service, what is installed.
"""

import getpass
import os
import re
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from gateway.config.reading import Loaded
from gateway.home import is_open
from gateway.texts import counted, format_duration
from sessions import gauges, meta, store, workers
from sessions.db import Database
from sessions.db.sqlite import quick_check
from sessions.errors import StateError
from sessions.workers import WorkerState

RUNBOOK = "docs/runbook.md"
_PACKAGED = Path(__file__).parents[2] / "runbook.md"
_CHECKED_OUT = Path(__file__).parents[3] / RUNBOOK


class Severity(IntEnum):
    PROBLEM = 0
    WARNING = 1
    NOTE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`code` is stable: programs and the runbook know it. `fix` mends it and harms nothing; None: a person has to."""

    code: str
    severity: Severity
    what: str
    remedy: str
    fix: Callable[[], None] | None = field(default=None, compare=False)

    @property
    def anchor(self) -> str:
        return f"{RUNBOOK}#{self.code.replace('.', '-').replace('_', '-')}"

    def explanation(self) -> str:
        """Returns the runbook's paragraph about it; empty where there is none."""
        runbook = (_PACKAGED if _PACKAGED.exists() else _CHECKED_OUT).read_text("utf-8")
        # A paragraph about several platforms has the anchor of one.
        wanted = {
            self.anchor.partition("#")[2],
            re.sub("^(discord|slack|whatsapp)-", "telegram-", self.anchor.partition("#")[2]),
        }
        for paragraph in runbook.split("\n\n"):
            if wanted & set(re.findall(r'<a id="([^"]+)">', paragraph)):
                return re.sub(r"</?a[^>]*>|\*\*", "", " ".join(paragraph.split()))
        return ""

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity.name.lower(),
            "what": self.what,
            "remedy": self.remedy,
            "fixable": self.fix is not None,
            "runbook": self.anchor,
        }


def problem(code: str, what: str, remedy: str, fix: Callable[[], None] | None = None) -> Diagnosis:
    return Diagnosis(code=code, severity=Severity.PROBLEM, what=what, remedy=remedy, fix=fix)


def warning(code: str, what: str, remedy: str, fix: Callable[[], None] | None = None) -> Diagnosis:
    return Diagnosis(code=code, severity=Severity.WARNING, what=what, remedy=remedy, fix=fix)


def note(code: str, what: str, remedy: str) -> Diagnosis:
    return Diagnosis(code=code, severity=Severity.NOTE, what=what, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTarget:
    """What every check may look at. `loaded` None: the configuration is not usable. `database` None: there is none, or it cannot be opened."""

    home: Path
    environ: Mapping[str, str]
    loaded: Loaded | None
    database: Database | None
    now: int

    @property
    def is_running(self) -> bool:
        return self.database is not None and self.database.read_now(workers.any_ready, self.now)


DATABASE = "state.db"
PRIVATE = ("config.yaml", ".env", "api_key", DATABASE)
LEAST_FREE_BYTES = 500 * 2**20
OLD_BACKUP_DAYS = 14
LEAST_SQLITE = (3, 35, 0)
LARGE_LOG_BYTES = 1 << 30
LATE_MS = 10 * 60_000
_DAY_MS = 24 * 3_600_000
_FOREVER = 3_600.0


def permissions(target: CheckTarget) -> Iterator[Diagnosis]:
    if not target.home.is_dir():
        yield note("home.missing", f"There is no home at {target.home} yet.", "hermes setup   or   hermes gateway run")
        return
    if is_open(target.home):
        what = f"Others on this machine can look into {target.home}."
        yield problem("home.permissions", what, f"chmod 700 {target.home}", partial(target.home.chmod, 0o700))
        # In a closed folder nobody else reaches a file, whatever its own mode.
        for path in (target.home / name for name in PRIVATE):
            if path.is_file() and path.stat().st_mode & 0o007:
                yield problem(
                    "home.permissions", f"Everybody may read {path}.", f"chmod 600 {path}", partial(path.chmod, 0o600)
                )
    for path in not_ours(target.home):
        what = f"{path} belongs to {_owner(path)}, and this user may not use it."
        yield problem("home.owner", what, f"sudo chown -R {getpass.getuser()} {target.home}")
    if not os.access(target.home, os.W_OK):
        yield problem(
            "home.not_writable", f"This user may not write to {target.home}.", f"sudo chown -R $USER {target.home}"
        )


def not_ours(home: Path) -> Iterator[Path]:
    """Yields the files of the home that this user may not read and write."""
    for path in (home / name for name in PRIVATE):
        if path.is_file() and not os.access(path, os.R_OK | os.W_OK):
            yield path


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:  # a user of another machine, or of a container
        return f"the user {path.stat().st_uid}"


def database(target: CheckTarget) -> Iterator[Diagnosis]:
    path = target.home / DATABASE
    if target.database is None or target.database.dialect != "sqlite" or not path.exists():
        return
    try:
        # At a start the check is bounded in time; whoever asks the doctor waits for the whole.
        quick_check(path, seconds=_FOREVER)
    except StateError as error:
        yield problem("database.damaged", str(error).splitlines()[0], "hermes restore FILE   with the last good backup")
        return
    log = path.with_name(f"{DATABASE}-wal")
    if log.exists() and log.stat().st_size > LARGE_LOG_BYTES:
        what = f"The log beside the database has {log.stat().st_size / 2**30:.1f} GB: something keeps it open."
        yield warning(
            "database.log_size", what, "Restart the gateway; it moves the log into the database when it ends."
        )


def disk(target: CheckTarget) -> Iterator[Diagnosis]:
    place = target.home if target.home.exists() else target.home.parent
    if place.exists() and (free := shutil.disk_usage(place).free) < LEAST_FREE_BYTES:
        what = f"Only {free / 2**20:.0f} MB are free where {target.home} is."
        yield problem("disk.low", what, "Make room, or: hermes sessions prune --older-than 90")


def backup(target: CheckTarget) -> Iterator[Diagnosis]:
    if target.database is None or target.database.dialect != "sqlite":
        return
    if target.database.read_now(store.stats).messages == 0:
        return
    remedy = "hermes backup ~/hermes.tar.gz   or   hermes gateway install, which saves one every night"
    last = target.database.read_now(meta.get, meta.LAST_BACKUP)
    if last is None:
        yield warning("backup.missing", "There is no backup of the sessions yet.", remedy)
    elif (age := target.now - int(last)) > OLD_BACKUP_DAYS * _DAY_MS:
        yield warning("backup.old", f"The last backup is {format_duration(age / 1000)} old.", remedy)


def undelivered(target: CheckTarget) -> Iterator[Diagnosis]:
    """Messages that could not be sent, those that should have been by now, and a clock that is behind what it was."""
    if target.database is None:
        return
    numbers = target.database.read_now(gauges.read_gauges)
    if dead := sum(numbers.undelivered.values()):
        what = f"{dead} message{'' if dead == 1 else 's'} could not be delivered."
        yield warning(
            "outbox.undelivered", what, "hermes outbox list   shows why, and   hermes outbox send N   tries again"
        )
    if numbers.oldest_due is not None and (late := target.now - numbers.oldest_due) > LATE_MS:
        count = numbers.to_send
        what = f"{counted(count, 'message')} still to be sent, the oldest for {format_duration(late / 1000)}."
        yield warning("outbox.waiting", what, "hermes gateway status   shows what is wrong with its platform")
    if numbers.newest is not None and (ahead := numbers.newest - target.now) > LATE_MS:
        what = f"The clock was set back: the newest message is from {format_duration(ahead / 1000)} in the future."
        yield warning("clock.set_back", what, "timedatectl   shows whether the time is right now")


def foreign(target: CheckTarget) -> Iterator[Diagnosis]:
    """Finds files of another program of a similar name in the same folder."""
    if (target.home / "hermes-agent").is_dir() or (target.home / "auth.json").exists():
        what = f"{target.home} also holds files of another program, Hermes Agent."
        yield warning("home.shared", what, "Give this one a home of its own: HERMES_HOME=~/.hermes-gateway")


def package_roots() -> set[Path]:
    import adapters
    import gateway
    import sessions

    return {Path(package.__file__ or "").parents[1] for package in (gateway, adapters, sessions)}


def daemon(target: CheckTarget) -> Iterator[Diagnosis]:
    rows = target.database.read_now(workers.everyone) if target.database is not None else []
    if not rows:
        yield note(
            "gateway.not_running", "No gateway runs on this home.", "hermes gateway run   or   hermes gateway install"
        )
    for row in rows:
        if row.state_at(target.now) is WorkerState.LOST:
            what = f"The gateway on {row.host} (process {row.pid}) was killed, or does not answer any more."
            yield problem("gateway.lost", what, "hermes gateway run; what was under way goes on")
        elif refused := row.report.get("config", {}).get("refused"):
            what = f"The running gateway refused the changed configuration: {'; '.join(refused['problems'][:3])}"
            yield problem("config.refused", what, "hermes config check   shows what to write")
        for name, server in row.report.get("mcp_servers", {}).items():
            if server["state"] == "down" and row.state_at(target.now) is not WorkerState.LOST:
                what = f"The MCP server {name} is down: {server['why']}."
                yield warning("mcp.down", what, f"Look at mcp_servers.{name}; it is tried again by itself.")


def port(target: CheckTarget) -> Iterator[Diagnosis]:
    if target.loaded is None or target.is_running:
        return
    section = target.loaded.config.api
    try:
        with socket.socket(socket.AF_INET6 if ":" in section.host else socket.AF_INET) as probe:
            # As the server does: a port whose last connections are closing counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((section.host, section.port))
    except OSError as error:
        what = f"The API cannot listen on {section.host}:{section.port}: {(error.strerror or str(error)).lower()}."
        yield problem("api.port", what, "Stop the other program, or: hermes config set api.port 8643")


def service(_: CheckTarget) -> Iterator[Diagnosis]:
    if shutil.which("systemctl") is None or not Path("/run/systemd/system").is_dir():
        return
    folders = (Path("/etc/systemd/system"), Path.home() / ".config/systemd/user")
    if not any(folder.glob("hermes-gateway*.service") for folder in folders if folder.is_dir()):
        yield note("service.missing", "The gateway does not start with the machine.", "hermes gateway install")


def installation(_: CheckTarget) -> Iterator[Diagnosis]:
    roots = package_roots()
    if len(roots) > 1:
        what = f"The packages gateway, adapters and sessions come from different places: {', '.join(map(str, sorted(roots)))}."
        yield problem(
            "packages.mixed",
            what,
            "Install hermes-gateway into a venv of its own; another program has a package of the same name.",
        )
    if sqlite3.sqlite_version_info < LEAST_SQLITE:
        what = f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed."
        yield problem("sqlite.version", what, "Use a Python that brings a newer SQLite.")


def time_zone(target: CheckTarget) -> Iterator[Diagnosis]:
    written = target.loaded is not None and "timezone" in target.loaded.config.session_reset.model_fields_set
    if not written and not Path("/etc/localtime").exists():
        what = "This machine has no time zone, so days begin in UTC."
        yield warning("clock.time_zone", what, "hermes config set session_reset.timezone Europe/London")
