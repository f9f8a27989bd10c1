"""`hermes gateway install|uninstall|start|stop|restart`: the daemon as a service of systemd, its units made from those that are shipped."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gateway.cli.base import Cli, pass_cli
from gateway.cli.doctor.checks import package_roots
from gateway.cli.output import Failed, Wrong, tell
from gateway.home import is_used

SHIPPED_PROGRAM = "/opt/hermes-gateway/.venv/bin/hermes"
SHIPPED_HOME = "/var/lib/hermes-gateway"
SHIPPED_NAME = "hermes-gateway"
OURS = "# Written by hermes-gateway."
_HOMES = (Path("/home"), Path("/root"))
_OWN_TO_A_SERVICE = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108  # nothing is put there
_PACKAGED = Path(__file__).parents[1] / "systemd"
_CHECKED_OUT = Path(__file__).parents[2] / "systemd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of one instance. `user`: of the user's own systemd, else of the system's. `instance`: empty for the usual one.
    `runs_from`: the folders and programs that the service has to read."""

    user: bool
    instance: str
    program: str
    runs_from: tuple[Path, ...]
    home: Path

    @property
    def name(self) -> str:
        return f"{SHIPPED_NAME}-{self.instance}" if self.instance else SHIPPED_NAME

    @property
    def home_of_service(self) -> Path:
        return self.home if self.user else Path("/var/lib") / self.name

    @property
    def folder(self) -> Path:
        return Path.home() / ".config/systemd/user" if self.user else Path("/etc/systemd/system")

    @property
    def files(self) -> dict[Path, str]:
        """Returns where each unit belongs, and what it says."""
        return {self.folder / file.replace(SHIPPED_NAME, self.name): self._text(file) for file in _FILES}

    def _text(self, file: str) -> str:
        source = _PACKAGED if _PACKAGED.is_dir() else _CHECKED_OUT
        path = source / "user" / file if self.user and (source / "user" / file).exists() else source / file
        text = path.read_text("utf-8").replace(SHIPPED_PROGRAM, self.program)
        if any(path.is_relative_to(home) for path in self.runs_from for home in _HOMES):
            # The usual protection hides /home from the service, and with it a program that is installed there.
            text = text.replace("ProtectHome=yes", "ProtectHome=read-only")
        if self.user:
            text = text.replace(f"Environment=HERMES_HOME={SHIPPED_HOME}", f'Environment="HERMES_HOME={self.home}"')
        ours, rest = text.split("\n", 1)
        # Only in these places: the name also stands in the path of the program, which stays.
        for words in ("User=", "StateDirectory=", "/var/lib/", " "):
            rest = rest.replace(f"{words}{SHIPPED_NAME}/", f"{words}{self.name}/")
            rest = rest.replace(f"{words}{SHIPPED_NAME}\n", f"{words}{self.name}\n")
            rest = rest.replace(f"{words}{SHIPPED_NAME} ", f"{words}{self.name} ")
        return f"{ours}\n{rest}"

    def out_of_reach(self) -> str:
        """Why a user without any rights of its own, as a service of the system is, could not run the program; "" if it can."""
        for path in self.runs_from:
            if any(path.is_relative_to(folder) for folder in _OWN_TO_A_SERVICE):
                return f"{path} is in a folder for temporary files, of which a service has its own"
            for each in (path, *path.parents):
                mode = each.stat().st_mode
                if not mode & stat.S_IXOTH or not (each != path or mode & stat.S_IROTH):
                    return f"{each} is closed to other users, and {path} is needed"
        return ""


_FILES = ("hermes-gateway.service", "hermes-gateway-backup.service", "hermes-gateway-backup.timer")


def write(units: Units) -> list[Path]:
    """Writes the units. Raises Wrong, and writes nothing, when a file of somebody else is in the way."""
    for path in units.files:
        require_ours(path)
    for path, text in units.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        path.chmod(0o644)
    return list(units.files)


