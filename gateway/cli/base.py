"""What every command is given, the home and the environment; commands are imported when they are called, and each takes `--home`."""

import difflib
import getpass
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from gateway.cli.output import HOME, errors_as_messages
from gateway.home import resolve_home, service_home

_SSH_FIELDS = 4
"""Of SSH_CONNECTION: address and port of the person's computer, then of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    home: Path
    environ: Mapping[str, str]


pass_cli = click.make_pass_decorator(Cli)


def operator() -> str:
    """Returns how the audit names whoever calls this command."""
    return f"cli:{user_name()}"


def user_name() -> str:
    """Returns the name of whoever sits at this terminal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in containers
        return "terminal"


def ssh_tunnel(environ: Mapping[str, str], url: str) -> str:
    """Returns the command by which this address is reached from the computer on which the person sits; "" where none is needed."""
    connection, at = environ.get("SSH_CONNECTION", "").split(), urlsplit(url)
    if len(connection) < _SSH_FIELDS or at.hostname not in {"127.0.0.1", "localhost", "::1"}:
        return ""
    host = f"[{connection[2]}]" if ":" in connection[2] else connection[2]
    user = environ.get("USER") or environ.get("LOGNAME") or "YOU"
    return f"ssh -L {at.port}:127.0.0.1:{at.port} {user}@{host}"


@dataclass(frozen=True, slots=True)
class Later:
    """A command whose module is imported when it is called; there it has the name of the table. `help` is its one line, so that the overview
    imports nothing."""

    module: str
    help: str


class LazyGroup(click.Group):
    """Shows its commands in the order of the table, and only those whose module exists."""

    def __init__(self, *args: Any, later: Mapping[str, Later], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._later = later

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's own signature
        return [name for name, later in self._later.items() if find_spec(later.module) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(importlib.import_module(self._later[cmd_name].module), cmd_name)
        take_home_everywhere(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and (
            near := difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
        ):
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of the table: click would import every command to look whether it is hidden."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self._later[name].help) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._later[name].help) for name in self.list_commands(ctx)])


def take_home_everywhere(command: click.Command) -> None:
    """Gives the command, and all below it, the option `--home`."""
    if all(parameter.name != "home" for parameter in command.params):
        command.params.append(_HOME)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            take_home_everywhere(below)


def _take_home(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    """Stores the home: the last `--home` counts; where none is named, the environment decides, when a command is reached that runs."""
    known = ctx.find_object(Cli) is not None
    # A group passes the decision on, or `hermes sessions --home X list` would fail on a bad HERMES_HOME that nobody uses.
    if value is not None or not (known or isinstance(ctx.command, click.Group)):
        with errors_as_messages():
            ctx.obj = Cli(home=resolve_home(value, os.environ), environ=os.environ)
            ctx.meta[HOME] = ctx.obj.home
            _name_the_other_home(value, ctx.obj.home)


def _name_the_other_home(option: str | None, home: Path) -> None:
    """Tells root, who looks after the service, that its home is another one than root's own."""
    if option or os.environ.get("HERMES_HOME") or os.geteuid() != 0:
        return
    of_service = service_home()
    if of_service is not None and of_service.resolve() != home.resolve():
        click.echo(f"This is {home}. The service has a home of its own: add --home {of_service}", err=True)


_HOME = click.Option(
    ["--home"],
    metavar="DIR",
    expose_value=False,
    callback=_take_home,
    help="Folder in which everything is kept, instead of HERMES_HOME or ~/.hermes.",
)
