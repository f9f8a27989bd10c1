"""`hermes outbox`: messages that could not be delivered."""

import click

from gateway.cli import output
from gateway.cli.base import Cli, pass_cli
from gateway.cli.database_access import existing_database, opened
from gateway.cli.output import Failed
from gateway.texts import counted, format_short_time, one_line
from sessions import outbox as box
from sessions.clock import iso, now_ms


@click.group()
def outbox() -> None:
    """Look at messages that could not be delivered, and send them again."""


@outbox.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@pass_cli
def list_(cli: Cli, as_json: bool) -> None:
    """List the undelivered messages, newest first."""
    with existing_database(cli) as database:
        rows = database.read_now(box.dead_letters) if database else []
        waiting = sorted(database.read_now(box.waiting).items()) if database else []
    if as_json:
        facts = [
            {
                "id": row.id,
                "platform": row.platform,
                "chat": row.chat,
                "created_at": iso(row.created_at),
                "error": row.last_error,
            }
            for row in rows
        ]
        click.echo(output.as_json(facts))
        return
    if not rows:
        click.echo("No undelivered messages.")
    for platform, number in waiting:
        click.echo(f"{counted(number, 'message')} to {platform} still to be sent.")
    for row in rows:
        where = one_line(f"{row.platform} {row.chat}")
        text = row.content.text if row.content is not None else str((row.piece or {}).get("text", ""))
        said, error = one_line(text, 60), one_line(row.last_error or "")
        click.echo(f"{row.id}  {where}  {format_short_time(row.created_at, now_ms(), 'UTC')}  {error}\n    {said}")


@outbox.command()
@click.argument("number", type=click.IntRange(1, 2**63 - 1))
@pass_cli
def send(cli: Cli, number: int) -> None:
    """Send the undelivered message of this NUMBER again."""
    with opened(cli) as database:
        if not database.write_now(box.send_again, number, now_ms()):
            raise Failed(f"There is no undelivered message {number}. `hermes outbox list` shows them.")
    click.echo("The running gateway sends it again.")
