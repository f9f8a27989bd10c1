"""A daemon that is killed with -9 before, during and after a farewell: it is given once, and the conversation is reset once."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.e2e.telegram.daemon import process
from tests.e2e.telegram.test_resets import IDLE, NOTE, ResetAgent
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer

TWO_HOURS = 2 * 3_600_000


def rows(home: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(home / "state.db", timeout=30)) as conn:
        return conn.execute(query).fetchall()


def two_hours_pass(home: Path) -> None:
    """Everything that was said lies so much further back."""
    with closing(sqlite3.connect(home / "state.db", timeout=30)) as conn, conn:
        for table, column in (("sessions", "last_user_at"), ("sessions", "started_at"), ("messages", "created_at")):
            conn.execute(f"UPDATE {table} SET {column} = {column} - {TWO_HOURS}")


async def until_ended(home: Path) -> None:
    async with asyncio.timeout(60):
        while not rows(home, "SELECT id FROM sessions WHERE end_reason = 'idle'"):
            await asyncio.sleep(0.05)


async def test_a_farewell_is_given_once_whenever_the_daemon_is_killed(home: Path) -> None:
    agent = ResetAgent()
    async with TelegramServer() as server, ModelServer(agent) as model:
        sections = {"model": {"base_url": model.url, "name": "big", "api_key": "k"}, **IDLE}
        ann = server.user(7, "Ann")
        dm = server.dm(ann)

        async def start() -> asyncio.subprocess.Process:
            return await process(home, server, sections=sections)

        async def kill(daemon: asyncio.subprocess.Process) -> None:
            daemon.kill()
            await daemon.wait()

        daemon = await start()
        server.user_says(dm, ann, "I move to Oslo in May")
        await server.answered(dm.id, timeout=60)
        await server.until(lambda: rows(home, "SELECT state FROM outbox") == [("sent",)], timeout=60)
        await kill(daemon)
        two_hours_pass(home)

        agent.hold = asyncio.Event()
        daemon = await start()  # it was due before
        await server.until(lambda: agent.farewells, timeout=60)
        await kill(daemon)  # while the model was asked

        agent.hold.set()
        daemon = await start()
        await until_ended(home)
        await kill(daemon)  # after it

        daemon = await start()
        calls = len(agent.farewells)
        server.user_says(dm, ann, "hello")
        answer = (await server.answered(dm.id, 2, timeout=60))[-1]
        await kill(daemon)
    assert "I kept 1 note." in answer
    assert NOTE in agent.prompts[-1][0]["content"]
    assert calls == len(agent.farewells) == 3  # the call that was cut off, once more, and the one after the note
    assert rows(home, "SELECT count(*) FROM runs WHERE kind = 'farewell'") == [(1,)]
    assert rows(home, "SELECT count(*) FROM observations") == [(1,)]
    assert rows(home, "SELECT count(*) FROM sessions WHERE end_reason = 'idle'") == [(1,)]
    assert server.violations == []
