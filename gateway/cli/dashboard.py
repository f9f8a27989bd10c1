"""`hermes dashboard`: a link with which a browser signs in to the page of the gateway."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import click

from gateway.cli.base import Cli, operator, pass_cli
from gateway.cli.database_access import opened
from gateway.cli.output import Failed, Wrong, as_json
from gateway.config.model import Config
from gateway.config.reading import load
from gateway.texts import counted
from sessions import sign_ins, workers
from sessions.clock import now_ms

MINUTES = sign_ins.LINK_MS // 60_000


@click.command()
@click.option("--revoke", is_flag=True, help="End every sign-in and every link instead.")
@click.option(
    "--for", "person", metavar="NAME", help="For this person of the section people, who must have the scope admin."
)
@click.option("--json", "wants_json", is_flag=True, help="Print one object.")
@pass_cli
def dashboard(cli: Cli, revoke: bool, person: str | None, wants_json: bool) -> None:
    """Print a link that signs a browser in to the page of the gateway. It works once, and for five minutes."""
    config, now = load(cli.home, cli.environ).config, now_ms()
    if person is not None:
        _require_admin(config, person)
    who = person or operator()
    with opened(cli) as database:
        if revoke:
            ended = database.write_now(sign_ins.revoke_all, who, now)
            click.echo(f"{counted(ended, 'sign-in')} ended. `hermes dashboard` prints a new link.")
            return
        if not database.read_now(workers.any_ready, now):
            raise Failed(f"No gateway runs on {cli.home}. `hermes gateway run` starts one.")
        secret = database.write_now(sign_ins.new_link, who, now)
    api = config.api
    public = urlsplit(api.public_url)
    base = f"{public.scheme}://{public.netloc}" if public.scheme == "https" else f"http://127.0.0.1:{api.port}"
    address = f"{base}/ui/login#{secret}"
    if wants_json:
        click.echo(as_json({"url": address, "expires_in": sign_ins.LINK_MS // 1000}))
        return
    if public.scheme != "https" and (tunnel := ssh_command(cli.environ, api.port)) is not None:
        click.echo(f"You are here over SSH. On your own machine, first: {tunnel}")
    click.echo(f"{address}\n\nIt signs in once, within {MINUTES} minutes.")


def _require_admin(config: Config, name: str) -> None:
    found = next((each for each in config.people if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in config.people) or "nobody"
        raise Wrong(f"The section people names no {name}. It names {known}.")
    if "admin" not in found.scopes:
        raise Wrong(f"{name} has no scope admin. Add it to the scopes of {name} in the section people.")


def ssh_command(environ: Mapping[str, str], port: int) -> str | None:
    """Returns the command that brings the page to the machine of a person who is here over SSH."""
    connection = environ.get("SSH_CONNECTION", "").split()
    if len(connection) != 4:
        return None
    here = f"[{connection[2]}]" if ":" in connection[2] else connection[2]
    return f"ssh -L {port}:127.0.0.1:{port} {environ.get('USER', 'you')}@{here}"
