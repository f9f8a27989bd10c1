"""Checks of the machine: the port, the service, the running daemon, what is installed."""

import shutil
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gateway.cli.doctor.finding import CheckTarget, Diagnosis, note, problem, warning
from gateway.cli.doctor.home_checks import package_roots
from sessions import workers
from sessions.workers import WorkerState

LEAST_SQLITE = (3, 35, 0)


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
