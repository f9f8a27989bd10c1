"""One conversation from this terminal: what is typed goes in through the same door as everything else, and its run is watched."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from gateway.app import App
from gateway.commands import Chat, execute, parse
from gateway.runs.live import Moment
from sessions import asks, runs, store
from sessions.clock import now_ms
from sessions.db.engine import Touch
from sessions.inbox import NewInbox
from sessions.keys import SessionKey
from sessions.records import Ask, Role, Run, RunStatus, Session

LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run stands when it no longer works: its answer, a question to the human, or why it failed."""

    run: Run
    answer: str = ""
    ask: Ask | None = None


class Changes:
    """Tells when a run may stand differently. Commits of another process, which may work on the same session, are not heard:
    so it tells at least every second."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def hear(self, touched: frozenset[Touch]) -> None:
        if any(what in {"run", "inbox", "stopped"} for what, _ in touched):
            self._loop.call_soon_threadsafe(self._changed.set)

    async def next(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
        self._changed.clear()


class Conversation:
    def __init__(self, app: App, key: SessionKey) -> None:
        self.app = app
        self.key = str(key)

    # --- saying ---

    async def say(self, text: str) -> str:
        """Returns the id of the run that this message started, joined or answered."""
        new = NewInbox(
            dedup_key=f"cli:{self.key}:{secrets.token_hex(8)}", session_key=self.key, messages=[{"content": text}]
        )
        accepted = await self.app.database.write(runs.accept, new, runs.Opening(), now_ms())
        return accepted.run_id or ""

    async def command(self, text: str) -> str | None:
        """The house's answer; None for text that is meant for the agent."""
        parsed = parse(text)
        if parsed is None:
            return None
        chat = Chat(
            session_key=self.key,
            now=now_ms(),
            user="you",
            timezone=self.app.house.timezone,
            default_model=self.app.chosen.name,
        )
        return await self.app.database.write(execute, chat, parsed)

    async def stop(self) -> bool:
        active = await self.active()
        return active is not None and await self.app.database.write(runs.stop, active.id, now_ms())

    # --- looking ---

    async def active(self) -> Run | None:
        return await self.app.database.read(runs.active, self.key)

    async def session(self) -> Session | None:
        return await self.app.database.read(store.active, self.key)

    async def outcome(self, run_id: str) -> Outcome:
        run = await self.app.database.read(runs.get, run_id)
        if run.status is RunStatus.WAITING:
            return Outcome(run=run, ask=await self.app.database.read(asks.open_of, run_id))
        last = await self.app.database.read(store.last_messages, run.session_id, 1)
        answered = run.status is RunStatus.COMPLETED and bool(last) and last[0].role is Role.ASSISTANT
        return Outcome(run=run, answer=(last[0].content or "") if answered else "")

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncGenerator[Changes]:
        changes = Changes()
        unlisten = self.app.database.listen(changes.hear)
        try:
            yield changes
        finally:
            unlisten()

    def listen(self, listener: Callable[[Moment], None]) -> Callable[[], None]:
        return self.app.house.live.listen("*", listener)

    async def finished(self, run_id: str) -> Outcome:
        """Wait until the run does not work any more."""
        async with self.changes() as changes:
            while (outcome := await self.outcome(run_id)).run.status is RunStatus.RUNNING:
                await changes.next()
            return outcome
