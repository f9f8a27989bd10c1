"""A worker on a real database and the real model client, in this process; the model is the scripted server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, text

from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.retry import RetryPolicy
from gateway.agent.tools import ask_human
from gateway.agent.tools.registry import Arguments, Tool
from gateway.commands import ChatContext, execute, parse
from gateway.context import App
from gateway.dispatch import open_dispatch
from gateway.dispatch.fair_queue import FairPlaces
from gateway.dispatch.local import LocalDispatch
from gateway.dispatch.procrastinate import ProcrastinateDispatch
from gateway.runs.worker import Worker
from sessions import asks, runs, store
from sessions.clock import Clock, now_ms
from sessions.db import Database, open_database
from sessions.db.schema import inbox, outbox
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.records import Ask, InboxMode, InboxRow, Message, OutState, Role, Route, Run, RunStatus
from sessions.runs import Accepted, Opening
from sessions.topics import Touch
from tests.app import give_tools, make_app
from tests.fakes.model_server import ModelServer, Script

KEY = "agent:main:telegram:dm"
DM = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7"))
GROUP = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id="-9"))
_numbers = count()


class Plain(Arguments):
    text: str = ""


@dataclass
class WorkerHarness:
    """`say` puts a message in, `settled` waits until its run no longer works."""

    database: Database
    server: ModelServer
    app: App
    tools: dict[str, Tool]
    worker: Worker | None = None

    def now(self) -> int:
        return self.app.clock()

    async def passes(self, clock: Any, ms: int) -> None:
        """Time goes on, and what waited for it is found."""
        clock.tick(ms)
        await self.app.dispatch.poll()

    async def accept(self, text: str, *, key: str = KEY, route: Route | None = DM, **more: Any) -> Accepted:
        message = Message(content=text, **more.pop("message", {}))
        new = InboxRow(dedup_key=f"d{next(_numbers)}", session_key=key, messages=[message], route=route, **more)
        return await self.database.write(runs.accept, new, Opening(), self.now())

    async def say(self, text: str, **more: Any) -> Run:
        accepted = await self.accept(text, **more)
        return await self.settled(accepted.run_id)

    async def settled(self, run_id: str | None = None, *, key: str = KEY) -> Run:
        """Of this run, or of whatever the key's newest session is about."""
        async with asyncio.timeout(30), self._changes() as changed:
            while (run := await self._run(run_id, key)) is None or run.status is RunStatus.RUNNING:
                await changed.wait()
                changed.clear()
        return run

    async def _run(self, run_id: str | None, key: str) -> Run | None:
        if run_id is None:
            return await self.database.read(runs.active, key)
        return await self.database.read(runs.get, run_id)

    @asynccontextmanager
    async def _changes(self) -> AsyncIterator[asyncio.Event]:
        changed, loop = asyncio.Event(), asyncio.get_running_loop()

        def on_commit(_: frozenset[Touch]) -> None:
            loop.call_soon_threadsafe(changed.set)

        unlisten = self.database.listen(on_commit)
        try:
            yield changed
        finally:
            unlisten()

    async def command(self, text: str, *, key: str = KEY, route: Route | None = DM) -> str:
        parsed = parse(text)
        assert parsed is not None
        chat = ChatContext(
            key=SessionKey.parse(key), now=self.now(), user="Ann", route=route, default_model="fake-model"
        )
        return await self.database.write(execute, chat, parsed)

    async def messages(self, key: str = KEY) -> list[Message]:
        return await self.database.read(_messages, key)

    async def transcript(self, key: str = KEY) -> list[tuple[str, str]]:
        return [(str(m.role), m.content or "") for m in await self.messages(key)]

    async def sent(self) -> list[dict[str, Any]]:
        return await self.database.read(_sent)

    async def arrive(self) -> None:
        """Everything that was to be sent has arrived in the chats."""
        names = {"state": OutState.SENT, "platform_ids": '["55"]'}
        await self.database.write(lambda conn: conn.execute(outbox.update().values(names)) and None)

    async def outcomes(self) -> list[str | None]:
        return await self.database.read(lambda conn: [row.outcome for row in conn.execute(select(inbox))])

    async def ask(self, run_id: str) -> Ask | None:
        return await self.database.read(asks.open_of, run_id)


