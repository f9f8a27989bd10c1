"""One conversation from this terminal: writes what is typed into the inbox, and follows its run."""

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import click
from sqlalchemy import Connection

from adapters.registry import title_of
from gateway.cli.base import operator, user_name
from gateway.cli.output import program
from gateway.commands import ChatAccount, ChatContext, execute, find, parse
from gateway.context import App
from gateway.runs.live import LiveEvent
from gateway.runs.replies import reset_line
from gateway.texts import say
from sessions import asks, inbox, jobs, runs, store
from sessions.clock import now_ms
from sessions.db.sql import lock
from sessions.keys import SessionKey
from sessions.records import Ask, EndReason, InboxMode, InboxRow, Message, Run, RunKind, RunStatus, Session, Source
from sessions.runs import farewells
from sessions.runs.journal import call_state, of_call
from sessions.topics import Topic, Touch

POLL_SECONDS = 1.0
_NO_MORE_ASKS = sys.maxsize


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReply:
    """What a command said and did. `works`: the run that it started. `ended`: the one that it ended."""

    text: str
    works: str | None = None
    ended: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run stands when it no longer works: its answer, a question to the human, or why it failed."""

    run: Run
    answer: str = ""
    ask: Ask | None = None


_OF_RUNS = frozenset({Topic.RUN, Topic.INBOX, Topic.STOPPED})


class RunChanges:
    """Wakes when a run may stand differently. Commits of another process, which may work on the same session, are not heard, so it wakes
    at least every second.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def on_commit(self, _: frozenset[Touch]) -> None:
        self._loop.call_soon_threadsafe(self._changed.set)  # called by the thread that writes

    async def next(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), POLL_SECONDS)
        self._changed.clear()


