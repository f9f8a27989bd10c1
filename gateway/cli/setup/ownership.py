"""Makes the first person the owner of the bot on a platform, by a code; nobody types an id."""

import asyncio
import contextlib
import io
import subprocess
import sys
import time
from collections.abc import Generator

import click
from sqlalchemy import Connection

from adapters.registry import manifest
from gateway.cli.doctor.remote_checks import webhook_url, why_unreachable
from gateway.cli.output import tell
from gateway.cli.setup.answers import Answers, CheckedBot
from gateway.config.sources import database_url
from sessions import people, workers
from sessions.clock import now_ms
from sessions.db import Database, open_database
from sessions.workers import WorkerState

WAIT_SECONDS = 300.0
_POLL_SECONDS = 0.2


def meet(answers: Answers, name: str, bot: CheckedBot) -> None:
    """With the gateway running: whether the platform would reach it, and who is the owner of the bot.

    Shows a code and waits until somebody has sent it to the bot. Ctrl-C skips the waiting; the code is valid for a day.
    """
    section = answers.loaded.config.platforms.by_name()[name]
    is_called = manifest(name).is_called(section)
    if section.allowed_users and not is_called:
        return
    database = open_database(answers.home, database_url(answers.home, answers.environ))
    try:
        has_owner = bool(section.allowed_users) or _owner(database, name) is not None
        if has_owner and not is_called:
            return
        with _gateway_runs(answers, database, name) as runs:
            if not runs:
                tell("  `hermes gateway run` shows a code; send it to the bot and you are its owner.")
                return
            if is_called:
                url = webhook_url(answers.loaded, name)
                if why := asyncio.run(why_unreachable(url)):
                    click.echo(f"  no   {manifest(name).title} would not reach {url}: {why}.")
                    tell("       docs/how-to/behind-a-proxy.md says how; `hermes doctor` tests it again.")
                else:
                    click.echo(f"  ok   {url} reaches this gateway.")
            if not has_owner:
                _offer_ownership(database, name, bot)
    finally:
        database.close()


def _offer_ownership(database: Database, name: str, bot: CheckedBot) -> None:
    code = database.write_now(people.owner_code, name, now_ms()).replace("-", "")
    words = f"{manifest(name).start} {code}"
    if link := bot.chat_link(code):
        click.echo(f"  Open {link}   or send the bot: {words}")
        # The link as a picture that a phone reads from the screen, for a terminal with light letters on a dark ground.
        import segno

        drawn = io.StringIO()
        segno.make_qr(link, error="l").terminal(drawn, border=2, compact=True)
        click.echo(drawn.getvalue().rstrip("\n"))
    else:
        click.echo(f"  Send the bot: {words}")
    click.echo("  waiting … (Ctrl-C: later; the code is valid for a day)")
    with contextlib.suppress(KeyboardInterrupt):
        _wait(database, name)


def _owner(database: Database, name: str) -> str | None:
    def find(conn: Connection) -> str | None:
        return next((each.name for each in people.everybody(conn) if each.platform == name and each.owner), None)

    return database.read_now(find)


def _wait(database: Database, name: str) -> None:
    ends = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < ends:
        if (owner := _owner(database, name)) is not None:
            click.echo(f"  ok   Hello {owner}. You are the owner.")
            return
        time.sleep(_POLL_SECONDS)
    click.echo("  Nobody has sent it yet. It stays valid for a day.")


@contextlib.contextmanager
def _gateway_runs(answers: Answers, database: Database, name: str) -> Generator[bool]:
    """A gateway that has connected to the platform: the one that runs, else one for as long as the block lasts. False: there is none."""
    if _is_connected(database, name, seconds=15 if database.read_now(workers.any_ready, now_ms()) else 0):
        yield True
        return
    # A process of its own: only a running gateway receives what the person sends, and setup blocks on its questions.
    program = [sys.executable, "-m", "gateway.cli.main", "gateway", "run", "--home", str(answers.home)]
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(program, stdin=quiet, stdout=quiet, stderr=quiet, env=dict(answers.environ))
    try:
        yield _is_connected(database, name, seconds=30, child=child)
    finally:
        child.terminate()
        # Longer than the daemon gives itself to finish its step.
        child.wait(timeout=40)


def _is_connected(
    database: Database, name: str, *, seconds: float, child: "subprocess.Popen[bytes] | None" = None
) -> bool:
    """Waits for it, but not longer than the child lives: it ends at once where its port is taken."""
    ends = time.monotonic() + seconds
    while True:
        now = now_ms()
        for row in database.read_now(workers.everyone):
            part = row.report.get("parts", {}).get(name, {})
            if row.state_at(now) is WorkerState.READY and part.get("state") == "connected":
                return True
        if time.monotonic() >= ends or (child is not None and child.poll() is not None):
            return False
        time.sleep(_POLL_SECONDS)
