"""`hermes sessions`: everything about stored conversations."""

import re
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Connection

from gateway.cli import database_access, output, render
from gateway.cli.base import Cli, operator, pass_cli
from gateway.cli.output import Failed, Wrong
from gateway.texts import clean, counted, one_line
from sessions import store
from sessions.clock import now_ms
from sessions.db import Database
from sessions.errors import NotFound, ReadOnly
from sessions.records import Session, Source

FOREIGN = ("hermes-agent", "openclaw", "nanobot")
DAY_MS = 24 * 60 * 60 * 1000
A_CENTURY = 36_500
MOST = 1_000_000
_ONLY_NOT = re.compile(r"[\s(]*NOT\s")
_NEAR = re.compile(r"\bNEAR\s*(?:/\d+\s*)?\(")
_OPERATOR = re.compile(r"(?:^|[\s()])(?:AND|OR|NOT)(?=[\s()]|$)|[()]")
_WITHOUT_RESET = (Source.CLI, Source.API, Source.THREAD, Source.JOB)
"""Where no reset ends a session, unless the configuration names it."""
NOTHING_YET = "No sessions yet. `hermes` starts one."


class _SourceName(click.Choice[str]):
    """Our own sources are offered; the names of platforms that other packages bring are looked up when one is asked for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            from adapters.registry import of_others

            self.choices = (*self.choices, *of_others())
        return super().convert(value, param, ctx)


class Since(click.ParamType[int]):
    """An age, such as 7d, or a date. Gives epoch milliseconds."""

    name = "age or date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if age := re.fullmatch(r"(\d{1,6})([mhd])", value):
            return now_ms() - int(age[1]) * {"m": 60_000, "h": 3_600_000, "d": DAY_MS}[age[2]]
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither an age, such as 7d or 12h, nor a date, such as 2026-01-31.", param, ctx)
        return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


_IDS = database_access.completing(database_access.session_ids)
_KEYS = database_access.completing(database_access.session_keys)
from_source: Callable[..., Any] = click.option(
    "--source", type=_SourceName([str(source) for source in Source]), help="Only from there."
)
json_wanted: Callable[..., Any] = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
surely: Callable[..., Any] = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def sessions() -> None:
    """List, search, export and delete stored sessions."""


# --- looking -------------------------------------------------------------------------------------------------------


@sessions.command("list")
@from_source
@click.option("--key", metavar="KEY", help="Only of keys that begin like this, such as agent:main:api:laptop.")
@click.option("--since", type=Since(), metavar="AGE|DATE", help="Only with activity since then: 7d, 12h, 2026-01-31.")
@click.option("--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="How many at most.")
@click.option("--wide", is_flag=True, help="Print titles and keys, too.")
@json_wanted
@pass_cli
def list_sessions(
    cli: Cli, source: str | None, key: str | None, since: int | None, limit: int, wide: bool, as_json: bool
) -> None:
    """List the sessions with the latest activity. Times are UTC."""
    with database_access.existing_database(cli) as database:
        found = []
        if database is not None:
            found = database.read_now(store.recent, source=source, under=key, since=since, limit=limit)
        # Programs read the columns of the plain output, so titles are for people only.
        titled = wide or sys.stdout.isatty()
        titles: dict[str, str] = {}
        if database is not None and titled:
            titles = database.read_now(_titles, found)
    if as_json:
        told = [asdict(session) for session in found]
        for each in told:
            for own in ("announces", "settled_to", "rewrites"):  # nobody else's business
                del each[own]
        click.echo(output.as_json(told))
    elif found and wide:
        click.echo(render.wide_table([(each, titles[each.id]) for each in found]))
    elif found and titles:
        click.echo(render.titled_table([(each, titles[each.id]) for each in found], shutil.get_terminal_size().columns))
    elif found:
        click.echo(render.table(found))
    else:
        click.echo(
            "No such sessions." if key or since else NOTHING_YET if source is None else f"No sessions from {source}."
        )


@sessions.command()
@click.argument("query", nargs=-1, required=True)
@from_source
@click.option("--limit", type=click.IntRange(1, MOST), default=10, show_default=True, help="How many at most.")
@json_wanted
@pass_cli
def search(cli: Cli, query: tuple[str, ...], source: str | None, limit: int, as_json: bool) -> None:
    """Find words in all messages: any of them, a "phrase", a prefix*, AND, OR, NOT."""
    from sessions.search import message_index

    asked = " ".join(query)
    if (mistake := _mistake_in(asked)) is not None:
        raise Wrong(mistake)
    with database_access.existing_database(cli) as database:
        if database is not None:
            # The daemon indexes in the background; what was said a second ago is to be found all the same.
            from sessions.search import message_index

            try:
                with render.Progress("Indexing messages") as progress:
                    done = 0
                    while database.write_now(message_index.index_some):
                        done += 300
                        progress(done)
            except ReadOnly:
                if missing := database.read_now(message_index.unindexed):
                    said = (
                        f"{counted(missing, 'new message')} could not be indexed, because this home cannot be written."
                    )
                    click.echo(f"{said} What they say is not found.", err=True)
        found = [] if database is None else database.read_now(message_index.search, asked, source=source, limit=limit)
        titles = {} if database is None else database.read_now(_titles, [hit.session for hit in found])
    if as_json:
        click.echo(output.as_json([_hit(hit, asked) for hit in found]))
    else:
        click.echo(render.hits(found, asked, titles) if found else f"Nothing found for {asked!r}.")


def _titles(conn: Connection, found: Iterable[Session]) -> dict[str, str]:
    return {session.id: store.label(conn, session) for session in found}


def _mistake_in(query: str) -> str | None:
    """Returns what is wrong with a query that is more than plain words; read as plain words it would find something else."""
    from sessions.search.query import parse

    if _ONLY_NOT.match(query):
        return "NOT only takes away. Say first what to look for, as in: deploy NOT garden."
    if _NEAR.search(query):
        return 'There is no NEAR here. A "phrase" finds words that follow each other.'
    if query.count('"') % 2:
        return f"A quote is missing in: {query}"
    found = parse(query)
    if found is not None and not found.literal and _OPERATOR.search(query):
        return (
            "AND, OR, NOT and parentheses need a word on each side, as in: deploy AND (garden OR tulips) NOT weather."
        )
    return None


def _hit(hit: Any, query: str) -> dict[str, Any]:
    message, session = hit.message, hit.session
    return {
        "session_id": session.id,
        "session_key": session.session_key,
        "source": session.source,
        "title": session.title,
        "started_at": session.started_at,
        "message_id": message.id,
        "role": message.role,
        "sender": message.sender,
        "created_at": message.created_at,
        "content": message.content,
        "snippet": render.snippet(message.content or "", query),
    }


@sessions.command()
@click.argument("session_id", metavar="ID", shell_complete=_IDS)
@json_wanted
@pass_cli
def show(cli: Cli, session_id: str, as_json: bool) -> None:
    """Print a session: its facts and every message."""
    from sessions.export import export_session

    def shown(conn: Connection) -> str:
        session = store.resolve(conn, session_id)
        said = store.read_messages(conn, session.id)
        return render.conversation(session, store.label(conn, session), _parts(conn, session), said)

    with database_access.database_of_session(cli, session_id) as database:
        if as_json:
            found = database.read_now(lambda conn: export_session(conn, store.resolve(conn, session_id).id))
            click.echo(output.as_json(found))
        else:
            render.show(database.read_now(shown))


@sessions.command()
@click.argument("session_key", metavar="KEY", shell_complete=_KEYS)
@json_wanted
@pass_cli
def why(cli: Cli, session_key: str, as_json: bool) -> None:
    """Say when and why the session of a session key (or of an ID) is reset, and by which line of the configuration."""
    from gateway.cli.why import print_why

    print_why(cli, session_key, as_json=as_json)


@sessions.command()
@json_wanted
@pass_cli
def stats(cli: Cli, as_json: bool) -> None:
    """Count sessions and messages, and say how large the database is."""
    with database_access.existing_database(cli) as database:
        nothing = store.Stats(sessions=0, messages=0, by_source={})
        counts = nothing if database is None else database.read_now(store.stats)
        size = database_access.size_in_bytes(cli, database)
    if as_json:
        click.echo(output.as_json({**asdict(counts), "database_bytes": size}))
        return
    click.echo(f"Total sessions: {counts.sessions}\nTotal messages: {counts.messages}")
    for source, number in counts.by_source.items():
        click.echo(f"{source}: {number} sessions")
    # In MB always, as programs read it; what is there at all is no 0.0.
    shown = "0 MB" if size == 0 else "known to its server" if size is None else f"{max(size / 2**20, 0.1):.1f} MB"
    click.echo(f"Database size: {shown}")


# --- changing ------------------------------------------------------------------------------------------------------


@sessions.command()
@click.argument("session_id", metavar="ID", shell_complete=_IDS)
@click.argument("title", nargs=-1, required=True)
@pass_cli
def rename(cli: Cli, session_id: str, title: tuple[str, ...]) -> None:
    """Give a session another title; an empty title removes it."""
    wanted = one_line(" ".join(title))

    def change(conn: Connection) -> tuple[str, str]:
        session = store.resolve(conn, session_id)
        return session.id, store.rename(conn, session.id, wanted)

    with database_access.database_of_session(cli, session_id, to_change=True) as database:
        renamed, kept = database.write_now(change)
    cut = f" Titles have {store.TITLE_LENGTH} characters at most, so it was cut." if len(kept) < len(wanted) else ""
    click.echo(f"{renamed} is now “{one_line(kept)}”.{cut}" if kept else f"{renamed} has no title any more.")


@sessions.command("export")
@click.argument("file")
@from_source
@click.option("--session-id", metavar="ID", help="Only this session, with all its parts.")
@click.option("--yes", is_flag=True, help="Replace FILE without asking.")
@pass_cli
def export_sessions(cli: Cli, file: str, source: str | None, session_id: str | None, yes: bool) -> None:
    """Write sessions to FILE, one JSON object per line; - is standard output."""
    from gateway.cli import session_files

    place = Path(file)
    # Scripts write the same file again every night; a person may have mistyped its name.
    if file != "-" and not yes and sys.stdin.isatty() and place.is_file() and place.stat().st_size:
        click.confirm(f"{file} is there already. Replace it?", abort=True, err=True)
    with database_access.existing_database(cli) as database:
        if database is None and session_id is not None:
            raise database_access.nothing_stored(cli, session_id)
        chosen = [] if database is None else database.read_now(_chosen, source, session_id)
        with session_files.destination(file) as out:
            written = 0 if database is None else session_files.write_sessions(database, chosen, out)
    if file != "-":
        click.echo(f"{counted(written, 'session')} written to {file}.")


def _chosen(conn: Connection, source: str | None, session_id: str | None) -> list[str]:
    from sessions.export import conversations

    if session_id is None:
        return conversations(conn, source=source)
    session = store.resolve(conn, session_id)
    if source not in {None, session.source}:
        raise Wrong(f"Session {session.id} is from {session.source}, not from {source}.")
    return [part.id for part in _parts(conn, session)]


@sessions.command("import")
@click.option(
    "--from", "program", type=click.Choice(FOREIGN), help="FILE is the home of this program; it is only read."
)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@pass_cli
def import_sessions(cli: Cli, program: str | None, file: Path) -> None:
    """Read sessions that `export` wrote; - is standard input. Those that are here already stay as they are."""
    if program is not None:
        from gateway.cli.foreign.importing import take

        with database_access.opened(cli) as database, database_access.mirrored(cli, database):
            taken = take(database, program, file)
        click.echo(clean("\n".join(taken.lines())))
        return
    from gateway.cli import session_files

    with (
        click.File("rb").convert(str(file), None, click.get_current_context()) as lines,
        database_access.opened(cli) as database,
        database_access.mirrored(cli, database),
    ):
        done = session_files.read_sessions(database, lines, cli.home)
    click.echo(f"{done}.")


# --- deleting ------------------------------------------------------------------------------------------------------


@sessions.command()
@click.argument("session_id", metavar="ID", shell_complete=_IDS)
@surely
@pass_cli
def delete(cli: Cli, session_id: str, yes: bool) -> None:
    """Delete a session for good, with all its parts."""
    with database_access.database_of_session(cli, session_id, to_change=True) as database:
        parts = database.read_now(lambda conn: _parts(conn, store.resolve(conn, session_id)))
        title = database.read_now(store.label, parts[-1])
        _need_terminal(yes)
        if not yes:
            also = f"It has {len(parts)} parts, which are deleted together.\n" if len(parts) > 1 else ""
            _confirm(f"{render.summary(parts, title)}\n{also}Delete this session for good?")
        _erase(cli, database, parts)


@sessions.command()
@click.option(
    "--older-than",
    type=click.IntRange(0, A_CENTURY),
    default=90,
    show_default=True,
    metavar="DAYS",
    help="Since the end.",
)
@click.option(
    "--inactive",
    type=click.IntRange(1, A_CENTURY),
    metavar="DAYS",
    help="First end sessions of the terminal, programs and jobs in which nothing was said for so long.",
)
@from_source
@surely
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@pass_cli
def prune(cli: Cli, older_than: int, inactive: int | None, source: str | None, yes: bool, dry_run: bool) -> None:
    """Delete sessions that ended long ago."""
    _need_terminal(yes or dry_run)
    with database_access.existing_database(cli, to_change=not dry_run) as database:
        now = now_ms()
        if inactive is not None and database is not None:
            sources = [each for each in _WITHOUT_RESET if source in {None, each}]
            idle = database.read_now(store.idle, sources, now - inactive * DAY_MS)
            if not dry_run:
                idle = database.write_now(store.end_idle, sources, now - inactive * DAY_MS, now)
            ended = "would be ended" if dry_run else "ended"
            click.echo(f"{counted(len(idle), 'session')} without activity for {counted(inactive, 'day')} {ended}.")
        before = now - older_than * DAY_MS
        old = [] if database is None else database.read_now(_ended_before, before, source)
        if database is None or not old:
            click.echo(f"No session ended more than {counted(older_than, 'day')} ago.")
            return
        if not yes or dry_run:
            click.echo(render.ended_table(old))
        if dry_run:
            click.echo(f"{_amount(old)} would be deleted. Nothing was changed.")
            return
        if not yes:
            _confirm(f"Delete {_amount(old)} for good?")
        _erase(cli, database, old)


def _ended_before(conn: Connection, moment: int, source: str | None) -> list[Session]:
    """Returns conversations that ended before this time. One that goes on in a newer or open part stays whole."""
    ended = [store.get(conn, session_id) for session_id in store.ended_before(conn, moment, source=source)]
    ids = {session.id for session in ended}
    return [session for session in ended if _parts(conn, session)[-1].id in ids]


def _need_terminal(answered: bool) -> None:
    if not answered and not sys.stdin.isatty():
        raise Wrong("This deletes for good and asks first, but there is no terminal to ask on. Add --yes.")


def _confirm(question: str) -> None:
    if not click.confirm(question, err=True):
        raise Failed("Nothing was deleted.")


def _erase(cli: Cli, database: Database, gone: list[Session]) -> None:
    """Erases the parts, the newest first: if a run works on the conversation, that part is refused before anything is lost."""
    from sessions.erase import erase

    with database_access.mirrored(cli, database), render.Progress("Deleting sessions") as progress:
        erase(cli.home, database, [session.id for session in reversed(gone)], progress, by=operator(), now=now_ms())
    click.echo(f"{_amount(gone)} deleted.")


def _amount(some: list[Session]) -> str:
    messages = counted(sum(session.message_count for session in some), "message")
    return f"{counted(len(some), 'session')} with {messages}"


def _parts(conn: Connection, session: Session) -> list[Session]:
    """Returns the whole conversation; only this part where an import brought it without the others."""
    try:
        return store.chain(conn, session)
    except NotFound:
        return [session]
