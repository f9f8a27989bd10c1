"""`hermes version` and `hermes completion`."""

import platform
import sqlite3

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


def versions() -> str:
    from importlib.metadata import version as installed

    return f"hermes {installed('hermes-gateway')}\nPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}"


@click.command()
def version() -> None:
    """Print the versions of hermes, Python and SQLite."""
    click.echo(versions())


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    \b
    bash   eval "$(hermes completion bash)"             in ~/.bashrc
    zsh    eval "$(hermes completion zsh)"              in ~/.zshrc
    fish   hermes completion fish | source              in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    if found is not None:
        click.echo(found(ctx.find_root().command, {}, "hermes", "_HERMES_COMPLETE").source())
