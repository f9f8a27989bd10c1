"""`hermes pair`: who may talk to the agent."""

import click

from gateway.cli.base import Cli, operator, pass_cli
from gateway.cli.database_access import existing_database, opened
from gateway.cli.output import tell
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
    places: dict[tuple[str, str], list[str]] = {(person.platform, person.user_id): [] for person in everybody}
    for platform, user, place in configured:
        places.setdefault((platform, user), []).append(place)
    names = {(person.platform, person.user_id): person.name for person in everybody}
    owned = {(person.platform, person.user_id) for person in everybody if person.owner} | set(owners.items())
    for (platform, user), found in places.items():
        owner = "(owner)" if (platform, user) in owned else ""
        name = "anybody" if user == "*" else names.get((platform, user), "")
        parts = (f"{platform}:{user}", name, ", ".join(found), owner)
        click.echo("  ".join(one_line(part) for part in parts if part))
    for asked in waiting:
        left = format_duration((asked.expires_at - now_ms()) / 1000)
        click.echo(
            f"{asked.platform}:{one_line(asked.user_id)}  {one_line(asked.name)}  waits; the code is on their screen, valid for {left}"
        )


def _configured(cli: Cli) -> list[tuple[str, str, str]]:
    """Returns platform, id and place of those whom the configuration lets in; none where it cannot be used."""
    from gateway.chats.access import access_rules
    from gateway.config.problems import BadConfig
    from gateway.config.reading import load

    try:
        config = load(cli.home, cli.environ).config
    except BadConfig:
        tell("The configuration has mistakes, so whom it lets in is not known: hermes config check", err=True)
        return []
    found: list[tuple[str, str, str]] = []
    for name, section in config.platforms.by_name().items():
        if section.enabled:
            rules = access_rules(config, name)
            found += [(name, user, "in allowed_users") for user in sorted(rules.allowed_users)]
            found += [
                (name, user, f"in people as {who.name}") for user, who in (rules.people or {}).items() if who.scopes
            ]
    return found


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
        gone = database.write_now(people.shut_out, user, now_ms(), by=operator())
    configured = _configured(cli)
    for person in gone:
        who = f"{one_line(person.name or person.user_id)} ({person.platform}:{person.user_id})"
        still = [
            place
            for platform, user, place in configured
            if platform == person.platform and user in {"*", person.user_id}
        ]
        if still:
            click.echo(f"The pairing of {who} is removed. config.yaml still gives access: {', '.join(still)}.")
        else:
            click.echo(f"{who} has no access any more.")
