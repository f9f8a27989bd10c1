"""A process that works on runs until it is killed: real model client, real worker, tools that leave a line for every execution."""

import asyncio
import contextlib
import os
import sys
import threading
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.tools import ask_human
from gateway.agent.tools.registry import Arguments, Tool, Toolbox, ToolContext
from gateway.dispatch import open_dispatch
from gateway.dispatch.procrastinate import ProcrastinateDispatch
from gateway.maintenance import Maintenance
from gateway.observe import logging
from gateway.runs.worker import Worker
from sessions import lease_owners, runs, wakeups
from sessions.db import bus, open_database
from sessions.keys import Address, ChatKind, Platform
from sessions.records import InboxRow, Message, Route
from sessions.runs import Opening
from tests.app import give_tools, make_app

Input = tuple[str, str, str]
"""Dedup key, session key, text."""


class NoArguments(Arguments):
    pass


def leave_line(place: ToolContext, name: str) -> None:
    line = f"{name} {place.idem_key}\n".encode()
    file = os.open(place.workspace.parent.parent / "executed", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line)
    os.close(file)


async def note_down(place: ToolContext, _: NoArguments) -> str:
    """Harmless when repeated."""
    leave_line(place, "note_down")
    await asyncio.sleep(0.01)
    return "noted"


async def pay(place: ToolContext, _: NoArguments) -> str:
    """Never to be repeated."""
    await asyncio.sleep(0.015)
    leave_line(place, "pay")
    await asyncio.sleep(0.015)
    return "paid"


async def peek(place: ToolContext, _: NoArguments) -> str:
    """Only looks."""
    await asyncio.sleep(0.002)
    return "seen"


TOOLS = Toolbox(
    {
        "note_down": Tool(name="note_down", arguments=NoArguments, function=note_down, idempotent=True),
        "pay": Tool(name="pay", arguments=NoArguments, function=pay),
        "peek": Tool(name="peek", arguments=NoArguments, function=peek, idempotent=True, reads_only=True),
        "ask_human": ask_human.TOOL,
    }
)


def route_of(session_key: str) -> Route:
    chat = session_key.rpartition(":")[2]
    return Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id=chat))


def live(home: Path, model_url: str, pipe: Pipe, database_url: str) -> None:
    """Take inputs from the pipe and acknowledge each after its commit; `None` asks to finish everything and leave. On PostgreSQL a process counts
    as dead after half a second without a sign of life, so that the next one goes on before it is killed, too.
    """
    logging.configure("error")
    if database_url:
        for module in (lease_owners, wakeups, bus):
            module.STALLED_SECONDS = 0.5
        bus.BEAT_SECONDS, bus.STEADY_SECONDS, ProcrastinateDispatch.poll_seconds = 0.1, 0.3, 0.1
    asyncio.run(_live(home, model_url, pipe, database_url))


async def _live(home: Path, model_url: str, pipe: Pipe, database_url: str) -> None:
    runs.MAX_TAKEOVERS = 1_000  # it is killed far more often than anything could make progress
    database = open_database(home, database_url)
    model = OpenAIModel(ModelSettings(base_url=model_url, name="fake-model", api_key="sk-fake"))
    app = make_app(home, database, model, clock=database.clock)
    give_tools(app, TOOLS.tools)
    upkeep = Maintenance(app)
    await upkeep.repair()
    app.dispatch = await open_dispatch(app)
    worker = Worker(app)
    tasks = [asyncio.create_task(worker.run()), asyncio.create_task(upkeep.run())]
    inputs: asyncio.Queue[Input | None] = asyncio.Queue()
    threading.Thread(target=_listen, args=(pipe, inputs, asyncio.get_running_loop()), daemon=True).start()
    pipe.send("ready")
    while (said := await inputs.get()) is not None:
        dedup_key, session_key, text = said
        new = InboxRow(
            dedup_key=dedup_key,
            session_key=session_key,
            messages=[Message(content=text)],
            route=route_of(session_key),
        )
        await database.write(runs.accept, new, Opening(), app.clock())
        pipe.send(dedup_key)
    while await database.read(runs.in_flight):
        await asyncio.sleep(0.02)
    await worker.drain()
    tasks[1].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)
    await upkeep.close()
    await model.aclose()
    database.close()
    pipe.send("done")


def _listen(pipe: Pipe, inputs: "asyncio.Queue[Input | None]", loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            said = pipe.recv()
            loop.call_soon_threadsafe(inputs.put_nowait, said)
            if said is None:
                return


if __name__ == "__main__":
    sys.exit("started by the tests")
