"""Three gateways of a team on one PostgreSQL, as processes: the one that is connected is killed, stands still and goes on, and is drained."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import Connection, select

from sessions.db import Database, open_database
from sessions.db.schema import leases, outbox, workers
from tests.e2e.telegram.daemon import of_a_team, process
from tests.fakes.model_replies import Reply
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer

TAKEOVER_SECONDS = 10.0
"""For whoever waits: 8 s until the lease of a dead process is free, and the answer itself."""


def holder(conn: Connection) -> int | None:
    """The process that is connected with Telegram."""
    query = select(workers.c.pid).join(leases, leases.c.owner == workers.c.owner)
    return conn.scalar(query.where(leases.c.name == "platform:telegram"))


def ready(conn: Connection) -> int:
    return len(conn.execute(select(workers.c.name).where(workers.c.report.contains('"telegram"'))).all())


async def until(database: Database, read: Any, wanted: Any) -> Any:
    async with asyncio.timeout(60):
        while not wanted(found := await database.read(read)):
            await asyncio.sleep(0.05)
    return found


def ports_of(pid: int) -> set[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return {each.laddr.port for each in psutil.Process(pid).net_connections("tcp") if each.laddr}
    return set()


@pytest.mark.chaos
async def test_the_connected_one_is_killed_stands_still_and_is_drained(
    home: Path, postgres_url: str, record_property
) -> None:
    database = open_database(home, postgres_url)
    took: dict[str, float] = {}
    asked = 0

    def script(call: Any) -> Any:
        nonlocal asked
        asked += 1
        text = call["messages"][-1]["content"].rpartition("\n")[2]
        return Reply(text=f"answer to {text}", before=None if "slow" not in text else lambda: asyncio.sleep(1.5))

    async with TelegramServer() as server, ModelServer(script) as model:
        ann = server.user(7, "Ann")
        dm = server.dm(ann)
        sections = of_a_team(model, postgres_url)
        daemons: dict[int, asyncio.subprocess.Process] = {}
        for name in "abc":
            (home / name).mkdir()
            started = await process(home / name, server, sections=sections)
            daemons[started.pid] = started
        try:
            await until(database, ready, lambda count: count == 3)
            said: list[str] = []

            async def answered(text: str) -> float:
                said.append(text)
                began = time.monotonic()
                server.user_says(dm, ann, text)
                await server.answered(dm.id, len(said), timeout=40)
                return time.monotonic() - began

            await answered("hello")
            first = await until(database, holder, lambda pid: pid in daemons)

            asyncio.get_running_loop().call_later(0.7, os.kill, first, signal.SIGKILL)  # in the middle of the run
            took["kill -9"] = await answered("slow one")
            await daemons.pop(first).wait()
            second = await until(database, holder, lambda pid: pid in daemons)

            ports = ports_of(second)
            os.kill(second, signal.SIGSTOP)
            took["SIGSTOP"] = await answered("while it stands still")
            third = await until(database, holder, lambda pid: pid in daemons and pid != second)
            polls = len(server.polled_from)
            os.kill(second, signal.SIGCONT)
            await asyncio.sleep(3)
            took["beside a zombie"] = await answered("and it goes on")
            late = [peer for peer in server.polled_from[polls:] if peer[1] in ports | ports_of(second)]
            assert late == [], "the zombie has polled again"

            daemons[third].terminate()
            took["drain"] = await answered("while it is drained")
            await daemons.pop(third).wait()
            assert await until(database, holder, lambda pid: pid in daemons) == second
            await until(database, _open, lambda count: count == 0)
        finally:
            for each in daemons.values():
                with contextlib.suppress(ProcessLookupError):
                    each.kill()
                await each.wait()
            database.close()
        assert server.answers(dm.id) == [f"answer to {text}" for text in said]
        assert server.violations == []
    record_property("took", {name: round(seconds, 1) for name, seconds in took.items()})
    assert max(took["kill -9"], took["SIGSTOP"]) < TAKEOVER_SECONDS, took
    assert took["drain"] < 5, took


def _open(conn: Connection) -> int:
    return len(conn.execute(select(outbox.c.id).where(outbox.c.state.not_in(("sent", "dead")))).all())