class TerminalConversation:
    """The conversation of one session key. `session`: the one that is gone on with. `moved` is called with the key of another session when
    the person goes back to that one."""

    def __init__(
        self, app: App, key: SessionKey, moved: Callable[[str], None] = lambda _: None, session: str | None = None
    ) -> None:
        self.app = app
        self.key = str(key)
        self._moved = moved
        self._session = session
        self._runs: set[str] = set()
        # Listens for all runs: which one answers is known only once the inbox is read.
        app.live.listen("*", self._note)

    def _note(self, moment: LiveEvent) -> None:
        """Notes runs of this conversation; a daemon's runs are those of all chats."""
        # The farewell of a session that was just ended is for nobody's eyes.
        if moment.run is not None and moment.run.session_key == self.key and moment.run.kind is not RunKind.FAREWELL:
            self._runs.add(moment.run_id)

    # --- saying ---

    async def say(self, text: str) -> str:
        """Writes the message. Returns the id of the run that it started, joined or answered."""
        accepted = await self._put(f"cli:{self.key}:{secrets.token_hex(8)}", text, InboxMode.TAKE_IN)
        return accepted.run_id or ""

    async def ask(self, text: str) -> str:
        """Writes the message and waits for its turn. Returns the id of the run that is for this message alone, or that it answered."""
        dedup_key = f"cli:{self.key}:{secrets.token_hex(8)}"
        accepted = await self._put(dedup_key, text, InboxMode.QUEUE)
        run_id = accepted.run_id
        async with self.changes() as changes:
            while run_id is None:
                await changes.next()
                run_id, _ = await self.app.database.read(of_call, dedup_key)
        return run_id

    async def reset_notice(self) -> str | None:
        """Returns the line that says, once, that what was said last has begun a new session after a reset; None: there was none."""
        session, policy = await self.session(), self.app.resets.policy(self.key)
        if session is None or session.announces is None:
            return None

        def tell(conn: Connection) -> str | None:
            former = store.announced_by(conn, session)
            store.mark_announced(conn, session.id)
            if former is None or not policy.notify:
                return None
            notes = farewells.notes_saved(conn, former.id)
            return reset_line(former, session.started_at, notes=notes, policy=policy)

        return await self.app.database.write(tell)

    async def _put(self, dedup_key: str, text: str, mode: InboxMode) -> runs.Accepted:
        accepted = await self.app.database.write(_say, self._opening, self.key, dedup_key, text, mode, self._session)
        session = await self.session()
        self._session = session.id if session is not None else None
        return accepted

    async def command(self, text: str) -> CommandReply | None:
        """Executes a command and returns its reply; None for text that is meant for the agent."""
        parsed = parse(text)
        if parsed is None:
            return None
        went: list[str] = []
        chat = ChatContext(
            key=SessionKey.parse(self.key),
            now=now_ms(),
            user=user_name(),
            account=ChatAccount(who=operator()),
            opening=self._opening,
            timezone=self.app.timezone,
            default_model=self.app.chosen.name,
            platform_title=title_of,
            of_source=Source.CLI,
            moved=went.append,
        )

        def run_command(conn: Connection) -> CommandReply:
            before = runs.active(conn, chat.session_key)
            text = execute(conn, chat, parsed)
            command = find(parsed.name)
            if command is not None and command.begins and parsed.argument:
                dedup_key = f"cli:{chat.session_key}:{secrets.token_hex(8)}"
                _say(conn, chat.opening, chat.session_key, dedup_key, parsed.argument)
            after = runs.active(conn, chat.session_key)
            same = before is not None and after is not None and before.id == after.id
            changed = after is not None and not (same and before and before.status is after.status)
            return CommandReply(
                text=text,
                works=after.id if after and changed and after.status is RunStatus.RUNNING else None,
                ended=before.id if before and not same else None,
            )

        reply = await self.app.database.write(run_command)
        if went and went[-1] != self.key:
            self.key = went[-1]
            self._moved(self.key)
        session = await self.session()
        self._session = session.id if session is not None else None
        return reply

    @property
    def _opening(self) -> runs.Opening:
        return self.app.resets.opening(self.key)

    async def stop(self) -> bool:
        active = await self.active()
        return active is not None and await self.app.database.write(runs.stop, active.id, now_ms())

    async def end(self) -> None:
        """Ends the session, unless a run works or waits in it."""

        def end(conn: Connection) -> None:
            lock(conn, self.key)
            session = store.active(conn, self.key)
            if session is not None and runs.active(conn, self.key) is None and not inbox.unread(conn, self.key):
                store.end(conn, session.id, EndReason.USER, now_ms())

        await self.app.database.write(end)

    # --- looking ---

    async def active(self) -> Run | None:
        return await self.app.database.read(runs.active, self.key)

    async def newest_run(self, since: int) -> Run | None:
        """Returns the run at work, or the newest one since this moment: another process may have begun and ended it between two looks."""
        return await self.app.database.read(runs.newest_since, self.key, since)

    async def session(self) -> Session | None:
        return await self.app.database.read(store.active, self.key)

    async def earlier(self) -> list[tuple[str, str]]:
        """Returns id and label of the sessions of the terminal that can be resumed, newest first."""

        def earlier(conn: Connection) -> list[tuple[str, str]]:
            found = store.recent(conn, source=Source.CLI, limit=100)
            others = [each for each in found if each.message_count and each.session_key != self.key]
            return [(session.id, store.label(conn, session)) for session in others]

        return await self.app.database.read(earlier)

    async def outcome(self, run_id: str) -> RunOutcome:
        """Returns how the run stands. Raises NotFound when its session was deleted."""

        def outcome(conn: Connection) -> RunOutcome:
            run = runs.get(conn, run_id)
            if run.status is RunStatus.WAITING:
                return RunOutcome(run=run, ask=asks.open_of(conn, run_id))
            is_done = run.status is RunStatus.COMPLETED
            said = call_state(conn, run_id, after_ask=_NO_MORE_ASKS).said if is_done else None
            return RunOutcome(run=run, answer=(said.content or "") if said else "")

        return await self.app.database.read(outcome)

    async def job_results(self, after: int) -> list[tuple[str, str, int]]:
        """Returns name, last words and end of the jobs that have run since then and are delivered to no chat."""
        return await self.app.database.read(jobs.local_results, SessionKey.parse(self.key).namespace, after)

    async def waits(self) -> str | None:
        """Returns a line about a question of an earlier session that waits for its answer; None: there is none."""

        def waiting(conn: Connection) -> str | None:
            for session in store.recent(conn, source=Source.CLI, limit=100):
                run = runs.active(conn, session.session_key)
                ask = asks.open_of(conn, run.id) if run is not None and session.ended_at is None else None
                if ask is not None:
                    return say("session.waits", title=store.label(conn, session), question=ask.question, id=session.id)
            return None

        return await self.app.database.read(waiting)

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncGenerator[RunChanges]:
        changes = RunChanges()
        unlisten = self.app.database.listen(changes.on_commit, *_OF_RUNS)
        try:
            yield changes
        finally:
            unlisten()

    def listen(self, listener: Callable[[LiveEvent], None]) -> Callable[[], None]:
        """Calls the listener with live events of this conversation's runs, as far as this process works on them. Returns a function that
        stops it.
        """

        def ours(moment: LiveEvent) -> None:
            if moment.run_id in self._runs:
                listener(moment)

        return self.app.live.listen("*", ours)

    async def finished(self, run_id: str) -> RunOutcome:
        """Waits until the run does not work any more."""
        async with self.changes() as changes:
            while (outcome := await self.outcome(run_id)).run.status is RunStatus.RUNNING:
                await changes.next()
            return outcome


@contextlib.asynccontextmanager
async def leaving(
    conversation: TerminalConversation, *, ends: bool = False, to_stderr: bool = False
) -> AsyncGenerator[None]:
    """Prints, when the block has ended, which session this was and how to come back. `ends`: the session ends, too."""
    try:
        yield
    finally:
        session = await conversation.session()
        if session is not None:
            click.echo(f"\nSession {session.id}\nResume  {program()} -r {session.id}", err=to_stderr)
            if ends:
                await conversation.end()


def _say(
    conn: Connection,
    opening: runs.Opening,
    key: str,
    dedup_key: str,
    text: str,
    mode: InboxMode = InboxMode.TAKE_IN,
    session: str | None = None,
) -> runs.Accepted:
    """`session`: the one that was talked in last. Another terminal may have ended it on leaving; here it goes on. After a reset it does not."""
    if session is not None and store.active(conn, key) is None and store.exists(conn, session):
        ended = store.get(conn, session)
        if ended.end_reason not in {EndReason.IDLE, EndReason.DAILY}:
            store.reopen(conn, ended, now_ms())
    row = InboxRow(dedup_key=dedup_key, session_key=key, messages=[Message(content=text)], mode=mode, who=operator())
    return runs.accept(conn, row, opening, now_ms(), by=user_name())


def failure_text(run: Run) -> str:
    """Returns the run's error in words, and that nothing is lost."""
    if not run.error:
        return say("run.failed")
    error = run.error.strip()
    return f"{error}{'' if error.endswith(('.', '!', '?', '…')) else '.'} {say('run.kept')}"
