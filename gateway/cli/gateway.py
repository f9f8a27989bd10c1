"""`hermes gateway run`: the daemon that answers in the chats and over HTTP."""

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import AsyncGenerator, Coroutine, Sequence
from itertools import chain, repeat
from pathlib import Path

import click

from gateway.api.http.callers import FILE, local_key
from gateway.app import open_app, running
from gateway.chats.crash_guard import CrashGuard
from gateway.cli import process, workers
from gateway.cli.base import Cli, pass_cli, ssh_tunnel
from gateway.cli.output import as_typed, bad_config_as_text, program, sentence, warning_as_text
from gateway.config.problems import BadConfig
from gateway.config.reading import Loaded, load
from gateway.context import App
from gateway.daemon import Role, Serving, serving
from gateway.home import prepare_home
from gateway.observe import heap, logging
from gateway.observe.logging import get_logger, is_journal
from sessions import ids, lease_owners
from sessions.clock import now_ms
from sessions.db import upgrade_in_child
from sessions.db.sqlite import ended_uncleanly, quick_check
from sessions.errors import DatabaseUnavailable, StateError
from sessions.keys import SessionKey

log = get_logger(__name__)

PAUSE = 0.015
_START_PAUSES = (1.0, 2.0, 5.0, 10.0)
_START_SECONDS = 60.0
"""So long one try to start may take before systemd gives it up."""
_ModificationTimes = list[tuple[int, int] | None]
STARTING = "No changes were made; the gateway was not started."


@click.command()
@click.option(
    "--role",
    type=click.Choice(["all", "worker", "ingress"]),
    default="all",
    help="On PostgreSQL: everything; only runs, on no port; only platforms, webhooks and HTTP.",
)
@click.option(
    "--workers", "count", type=click.IntRange(1, 64), default=1, help="On PostgreSQL: so many processes, on one port."
)
@pass_cli
def run(cli: Cli, role: Role, count: int) -> None:
    """The gateway, in the foreground."""
    new = not cli.home.exists()
    prepare_home(cli.home)
    seen = _modification_times(cli.home)  # before it is read: what is saved meanwhile is a change
    try:
        loaded = load(cli.home, cli.environ)
    except BadConfig as error:
        click.echo(bad_config_as_text(error, color=sys.stderr.isatty(), closing=STARTING), err=True)
        raise click.exceptions.Exit(2) from None
    for warning in loaded.warnings:
        click.echo(warning_as_text(warning, color=sys.stderr.isatty()), err=True)
    on_sqlite = not loaded.config.database.url.get_secret_value()
    if on_sqlite and (count > 1 or role != "all"):
        what = "--workers" if count > 1 else "--role"
        click.echo(
            f"{what} is for a team's PostgreSQL, which database.url names. On SQLite one process does everything.",
            err=True,
        )
        raise click.exceptions.Exit(2)
    slot = workers.slot(os.environ)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty() and count == 1
    settings = loaded.config.log
    folder = cli.home / "logs" if settings.file else None
    shown = "warning" if on_terminal else ""
    logging.configure(settings.level, folder, shown=shown, form=settings.format, worker=slot)
    process.raise_file_limit()
    heap.tune()
    sys.setswitchinterval(0.0002)  # a thread that works on something large gives way to the event loop sooner
    # In a process of its own: what alembic loads would stay in memory for good.
    if on_sqlite and not process.has_pid_file(cli.home):
        upgrade_in_child(cli.home)
    if slot is not None:  # the parent holds the home
        guard = CrashGuard(cli.home, was_killed=workers.RESTARTED in os.environ, name=f"gateway.starts.{slot}")
        asyncio.run(_serve(cli, loaded, seen, guard, new=new, on_terminal=False, role=role))
        return
    with process.single_instance(cli.home) as was_killed:
        lease_owners.hold_home()
        if count > 1:
            if not loaded.config.api.keys:
                local_key(cli.home)  # before several make one at once
            raise click.exceptions.Exit(asyncio.run(workers.Workers(cli.home, role, count).run()))
        path = cli.home / "state.db"
        if on_sqlite and (ended_uncleanly(path) or (was_killed and path.exists())):
            log.info("database.checked", whole=quick_check(path))
        asyncio.run(
            _serve(
                cli,
                loaded,
                seen,
                CrashGuard(cli.home, was_killed=was_killed),
                new=new,
                on_terminal=on_terminal,
                role=role,
            )
        )


async def _serve(
    cli: Cli, loaded: Loaded, seen: _ModificationTimes, guard: CrashGuard, *, new: bool, on_terminal: bool, role: Role
) -> None:
    async with process.signals() as signals, contextlib.AsyncExitStack() as stack:
        started = await _started(cli, loaded, guard, stack, signals.end, pause=PAUSE if on_terminal else 0, role=role)
        if started is None:
            return
        app, served = started
        if workers.slot(os.environ) is None:
            lines = await served.chats.lines()
            click.echo(
                _screen(
                    app, served, lines, tunnel=ssh_tunnel(cli.environ, served.url), new=new, on_terminal=on_terminal
                )
            )
        # Only now: systemd starts what depends on us, and what it starts may call at once.
        process.notify_systemd("READY=1")
        workers.tell_ready(os.environ)
        log.info("daemon.started", home=str(cli.home), model=app.chosen.name, api=served.url)
        async with _beside(process.feed_watchdog()), _beside(_reload(cli, served, signals, seen)):
            if on_terminal:
                await _until_first(_console(cli, app), signals.end.wait())
            else:
                await signals.end.wait()
        process.notify_systemd("STOPPING=1")
        log.info("daemon.stopping")
    log.info("daemon.stopped")


