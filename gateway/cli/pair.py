"""`hermes pair`: who may talk to the agent."""

import click

from gateway.cli.base import Cli, operator, pass_cli
from gateway.cli.database_access import existing_database, opened
from gateway.texts import format_duration, one_line, say
from sessions import people
from sessions.clock import now_ms
from sessions.messages import Content


@click.group()
def pair() -> None:
    """List, approve and remove people who may talk to the agent."""


@pair.command("list")
@pass_cli
def list_(cli: Cli) -> None:
    """List who has access, by the configuration or by a code, and who waits for approval."""
    with existing_database(cli) as database:
        everybody = database.read_now(people.everybody) if database else []
        waiting = database.read_now(people.pending, now_ms()) if database else []
        owners = database.read_now(people.owners) if database else {}
    configured = _configured(cli)
    if not everybody and not waiting and not configured:
        click.echo("Nobody has been approved, and nobody waits. People get a code when they write to the bot.")
    for platform, user in configured:
        who = "anybody" if user == "*" else ""
        owner = "  (owner)" if owners.get(platform) == user else ""
        click.echo(f"{platform}:{user}  {who}  in allowed_users{owner}".replace("    ", "  "))
    for person in everybody:
        click.echo(
            f"{person.platform}:{one_line(person.user_id)}  {one_line(person.name)}{'  (owner)' if person.owner else ''}"
        )
    for asked in waiting:
        left = format_duration((asked.expires_at - now_ms()) / 1000)
        click.echo(
            f"{asked.platform}:{one_line(asked.user_id)}  {one_line(asked.name)}  waits; the code is on their screen, valid for {left}"
        )


def _configured(cli: Cli) -> list[tuple[str, str]]:
    """Returns platform and id of those who stand in `allowed_users`; none where the configuration cannot be used."""
    from gateway.config.problems import BadConfig
    from gateway.config.reading import load

    try:
        sections = load(cli.home, cli.environ).config.platforms.by_name()
    except BadConfig:
        click.echo("The configuration has mistakes, so its allowed_users are not listed: hermes config check", err=True)
        return []
    return [(name, user) for name, section in sections.items() if section.enabled for user in section.allowed_users]


@pair.command()
@click.argument("code")
@pass_cli
def approve(cli: Cli, code: str) -> None:
    """Give access to the person who has this CODE."""
    with opened(cli) as database:
        person = database.write_now(people.let_in, code, now_ms(), Content(text=say("people.paired")), by=operator())
    click.echo(f"{one_line(person.name or person.user_id)} ({person.platform}:{person.user_id}) has access now.")


@pair.command()
@click.argument("user")
@pass_cli
def revoke(cli: Cli, user: str) -> None:
    """Remove USER's access. USER is an id as `hermes pair list` shows it."""
    with opened(cli) as database:
        for person in database.write_now(people.shut_out, user, now_ms(), by=operator()):
            click.echo(
                f"{one_line(person.name or person.user_id)} ({person.platform}:{person.user_id}) has no access any more."
            )
