"""`hermes memory`: lists and removes what was learned in each chat."""

from typing import Any

import click

from gateway.cli import output
from gateway.cli.base import Cli, operator, pass_cli
from gateway.cli.database_access import existing_database
from gateway.cli.output import Failed, Wrong, tell
from gateway.texts import one_line
from sessions import memory as notes
from sessions.clock import iso, now_ms
from sessions.errors import NotFound
from sessions.keys import InvalidKey, SessionKey
from sessions.records import Observation


@click.group()
def memory() -> None:
    """List what was noted down, and remove it."""


@memory.command("list")
@click.argument("key", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@pass_cli
def list_(cli: Cli, key: str | None, as_json: bool) -> None:
    """List the notes, of one session KEY or of all, with what each has replaced. Times are UTC."""
    ns = None if key is None else _namespace(key)
    with existing_database(cli) as database:
        found = []
        if database is not None:
            found = database.read_now(notes.all_open) if ns is None else database.read_now(notes.open_notes, ns)
        before = database.read_now(notes.replaced, found) if database is not None else {}
    if as_json:
        click.echo(output.as_json([_facts(note, before.get(note.supersedes or 0)) for note in found]))
        return
    if not found:
        click.echo("No notes yet." if key is None else f"No notes in {ns}.")
    shown = ""
    for note in found:
        if note.ns != shown:
            click.echo(f"{chr(10) if shown else ''}{one_line(note.ns)}")
            shown = note.ns
        shown_note = notes.render(note, before.get(note.supersedes or 0)).removeprefix("o")
        click.echo(f"  {one_line(shown_note)}")
    if found:
        tell("\n`hermes memory forget N` removes one.")


def _namespace(key: str) -> str:
    """Of a session key; a namespace as the list prints it is also taken."""
    try:
        return SessionKey.parse(key).namespace
    except InvalidKey as error:
        if key.startswith("agent:") and key.count(":") == 1:
            return key
        raise Wrong(f"{error} `hermes memory list` without a key shows all.") from error


def _facts(note: Observation, before: Observation | None) -> dict[str, Any]:
    return {
        "id": note.id,
        "namespace": note.ns,
        "kind": note.kind,
        "text": note.text,
        "cause": note.cause,
        "happened": note.happened,
        "said_at": iso(note.said_at),
        "session_id": note.session_id,
        "messages": list(note.src),
        "before": before.text if before else None,
    }


@memory.command()
@click.argument("number", type=click.IntRange(1, 2**63 - 1))
@pass_cli
def forget(cli: Cli, number: int) -> None:
    """Remove the note of this NUMBER everywhere; the same words do not bring it back. The messages that it is from stay."""
    from sessions.erase import forget_note

    with existing_database(cli, to_change=True) as database:
        if database is None:
            raise Failed(f"There is no note {number}: nothing is stored in {cli.home} yet.")
        try:
            gone = forget_note(cli.home, database, number, by=operator(), now=now_ms())
        except NotFound as error:
            raise Failed(f"There is no note {number}. `hermes memory list` shows them.") from error
    click.echo(f"Removed note {number}: {one_line(gone.text)}")
