"""`hermes chat`: talk in the terminal, or ask one question from a script."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from sqlalchemy import Connection

from adapters.registry import title_of
from gateway.app import open_app, running
from gateway.cli.base import Cli, pass_cli
from gateway.cli.output import Wrong
from gateway.cli.terminal.conversation import RunOutcome, TerminalConversation, failure_text, leaving
from gateway.config.reading import load
from gateway.context import App
from gateway.home import prepare_home
from gateway.observe import logging
from gateway.runs.replies import numbered_question
from gateway.texts import clean, format_short_time, say
from sessions import ids, store
from sessions.clock import now_ms
from sessions.keys import SessionKey
from sessions.records import Role, Run, RunStatus, Source

PAUSE = 0.015
MOST_PIPED = 10 * 2**20
LEAVING_SECONDS = 1.0  # nobody watches a shell hang; what is cut off goes on when the session is resumed


@click.command()
@click.option(
    "-q",
    "--query",
    "question",
    metavar="TEXT",
    help="Ask one question, print the answer, and leave. -: read it from the pipe.",
)
@click.option("-c", "--continue", "newest", is_flag=True, help="Continue the newest session of the terminal.")
@click.option("-r", "--resume", metavar="ID", help="Continue this session; the beginning of its id is enough.")
@pass_cli
def chat(cli: Cli, question: str | None, newest: bool, resume: str | None) -> None:
    """Talk in the terminal. What comes through a pipe is one message; with -q it stands above the question."""
    if question is not None and not question.strip():
        raise Wrong("The question is empty. Write it after -q, or leave -q out to talk.")
    said = _question_or_input(question)
    prepare_home(cli.home)
    logging.configure_quiet()
    code = asyncio.run(_chat(cli, said, newest, resume))
    if code:
        raise click.exceptions.Exit(code)


def _question_or_input(question: str | None) -> str | None:
    """Returns the one message of a script, empty when its pipe was; None when somebody sits at the terminal to talk."""
    at_terminal = sys.stdin is not None and sys.stdin.isatty()  # None when closed
    if at_terminal and question not in {None, "-"}:
        return question
    if at_terminal and question is None and sys.stdout.isatty():
        return None
    # One byte more than allowed, to notice that there is more.
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(MOST_PIPED + 1)
    if len(data) > MOST_PIPED:
        raise Wrong(f"That is too much to read at once: more than {MOST_PIPED // 2**20} MiB came through the pipe.")
    piped = data.decode("utf-8", "replace").strip()
    if question in {None, "-"}:
        if question == "-" and not piped:
            raise Wrong(
                "Nothing came through the pipe. Write the question after -q, or send it: echo hello | hermes chat -q -"
            )
        return piped
    return f"{piped}\n\n{question}" if piped else question


async def _chat(cli: Cli, question: str | None, newest: bool, resume: str | None) -> int:
    loaded = load(cli.home, cli.environ)
    async with open_app(cli.home, loaded, serves=False, pause=PAUSE if sys.stdout.isatty() else 0) as app:
        key, resumed = await app.database.write(_choose, newest, resume, app.timezone)
        app.dispatch.add_key(str(key))
        conversation = TerminalConversation(
            app, key, moved=app.dispatch.add_key, session=resumed.session if resumed else None
        )
        unfinished = await conversation.active()
        to_stderr = question is not None and not sys.stdout.isatty()
        async with leaving(conversation, ends=question is None, to_stderr=to_stderr), running(app):
            if question is None:
                return await _talk(app, conversation, cli.home, resumed, unfinished)
            async with _interruptible(app, conversation):
                return await _ask_once(conversation, question) if question else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resumed:
    """A conversation that goes on, and what is shown of it: a line about it, and the agent's last answer."""

    session: str
    line: str
    answer: str


def _choose(conn: Connection, newest: bool, resume: str | None, timezone: str) -> tuple[SessionKey, _Resumed | None]:
    """Returns the key to go on with, its session active again; or the key of a new one. A session of another place goes on as a branch."""
    now = now_ms()
    session = store.resolve(conn, resume) if resume is not None else None
    if newest and session is None:
        session = store.newest(conn, Source.CLI)
    if session is None:
        return SessionKey.cli(ids.session_id(now)), None
    last = store.chain(conn, session)[-1]
    title, said = store.label(conn, session), store.last_words(conn, last)
    moment = format_short_time(last.last_user_at or last.started_at, now, timezone)
    line = say("session.resumed", title=title, when=moment, last=said)
    answers = [each.content for each in store.last_messages(conn, last.id, 20) if each.role is Role.ASSISTANT]
    shown = _Resumed(session=last.id, line=line, answer=next(filter(None, reversed(answers)), ""))
    if session.source == Source.CLI:
        store.reopen(conn, session, now)
        return SessionKey.parse(session.session_key), shown
    key = SessionKey.cli(ids.session_id(now))
    made = store.branch(conn, session, key, now)
    return key, replace(
        shown, session=made.id, line=f"{line}\n{say('session.branched', place=title_of(session.source))}"
    )


@asynccontextmanager
async def _interruptible(app: App, conversation: TerminalConversation) -> AsyncGenerator[None]:
    """Makes Ctrl-C end the answer; what was done so far is kept."""
    try:
        yield
    except asyncio.CancelledError:
        await conversation.stop()
        await app.worker.drain(LEAVING_SECONDS)
        raise


async def _ask_once(conversation: TerminalConversation, question: str) -> int:
    if not sys.stdout.isatty():
        return await _exchange(conversation, question, _print)
    from gateway.cli.terminal.screen import Screen, previewing

    screen = Screen()
    unlisten = conversation.listen(screen.on_event)
    with previewing(screen):
        try:
            return await _exchange(conversation, question, screen.show_outcome)
        finally:
            unlisten()
            screen.flush()


async def _exchange(conversation: TerminalConversation, text: str, show: Callable[[RunOutcome], None]) -> int:
    """Says it and shows what comes of it; a command may start a run, too. Returns the exit code."""
    reply = await conversation.command(text)
    if reply is not None and reply.text:
        click.echo(clean(reply.text))
    run_id = reply.works if reply is not None else await conversation.ask(text)
    if run_id is None:
        return 0
    outcome = await conversation.finished(run_id)
    show(outcome)
    return 1 if outcome.run.status is RunStatus.ERROR else 0


def _print(outcome: RunOutcome) -> None:
    if outcome.run.status is RunStatus.ERROR:
        click.echo(clean(failure_text(outcome.run)), err=True)
    elif outcome.ask is not None:
        click.echo(clean(numbered_question(outcome.ask)))
    else:
        click.echo(clean(outcome.answer))


async def _talk(
    app: App, conversation: TerminalConversation, home: Path, resumed: _Resumed | None, unfinished: Run | None
) -> int:
    """Talks until the user leaves. `unfinished`: a run that a crash has left; it may be over before the terminal is up."""
    from gateway.cli.terminal.prompt import Terminal
    from gateway.cli.terminal.screen import Screen

    screen = Screen()
    screen.dim(f"{app.chosen}. /help shows the commands, Ctrl-D leaves.")
    if resumed is not None:
        screen.dim(resumed.line)
        if resumed.answer:
            screen.markdown(resumed.answer)
    elif (waits := await conversation.waits()) is not None:
        screen.dim(waits)
    await Terminal(conversation, home, screen).run(unfinished)
    await app.worker.drain(LEAVING_SECONDS)
    active = await conversation.active()
    if active is not None and active.status is RunStatus.RUNNING:
        screen.dim("The answer is not finished. Resuming goes on with it.")
    return 0