def require_ours(path: Path) -> None:
    """Raises Wrong for a file that this program has not written."""
    if path.exists() and not path.read_text("utf-8", "replace").startswith(OURS):
        raise Wrong(
            f"{path} is there and was not written by hermes-gateway. Choose another name with --name, or move the file away."
        )


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_REACHABLE = ("show", "--property=Version")
_WITHOUT_SYSTEMD = "Nothing was written. `hermes gateway run` runs in the foreground; tmux, a container or any supervisor can keep that running."


def _of_a_service(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which service is meant."""
    for option in (
        click.option("--name", "instance", default="", help="One of several instances, each with a home of its own."),
        click.option(
            "--user/--system",
            "user",
            default=os.geteuid() != 0,
            help="Your own systemd, or that of the machine (root).",
        ),
    ):
        function = option(function)
    return pass_cli(function)


def _units(cli: Cli, instance: str, *, user: bool) -> Units:
    if instance and _NAME.fullmatch(instance) is None:
        raise Wrong("A name has small letters, digits and hyphens, such as --name work.")
    if not user and os.geteuid() != 0:
        raise Failed("The system's services belong to root: use sudo, or --user for a service of your own.")
    program = Path(sys.executable).with_name("hermes")
    runs_from = (program, Path(sys.executable).resolve(), *sorted(package_roots()))
    return Units(user=user, instance=instance, program=str(program), runs_from=runs_from, home=cli.home)


def _systemctl(units: Units, *arguments: str) -> None:
    program = shutil.which("systemctl")
    if program is None:
        raise Failed(f"This machine has no systemd. {_WITHOUT_SYSTEMD}")
    command = [program, *(["--user"] if units.user else []), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode and arguments == _REACHABLE:
        raise Failed(f"No systemd answers here{' for this user' if units.user else ''}. {_WITHOUT_SYSTEMD}")
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip().splitlines()
        raise Failed(f"{' '.join(command[1:])}: {said[0] if said else f'ended with {ended.returncode}'}")


@click.command()
@_of_a_service
@click.option("--print", "only_print", is_flag=True, help="Print the unit files and change nothing.")
@click.option(
    "--move-home/--new-home", default=None, help="Whether the service goes on with your home. Asked where it is open."
)
def install(cli: Cli, instance: str, user: bool, only_print: bool, move_home: bool | None) -> None:
    """Run the gateway from now on, and after every start of the machine; save a backup every night."""
    units = _units(cli, instance, user=user or (only_print and os.geteuid() != 0))
    if only_print:
        for path, text in units.files.items():
            click.echo(f"# {path}\n{text}")
        return
    if not user and (why := units.out_of_reach()):
        raise Failed(
            f"The service runs as a user of its own: {why}. Install the program where everybody may read it, such as"
            " /opt/hermes-gateway, with a Python that everybody may run, or make it a service of your own: --user."
        )
    _systemctl(units, *_REACHABLE)
    for path in units.files:
        require_ours(path)
    moves = not user and _is_to_move(cli.home, units.home_of_service, move_home)
    _check(cli, cli.home if moves else units.home_of_service)
    if moves:
        kept = _moved(cli.home, units.home_of_service)
        click.echo(f"{cli.home} is now {units.home_of_service}. A copy stays in {kept}; remove it when all is well.")
    written = write(units)
    _systemctl(units, "daemon-reload")
    _systemctl(units, "enable", "--now", f"{units.name}.service", f"{units.name}-backup.timer")
    click.echo("\n".join(f"Written: {path}" for path in written))
    if user:
        click.echo(
            f"{units.name} runs with {cli.home}.\nSo that it also runs while you are logged out: loginctl enable-linger"
        )
    else:
        click.echo(f"{units.name} runs; its home is {units.home_of_service}.")


@click.command()
@_of_a_service
def uninstall(cli: Cli, instance: str, user: bool) -> None:
    """Stop the gateway and take the service away. The home stays."""
    units = _units(cli, instance, user=user)
    for path in units.files:
        require_ours(path)
    present = [path for path in units.files if path.exists()]
    if not present:
        raise Failed(f"There is no service {units.name} of ours in {units.folder}.")
    _systemctl(
        units,
        "disable",
        "--now",
        *(path.name for path in present if path.suffix != ".service" or "backup" not in path.name),
    )
    for path in present:
        path.unlink()
    _systemctl(units, "daemon-reload")
    click.echo("\n".join(f"Removed: {path}" for path in present))
    click.echo("The home with all sessions stays where it is.")


@click.command()
@_of_a_service
def start(cli: Cli, instance: str, user: bool) -> None:
    """Start the service."""
    _act(cli, instance, "start", user=user)


@click.command()
@_of_a_service
def stop(cli: Cli, instance: str, user: bool) -> None:
    """Stop the service. Runs finish their step and go on at the next start."""
    _act(cli, instance, "stop", user=user)


@click.command()
@_of_a_service
def restart(cli: Cli, instance: str, user: bool) -> None:
    """Check the configuration; when it is good, start the service anew."""
    _check(cli, _units(cli, instance, user=user).home_of_service)
    _act(cli, instance, "restart", user=user)


def _act(cli: Cli, instance: str, verb: str, *, user: bool) -> None:
    units = _units(cli, instance, user=user)
    # Asked before systemctl: its own message for an unknown unit names no command of ours.
    if not next(iter(units.files)).exists():
        raise Failed(f"There is no service {units.name} yet: `hermes gateway install` makes it.")
    _systemctl(units, verb, f"{units.name}.service")
    tell(f"{units.name}: {verb} done. `hermes gateway status` says how it is.")


def _check(cli: Cli, home: Path) -> None:
    """Raises BadConfig before a restart: a daemon that would not start again is not stopped."""
    from gateway.cli.service_view import service_sources
    from gateway.config.reading import read

    read(service_sources(home, cli.environ))


def _is_to_move(mine: Path, of_service: Path, wanted: bool | None) -> bool:
    """Returns whether the service goes on with the home of the person who installs it. Asks where both answers make sense."""
    if mine.resolve() == of_service.resolve() or not is_used(mine):
        return False
    if is_used(of_service):
        if wanted:
            raise Failed(f"{of_service} is in use already, so {mine} was not moved. Nothing was changed.")
        click.echo(f"The service goes on with {of_service}; {mine} stays as it is, with --home {mine}.", err=True)
        return False
    if wanted is None and not sys.stdin.isatty():
        raise Wrong(f"{mine} holds a configuration or sessions. Say --move-home or --new-home.")
    return click.confirm(f"Shall the service go on with {mine}?", default=True) if wanted is None else wanted


def _moved(mine: Path, of_service: Path) -> Path:
    """Makes the home of the service of `mine`, whole or not at all. Returns where a copy of `mine` is kept. Raises AlreadyRunning."""
    from gateway.cli.process import single_instance
    from sessions.db import open_database
    from sessions.restored import rename_home

    kept = mine.with_name(f"{mine.name}.before-service")
    if kept.exists():
        raise Failed(f"{kept} is there already. Move it away first.")
    of_service.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=of_service.parent, prefix=".hermes-move-") as folder:
        copy = Path(folder) / "home"
        with single_instance(mine):
            click.echo(f"Copying {mine} …", err=True)
            shutil.copytree(
                mine, copy, symlinks=True, ignore=lambda at, _: {"gateway.pid"} if Path(at) == mine else set()
            )
            if (copy / "state.db").exists():
                database = open_database(copy)
                database.write_now(rename_home, mine.resolve(), of_service)
                database.close()
            place = of_service.resolve()  # a service with a user of its own has it elsewhere, behind a link
            if place.exists():
                place.rmdir()
            copy.rename(place)
        shutil.move(mine, kept)  # a folder of a container's image cannot be renamed, only copied
    return kept