async def _started(
    cli: Cli,
    loaded: Loaded,
    guard: CrashGuard,
    stack: contextlib.AsyncExitStack,
    end: asyncio.Event,
    *,
    pause: float,
    role: Role,
) -> tuple[App, Serving] | None:
    """Starts everything, to be stopped with the stack. Waits while the database is away or the disk is full, as a running daemon does. Returns
    None when the end was asked for meanwhile.
    """
    told, slot = "", workers.slot(os.environ)
    for seconds in chain(_START_PAUSES, repeat(_START_PAUSES[-1])):
        try:
            async with contextlib.AsyncExitStack() as attempt:
                app = await attempt.enter_async_context(
                    open_app(cli.home, loaded, pause=pause, serves=role != "ingress", slot=slot)
                )
                served = await attempt.enter_async_context(serving(app, guard, role=role, shares_port=slot is not None))
                await attempt.enter_async_context(running(app))
                await stack.enter_async_context(attempt.pop_all())
                return app, served
        except (DatabaseUnavailable, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOSPC:
                raise
            why = sentence(error)
        if why != told:
            log.error("database.unavailable", error=why, then="the gateway starts by itself when that is over")
            told = why
        process.notify_systemd(f"EXTEND_TIMEOUT_USEC={round((seconds + _START_SECONDS) * 1_000_000)}\nSTATUS={why}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(end.wait(), seconds)
        if end.is_set():
            return None
    raise AssertionError("unreachable")


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncGenerator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _until_first(*works: Coroutine[None, None, object]) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _console(cli: Cli, app: App) -> None:
    """Runs the conversation below the first screen, until the user leaves. When it fails, the daemon serves on without it."""
    from gateway.cli.terminal.conversation import TerminalConversation, leaving
    from gateway.cli.terminal.prompt import Terminal
    from gateway.cli.terminal.screen import Screen

    try:
        key = SessionKey.cli(ids.session_id(now_ms()))
        app.dispatch.add_key(str(key))
        conversation, screen = TerminalConversation(app, key, moved=app.dispatch.add_key), Screen()
        if (waits := await conversation.waits()) is not None:
            screen.dim(waits)
        async with leaving(conversation, ends=True):
            await Terminal(conversation, cli.home, screen).run()
    except Exception:  # the terminal is one chat of many
        task = asyncio.current_task()
        # A terminal that is gone has failed once more, in place of the cancellation.
        if task is not None and task.cancelling():
            raise
        log.exception("console.failed", then="hermes serves on without it")
        await asyncio.Event().wait()


async def _reload(cli: Cli, served: Serving, signals: process.Signals, seen: _ModificationTimes) -> None:
    """Takes over a good configuration on SIGHUP or a saved file; refuses a bad one, and the last good one stays in force."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await signals.reload.wait()
        now = _modification_times(cli.home)
        if not signals.reload.is_set() and now == seen:
            continue
        signals.reload.clear()
        seen = now
        try:
            for line in await served.reload(await asyncio.to_thread(load, cli.home, cli.environ)):
                click.echo(line)
        except BadConfig as error:
            served.refused([problem.headline for problem in error.problems])
            log.error("config.refused", problems=len(error.problems))
            click.echo(bad_config_as_text(error), err=True)
        except (StateError, OSError) as error:  # a platform that cannot be built, a file that cannot be read
            served.refused([str(error)])
            log.error("config.refused", error=str(error))


def _modification_times(home: Path) -> _ModificationTimes:
    """Returns the values by which a saved file is noticed."""
    found: _ModificationTimes = []
    for file in (home / "config.yaml", home / ".env"):
        try:
            stat = file.stat()
        except OSError:
            found.append(None)
        else:
            # The size too: some file systems keep times by the second, and an editor may save twice in one.
            found.append((stat.st_mtime_ns, stat.st_size))
    return found


def _screen(app: App, served: Serving, chats: Sequence[str], *, tunnel: str, new: bool, on_terminal: bool) -> str:
    from importlib.metadata import version

    home = f"{app.home}      new, only you can read it" if new else str(app.home)
    lines = [
        f"  hermes {version('hermes-gateway')}  is running",
        "",
        f"  Home     {home}",
        f"  Model    {app.chosen}",
        f"  API      {served.url}  {served.key_hint}",
        *[f"  {'Chats' if i == 0 else '     '}    {line}" for i, line in enumerate(chats or ["none yet"])],
        "",
    ]
    if is_journal(sys.stdout, os.environ):  # nobody is there to try anything
        return "\n".join(lines)
    key = "YOUR_KEY" if app.config.api.keys else f"$(cat {as_typed(app.home / FILE)})"
    stops = "an answer, twice stops hermes" if on_terminal else "hermes"
    lines += [
        "  Try now",
        *(["    say something       just type below; /help shows the commands"] if on_terminal else []),
        *([f"    a real model        {program()} setup"] if app.chosen.provider == "practice" else []),
        *([f"    Telegram, Slack, …  {program()} setup"] if not chats else []),
        f"    from code           curl {served.url}/v1/models \\",
        f'                          -H "Authorization: Bearer {key}"',
        *([f"    from your computer  {tunnel}"] if tunnel else []),
        f"    in your browser     {program()} dashboard",
        f"    is all well?        {program()} doctor",
        "",
        f"  Ctrl-C stops {stops}. Nothing is lost.",
        "",
    ]
    return "\n".join(lines)
