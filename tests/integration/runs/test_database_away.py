"""A database that is away, or has no room, while runs work: they wait for it as long as it takes, and nothing is done twice."""

import asyncio
import subprocess
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
import structlog

from gateway.runs import worker
from sessions import runs
from sessions.db import engine
from sessions.records import RunStatus
from sessions.topics import Touch
from tests.conftest import PostgresServer
from tests.fakes.model_replies import Reply, call, calls
from tests.integration.runs.test_going_on import ToolGate
from tests.integration.runs.worker_in_process import WorkerHarness, polls_every, tool, worker_in_process

TRIES = 15
"""More than any fixed number of tries that somebody would think of."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PAUSES", ())
    monkeypatch.setattr(engine, "_LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.05)
    polls_every(monkeypatch, 0.05)


async def tried(logs: list[structlog.types.EventDict], times: int) -> None:
    async with asyncio.timeout(30):
        while sum(entry["event"] == "database.unavailable" for entry in logs) < times:
            await asyncio.sleep(0.01)


async def outage_at_the_end(it: WorkerHarness, gate: ToolGate, away: AbstractContextManager[None]) -> str:
    """Let the model answer while the database is away. Returns the id of the run."""
    run_id = (await it.accept("begin")).run_id
    assert run_id is not None
    await gate.reached.wait()
    with structlog.testing.capture_logs() as logs, away:
        gate.open.set()
        await tried(logs, TRIES)
    return run_id


async def test_a_paid_answer_waits_until_postgresql_is_back(
    home: Path, postgres_url: str, postgres_server: PostgresServer
):
    gate = ToolGate()
    async with worker_in_process(home, [Reply(text="paid for", before=gate)], url=postgres_url) as it:
        run_id = await outage_at_the_end(it, gate, postgres_server.away())
        assert (await it.settled(run_id)).status is RunStatus.COMPLETED
        assert await it.transcript() == [("user", "begin"), ("assistant", "paid for")]
        assert [body["text"] for body in await it.sent()] == ["paid for"]
        assert it.server.count == 1


async def test_the_read_before_a_step_waits_as_a_write_does(
    home: Path, postgres_url: str, postgres_server: PostgresServer
):
    used: list[str] = []

    async def order(*_: object) -> str:
        used.append("ordered")
        return "ordered"

    async with worker_in_process(
        home, [calls(call("order")), "done"], tools=[tool("order", order)], url=postgres_url
    ) as it:
        with structlog.testing.capture_logs() as logs, ExitStack() as away:
            gone = threading.Event()

            def stop_server(_: frozenset[Touch]) -> None:
                """In the thread that has just committed the result of the tool, before the run hears of it."""
                if used and not gone.is_set():
                    away.enter_context(postgres_server.away())
                    gone.set()

            it.database.listen(stop_server)
            run_id = (await it.accept("begin")).run_id
            await tried(logs, TRIES)
        assert (await it.settled(run_id)).status is RunStatus.COMPLETED
        assert (used, it.server.count) == (["ordered"], 2)


@contextmanager
def full(folder: Path) -> Generator[None]:
    """No block of the disk is free until the block is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4_096)
        except OSError:
            pass
    try:
        yield
    finally:
        ballast.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_a_paid_answer_waits_as_long_as_the_disk_is_full_and_nobody_hears_of_a_restart(small_disk: Path):
    gate = ToolGate()
    answer = " ".join(["paid for"] * 20_000)
    async with worker_in_process(small_disk, [Reply(text=answer, before=gate)]) as it:
        run_id = await outage_at_the_end(it, gate, full(small_disk))
        run = await it.settled(run_id)
        assert (run.status, run.fence, run.attempts) == (RunStatus.COMPLETED, 1, 0)
        assert (await it.transcript())[-1] == ("assistant", answer)
        assert [body["text"] for body in await it.sent()] == [answer]
        assert it.server.count == 1
        assert await it.database.read(runs.in_flight) == []
