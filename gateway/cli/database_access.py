"""Opens the database of the home for a command."""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

import click
from click.shell_completion import CompletionItem
from sqlalchemy import Connection

from gateway.cli.base import Cli
from gateway.config.sources import Sources, database_url
from gateway.home import BadHome, check_home, prepare_home, resolve_home
from sessions import store
from sessions.db import Database, open_database, open_to_read
from sessions.errors import NotFound, StateError

DATABASE = "state.db"


@contextmanager
def opened(cli: Cli) -> Generator[Database]:
    """Opens the database; it is made where there is none. Raises BadHome or Unusable."""
    prepare_home(cli.home)
    database = open_database(cli.home, database_url(cli.home, cli.environ), is_patient=True)
    try:
        yield database
    finally:
        database.close()


def shares_files(sources: Sources) -> bool:
    """Returns whether the database of a team has the files of the homes, too. Raises BadConfig."""
    from gateway.config.reading import read

    return read(sources).config.files.store == "database"


@contextmanager
def existing_database(cli: Cli, *, to_change: bool = False) -> Generator[Database | None]:
    """Opens the database if there is one; None otherwise, because looking creates nothing. Only to look, it need not be writable."""
    check_home(cli.home)
    on_server = bool(database_url(cli.home, cli.environ))
    if not on_server and not (cli.home / DATABASE).exists():
        yield None
        return
    # An admin may read the home of the service without the right to write there; SQLite's WAL mode needs that right.
    unwritable = not os.access(cli.home, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    with _opened_to_read(cli) if unwritable and not on_server and not to_change else opened(cli) as database:
        yield database


@contextmanager
def _opened_to_read(cli: Cli) -> Generator[Database]:
    database = open_to_read(cli.home)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def database_of_session(cli: Cli, prefix: str, *, to_change: bool = False) -> Generator[Database]:
    """Opens the database in which a session is looked up. Raises NotFound where there is none."""
    with existing_database(cli, to_change=to_change) as database:
        if database is None:
            raise nothing_stored(cli, prefix)
        yield database


def nothing_stored(cli: Cli, prefix: str) -> NotFound:
    return NotFound(f"No session begins with {prefix!r}: nothing is stored in {cli.home} yet.")


@contextmanager
def mirrored(cli: Cli, database: Database) -> Generator[None]:
    """Writes what is changed within to transcripts and index."""
    from sessions.transcripts import Transcripts

    transcripts = Transcripts(cli.home, database)
    try:
        yield
    finally:
        # Not `close`, which declares them complete: a running daemon may have lines of its own to write yet.
        transcripts.flush()


def size_in_bytes(cli: Cli, database: Database | None) -> int | None:
    """Returns the size of the database's files; None where a server keeps it."""
    if database is not None and database.dialect != "sqlite":
        return None
    files = (cli.home / name for name in (DATABASE, f"{DATABASE}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def completing(read: Callable[[Connection], Iterable[tuple[str, str]]]) -> Callable[..., list[CompletionItem]]:
    """Returns what completes an argument in a shell, by values of the home's database and a few words about each. Silent when that cannot
    be read."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        root = ctx.find_object(Cli)
        cli = root or Cli(home=resolve_home(None, os.environ), environ=os.environ)
        try:
            with existing_database(cli) as database:
                found = [] if database is None else database.read_now(lambda conn: list(read(conn)))
        except (StateError, BadHome, OSError):
            return []
        return [CompletionItem(value, help=words) for value, words in found if value.startswith(incomplete)]

    return complete


def session_ids(conn: Connection) -> Iterable[tuple[str, str]]:

    return [(session.id, store.label(conn, session)) for session in store.recent(conn, limit=100)]


def session_keys(conn: Connection) -> Iterable[tuple[str, str]]:
    found = {session.session_key: session.id for session in store.recent(conn, limit=200)}
    return list(found.items())


def job_ids(conn: Connection) -> Iterable[tuple[str, str]]:
    from sessions import jobs

    return [(job.id, job.name) for job in jobs.listing(conn)]