def _messages(conn: Connection, key: str) -> list[Message]:
    session = store.active(conn, key)
    return store.read_messages(conn, session.id) if session else []


def _sent(conn: Connection) -> list[dict[str, Any]]:
    import json

    return [json.loads(row.body) for row in conn.execute(select(outbox).order_by(outbox.c.id))]


async def _patient(_: float) -> None:
    await asyncio.sleep(0)


def tool(name: str, function: Callable[..., Any], **fields: Any) -> Tool:
    return Tool(name=name, arguments=Plain, function=function, **fields)


@asynccontextmanager
async def worker_in_process(
    home: Path,
    script: Script = (),
    *,
    tools: Sequence[Tool] = (),
    limits: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    working: bool = True,
    url: str = "",
    clock: Clock = now_ms,
    **server: Any,
) -> AsyncIterator[WorkerHarness]:
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(ModelServer(script, **server))
        database = open_database(home, url)
        stack.callback(database.close)
        chosen = {"base_url": fake.url, "name": "fake-model", "api_key": "sk-fake-key-1234567890", **(settings or {})}
        model = OpenAIModel(ModelSettings(**chosen), retry_policy=RetryPolicy(sleep=_patient, jitter=lambda: 0.0))
        stack.push_async_callback(model.aclose)
        known = {each.name: each for each in (*tools, ask_human.TOOL)}
        app = make_app(
            home, database, model, clock=clock, sections={"limits": limits or {}, "model": {"max_output_tokens": 1_000}}
        )
        give_tools(app, known)
        made = WorkerHarness(database=database, server=fake, app=app, tools=known)
        if working:
            await stack.enter_async_context(at_work(made))
        yield made


@asynccontextmanager
async def at_work(harness: WorkerHarness) -> AsyncIterator[Worker]:
    """Leaving drains, as SIGTERM does."""
    harness.app.places = FairPlaces(harness.app.places.total)  # a new process has all of them
    dispatch = harness.app.dispatch = await open_dispatch(harness.app)
    harness.worker = worker = Worker(harness.app)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.drain()
        await task
        await dispatch.close()


@asynccontextmanager
async def crashing(harness: WorkerHarness) -> AsyncIterator[Worker]:
    """Leaving ends the worker where it stands, with its leases, like a crash; the next one is of the same process. On PostgreSQL its last sign of
    life is long ago then, and nobody has told the others that it ended.
    """
    harness.app.places = FairPlaces(harness.app.places.total)  # a new process has all of them
    dispatch = harness.app.dispatch = await open_dispatch(harness.app)
    worker = Worker(harness.app)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if isinstance(dispatch, ProcrastinateDispatch):
            await harness.database.write(stop_heart, harness.app)
            if (bus := harness.database.bus) is not None:
                bus.steady_since = 0.0  # whoever comes next has been there for long, and knows who is stalled
            dispatch.stop_listening()
        else:
            await dispatch.close()


def polls_every(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """How often a worker looks for what no commit here has told of."""
    for dispatch in (LocalDispatch, ProcrastinateDispatch):
        monkeypatch.setattr(dispatch, "poll_seconds", seconds)


def stop_heart(conn: Connection, app: App) -> None:
    """This worker of a PostgreSQL has given no sign of life for seven seconds, and gives none."""
    bus, dispatch = app.database.bus, app.dispatch
    assert bus is not None
    assert isinstance(dispatch, ProcrastinateDispatch)
    bus.workers.discard(dispatch.worker)
    stopped = text("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '7 seconds' WHERE id = :id")
    conn.execute(stopped, {"id": dispatch.worker})


def of_role(messages: Sequence[Message], role: Role) -> list[str]:
    return [message.content or "" for message in messages if message.role is role]


def queued(**more: Any) -> dict[str, Any]:
    return {"mode": InboxMode.QUEUE, **more}
