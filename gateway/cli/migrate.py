"""`hermes migrate`: moves the home to another database."""

import sys
from contextlib import suppress

import click

from gateway.cli.base import Cli, operator, pass_cli
from gateway.cli.database_access import shares_files
from gateway.cli.output import Failed, Wrong, tell
from gateway.config.sources import DATABASE_VARIABLE, Sources, database_url, database_url_in, finder, without_references
from gateway.home import check_home
from gateway.texts import counted

SQLITE = "sqlite"


@click.command()
@click.option("--to", "target", required=True, metavar="postgresql://…|sqlite", help="Where everything is to be kept.")
@pass_cli
def migrate(cli: Cli, target: str) -> None:
    """Move everything to another database: PostgreSQL, or the file.

    Both are compared, then database.url names the new one. The gateway must be stopped. The old database is kept. Killed at any moment, the old one stays in
    force, and the same command begins anew. An address with a password is better set as a variable in .env: --to '${DATABASE_URL}'.
    """
    from gateway.cli.process import stopped
    from gateway.config.editing import edit
    from sessions import moving
    from sessions.db import open_database

    check_home(cli.home)
    sources = Sources.of(cli.home, cli.environ)
    old_url, new_url = database_url_in(sources), _address(sources, target)
    if not old_url and not (cli.home / "state.db").exists():
        raise Failed(f"There is nothing to move in {cli.home} yet: set database.url, and start.")
    if old_url == new_url:
        raise Wrong("The sessions are in this very database already: nothing to move.")
    variable = next((one for one in sources.settings() if one.name == DATABASE_VARIABLE), None)
    if variable is not None:
        raise Wrong(
            f"{DATABASE_VARIABLE} ({variable.place}) says where the sessions are, before config.yaml does. Take it away, write its value as database.url"
            " into config.yaml, and try again."
        )
    edited = edit(sources, {"database.url": "" if target == SQLITE else target})
    if database_url_in(edited.sources) != new_url:
        raise Wrong(
            "config.yaml takes database.url from a variable that is set in the environment. Take it away there, and try again."
        )
    with stopped(cli.home), click.progressbar(length=1, file=sys.stderr, width=24, label="Opening") as bar:

        def progress(label: str, done: int, of: int) -> None:
            if bar.label != label:
                bar.label, bar.length, bar.pos = label, of, 0
            bar.update(done - bar.pos)

        try:
            moved = moving.move(
                cli.home,
                old_url,
                new_url,
                who=operator(),
                switch=lambda: edited.write(cli.home),
                progress=progress,
                shares_files=shares_files(sources),
            )
        except BaseException:
            with suppress(Exception):  # what was raised says more
                open_database(cli.home, database_url(cli.home, cli.environ)).close()
            raise
    rows, sessions, messages = sum(moved.counts.values()), moved.counts["sessions"], moved.counts["messages"]
    click.echo(
        f"Moved {rows} rows of {len(moved.counts)} tables ({counted(sessions, 'session')}, {counted(messages, 'message')}) to"
        f" {moving.place(new_url, cli.home)}. Counts and digests of every table are the same on both sides."
    )
    if moved.files:
        where = "in the database" if new_url else "in the home alone"
        click.echo(f"{counted(moved.files, 'file')} of the agent, received ones and skills are {where} now.")
    tell("database.url in config.yaml names it; `hermes gateway run` goes on there.")
    if moved.kept is not None:
        click.echo(f"The old file is kept as {moved.kept} for seven days, or until something is deleted.")
    else:
        click.echo(
            f"{moving.place(old_url, cli.home)} is as it was and marked as moved: no gateway starts on it. Drop it when you need it no more, since it"
            " keeps what is deleted from now on."
        )


def _address(sources: Sources, target: str) -> str:
    """Returns the new `database.url`; "" for the file in the home."""
    if target == SQLITE:
        return ""
    url = without_references(target, finder(sources))
    if not url.startswith(("postgresql://", "postgresql+psycopg://", "postgres://")):
        raise Wrong("--to takes sqlite, or an address such as postgresql://user:password@host/name.")
    return url
