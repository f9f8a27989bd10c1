"""A tick over 100,000 open sessions of which 100 are due, and one over 10,000 jobs of which 100 are due."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sqlalchemy import Connection, insert, select, update

from bench.table import ResultTable
from gateway.observe import logging
from gateway.scheduler.jobs import Jobs
from gateway.scheduler.resets import Resets
from sessions import jobs
from sessions.db import Database, open_database
from sessions.db.schema import messages, sessions
from sessions.policy import ResetMode, ResetPolicy, ResetRules
from sessions.resets import ResetPolicies
from tests.app import make_app

SESSIONS, DUE, JOBS = 100_000, 100, 10_000
HOUR = 3_600_000


def fill(conn: Connection, now: int) -> None:
    rows = [
        {
            "id": f"20250101_000000_{number:08x}",
            "session_key": f"agent:main:telegram:dm:{number}",
            "source": "telegram",
            "agent": "main",
            "ns": f"agent:main:telegram:dm:{number}",
            "started_at": now - 3 * HOUR,
            "last_user_at": now - HOUR // 2,
        }
        for number in range(SESSIONS)
    ]
    conn.execute(insert(sessions), rows)
    said = [
        {"session_id": row["id"], "role": "user", "content": "hello", "created_at": row["last_user_at"]} for row in rows
    ]
    conn.execute(insert(messages), said)


def make_jobs(conn: Connection, now: int) -> None:
    for number in range(JOBS):
        schedule = "every 30m" if number % (JOBS // DUE) == 0 else "0 9 * * 1"
        made = {"name": f"job {number}", "prompt": "do it", "timezone": "UTC", "now": now}
        jobs.create(conn, jobs.new_job(schedule=schedule, **made))


async def timed(tick: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await tick()
    return (time.perf_counter() - began) * 1_000


async def measure(database: Database, now: int) -> list[tuple[str, float, str]]:
    clock = [now]
    app = make_app(Path(), database, clock=lambda: clock[0])
    app.resets = ResetPolicies(ResetRules(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60)))
    resets, ticker = Resets(app), Jobs(app)
    quiet = "resets: nothing is due", min([await timed(resets.tick) for _ in range(5)][1:]), ""
    await ticker.tick()
    rest = "jobs: nothing is due", min([await timed(ticker.tick) for _ in range(5)]), ""
    clock[0] += HOUR
    database.write_now(speak, clock[0])  # all but a hundred have said something meanwhile
    await asyncio.to_thread(database.checkpoint)  # that was a hundred thousand changes in one go
    due = f"resets: {DUE} are due", await timed(resets.tick), "20 ms"
    fire = f"jobs: {DUE} are due", await timed(ticker.tick), ""
    return [quiet, due, rest, fire]


def speak(conn: Connection, now: int) -> None:
    silent = sessions.c.id.in_(select(sessions.c.id).order_by(sessions.c.id).limit(DUE))
    conn.execute(update(sessions).where(~silent).values(last_user_at=now))


def main() -> None:
    logging.configure("error")
    now = 1_750_000_000_000
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(Path(folder))
        database.write_now(fill, now)
        database.write_now(make_jobs, now)
        table = ResultTable(f"time: one tick, {SESSIONS:,} open sessions, {JOBS:,} jobs")
        for name, value, aim in asyncio.run(measure(database, now)):
            table.row(name, f"{value:.1f} ms", "", None, aim)
        database.close()
    print(table)


if __name__ == "__main__":
    main()
