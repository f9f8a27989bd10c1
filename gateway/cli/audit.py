"""`hermes audit`: who decided, signed in, changed and deleted what."""

from dataclasses import asdict

import click

from gateway.cli.base import Cli, pass_cli
from gateway.cli.database_access import existing_database
from gateway.cli.output import as_json
from gateway.cli.render import when
from gateway.cli.sessions import Since
from gateway.texts import one_line
from sessions import audit as acts
from sessions.clock import iso


@click.command()
@click.option("--since", type=Since(), metavar="AGE|DATE", help="Only since then: 7d, 12h, 2026-01-31.")
@click.option("--who", metavar="NAME", help="Only of this person or key, as it is listed.")
@click.option("--action", metavar="ACTION", help="Only this, such as approval.denied, or all that begins so: approval.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True, help="How many at most.")
@click.option("--json", "wants_json", is_flag=True, help="Print one array.")
@pass_cli
def audit(cli: Cli, since: int | None, who: str | None, action: str | None, limit: int, wants_json: bool) -> None:
    """List who decided about approvals, signed in, let people in, changed and deleted what. The newest is last; times are UTC."""
    with existing_database(cli) as database:
        found = []
        if database is not None:
            found = database.read_now(acts.listing, since=since, who=who, action=action, limit=limit)
    if wants_json:
        click.echo(as_json([{**asdict(row), "at": iso(row.at)} for row in found]))
        return
    # Nothing is cut: whoever looks for an act needs the whole of it.
    names, actions = [one_line(row.who) for row in found], [len(row.action) for row in found]
    for name, row in zip(names, found, strict=True):
        about = one_line(f"{row.about}  {row.detail}".rstrip())
        click.echo(f"{when(row.at)}  {name:<{max(map(len, names))}}  {row.action:<{max(actions)}}  {about}")
    if not found:
        click.echo("Nothing is recorded.")
