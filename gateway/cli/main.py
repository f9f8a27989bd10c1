"""The commands `hermes` and `hermes gateway`, the lists of their commands, `hermes version` and `hermes completion`. Nothing that a command needs is imported before it is called."""

import gc
import io
import os
import shlex
import sys
from typing import Any

import click

from gateway.cli.base import Later, LazyGroup, take_home_everywhere
from gateway.cli.output import Failed, errors_as_messages

COMMANDS = {
    "chat": Later("gateway.cli.terminal.chat", "Talk in the terminal."),
    "sessions": Later("gateway.cli.sessions", "List, search, export and delete stored sessions."),
    "jobs": Later("gateway.cli.jobs", "List, add, pause, run and delete scheduled jobs."),
    "gateway": Later("gateway.cli.main", "Run the gateway that answers in your chats, and ask how it is."),
    "pair": Later("gateway.cli.pair", "List, approve and remove people who may talk to the agent."),
    "memory": Later("gateway.cli.memory", "List what was noted down, and remove it."),
    "outbox": Later("gateway.cli.outbox", "Look at messages that could not be delivered, and send them again."),
    "dashboard": Later("gateway.cli.dashboard", "Print a link that signs a browser in to the page of the gateway."),
    "audit": Later(
        "gateway.cli.audit", "List who decided about approvals, signed in, let people in, changed and deleted what."
    ),
    "config": Later("gateway.cli.config", "Look at the configuration, check it, and change it."),
    "setup": Later(
        "gateway.cli.setup.flow",
        "Ask for the model and the chats, test each answer, and write a commented configuration.",
    ),
    "doctor": Later("gateway.cli.doctor.command", "Look for everything that is wrong, and say what to do."),
    "backup": Later("gateway.cli.backup", "Write everything of this home into FILE"),
    "restore": Later("gateway.cli.backup", "Make the home anew from FILE."),
    "migrate": Later("gateway.cli.migrate", "Move everything to another database: PostgreSQL, or the file."),
    "completion": Later("gateway.cli.main", "Print the script that completes commands in a shell."),
    "version": Later("gateway.cli.main", "Print the versions, the commit and the extras."),
}

DAEMON_COMMANDS = {
    "run": Later("gateway.cli.gateway", "The gateway, in the foreground."),
    "status": Later("gateway.cli.status", "How the running gateway is."),
    "install": Later("gateway.cli.service", "Make it a service of systemd, with a backup every night."),
    "uninstall": Later("gateway.cli.service", "Take the service away. The home stays."),
    "start": Later("gateway.cli.service", "Start the service."),
    "stop": Later("gateway.cli.service", "Stop the service."),
    "restart": Later("gateway.cli.service", "Check the configuration, then start the service anew."),
}

_ELSEWHERE = {
    **dict.fromkeys(("run", "start", "stop", "restart", "status", "install", "uninstall"), "`hermes gateway {0}`"),
    **dict.fromkeys(("list", "search", "show", "export", "import", "delete", "prune"), "`hermes sessions {0}`"),
    **dict.fromkeys(("resume", "continue"), "`hermes --{0}`"),
    **dict.fromkeys(("init", "check"), "`hermes config {0}`"),
    "logs": "`journalctl -u hermes-gateway` for the service; with `log: {{file: true}}` they are also below the home",
    "model": "`hermes setup`",
    "ask": '`hermes -q "…"`',
}
"""What people try first, and the command that does it."""


class Root(LazyGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if self.get_command(ctx, word) is None:
            if " " in word.strip() or word.endswith("?"):
                raise click.UsageError(f"This is no command. To ask it: hermes -q {shlex.quote(word)}", ctx)
            if word in _ELSEWHERE:
                raise click.UsageError(f"No such command {word!r}. It is {_ELSEWHERE[word].format(word)}.", ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with errors_as_messages():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with errors_as_messages():
            return super().invoke(ctx)


def _print_versions(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(_versions())
        ctx.exit()


def _versions() -> str:
    import platform
    import sqlite3
    from importlib.metadata import version as installed

    from sessions.packages import commit, installed_extras

    return "\n".join(
        (
            f"hermes {installed('hermes-gateway')}",
            f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
            f"Commit {commit() or 'not known'}",
            f"Extras {', '.join(installed_extras()) or 'none'}",
        )
    )


@click.group(cls=Root, later=COMMANDS, invoke_without_command=True)
@click.option("-q", "--query", metavar="TEXT", help="Ask one question, print the answer, and leave.")
@click.option("-c", "--continue", "newest", is_flag=True, help="Continue the newest session of the terminal.")
@click.option("-r", "--resume", metavar="ID", help="Continue this session; the beginning of its id is enough.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_versions, help="Print it.")
@click.pass_context
def hermes(ctx: click.Context, query: str | None, newest: bool, resume: str | None) -> None:
    """One AI agent in all your chats. Without a command: chat in the terminal."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    options = ["--continue"] if newest else []
    options += ["--resume", resume] if resume is not None else []
    options += ["-q", query] if query is not None else []
    if ctx.invoked_subcommand is None:
        root = ctx.command
        chat = root.get_command(ctx, "chat") if isinstance(root, click.Group) else None
        if chat is None:
            raise Failed("This installation has no chat in the terminal. `hermes --help` shows what it has.")
        with chat.make_context("chat", options, parent=ctx) as below:
            chat.invoke(below)
    elif options:
        raise click.UsageError(f"{' '.join(options)} belongs to the chat: hermes chat {' '.join(options)}.", ctx)


take_home_everywhere(hermes)


@click.group(cls=LazyGroup, later=DAEMON_COMMANDS, invoke_without_command=True)
@click.pass_context
def gateway(ctx: click.Context) -> None:
    """Run the gateway that answers in your chats, and ask how it is."""
    if ctx.invoked_subcommand is None:
        run: Any = gateway.get_command(ctx, "run")
        with run.make_context("run", [], parent=ctx) as below:  # so that its options, the home among them, are settled
            run.invoke(below)


@click.command()
@click.option("--licences", is_flag=True, help="List the licences of everything that is installed with it.")
def version(licences: bool) -> None:
    """Print the versions, the commit and the extras."""
    from sessions import packages

    if not licences:
        click.echo(_versions())
        return
    for name, installed, licence in packages.licences():
        click.echo(f"{name:<32} {installed:<16} {licence}")


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    \b
    bash   eval "$(hermes completion bash)"             in ~/.bashrc
    zsh    eval "$(hermes completion zsh)"              in ~/.zshrc
    fish   hermes completion fish | source              in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is not None:
        click.echo(found(ctx.find_root().command, {}, "hermes", "_HERMES_COMPLETE").source())


def main() -> None:
    # Modules make hundreds of thousands of objects, and no garbage: looking for it takes a tenth of a start. `heap.settle` takes it back.
    gc.set_threshold(10_000)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter shows "?" and the rest
    try:
        hermes.main(prog_name="hermes")
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            # What could not be written was told already. The interpreter flushes once more when it ends, and would print an error of its own.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
