"""`hermes dashboard`: a link with which a browser signs in to the page of the gateway."""

from urllib.parse import urlsplit

import click

from gateway.cli.base import Cli, operator, pass_cli, ssh_tunnel
from gateway.cli.database_access import opened
from gateway.cli.output import Failed, Wrong, as_json, tell
from gateway.config.reading import load
from gateway.texts import counted
from sessions import sign_ins, workers
from sessions.clock import now_ms
from sessions.workers import WorkerState

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
        found = next((each for each in config.people if each.name == person), None)
        if found is None:
            known = ", ".join(each.name for each in config.people) or "nobody"
            raise Wrong(f"The section people names no {person}. It names {known}.")
        if "admin" not in found.scopes:
            raise Wrong(f"{person} has no scope admin. Add it to the scopes of {person} in the section people.")
    who = person or operator()
    with opened(cli) as database:
        if revoke:
            ended = database.write_now(sign_ins.revoke_all, who, now)
            tell(f"{counted(ended, 'sign-in')} ended. `hermes dashboard` prints a new link.")
            return
        ready = [row for row in database.read_now(workers.everyone) if row.state_at(now) is WorkerState.READY]
        if not ready:
            raise Failed(f"No gateway runs on {cli.home}. `hermes gateway run` starts one.")
        secret = database.write_now(sign_ins.new_link, who, now)
    public = urlsplit(config.api.public_url)
    # Where it listens, by its own word: port 0 is any that was free.
    port = next(filter(None, (urlsplit(str(row.report.get("url", ""))).port for row in ready)), config.api.port)
    base = f"{public.scheme}://{public.netloc}" if public.scheme == "https" else f"http://127.0.0.1:{port}"
    address = f"{base}/ui/login#{secret}"
    if wants_json:
        click.echo(as_json({"url": address, "expires_in": sign_ins.LINK_MS // 1000}))
        return
    if tunnel := ssh_tunnel(cli.environ, base):
        click.echo(f"You are here over SSH. On your own machine, first: {tunnel}")
    click.echo(f"{address}\n\nIt signs in once, within {MINUTES} minutes.")
