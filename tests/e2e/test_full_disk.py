"""A daemon whose disk is full says so in its log, once, and on /readyz; with room again it goes on by itself."""

import asyncio
import contextlib
import subprocess
from collections.abc import Generator
from pathlib import Path

import aiohttp
import pytest
import structlog

from gateway.observe import health
from gateway.observe.health import DatabaseWatch
from sessions.db import Database, open_database, probe
from sessions.errors import DatabaseUnavailable
from tests.e2e.telegram.daemon import daemon
from tests.e2e.test_daemon import configure, start
from tests.fakes.telegram_server import TelegramServer
from tests.integration.runs.test_database_away import full


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def fill_up(database: Database) -> None:
    """Write until it is refused: the log has room for a while on a disk that is full."""
    while database.failure is None:
        with contextlib.suppress(DatabaseUnavailable):
            await database.write(probe)


async def test_a_full_disk_is_told_in_the_log_and_on_readyz(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.05)
    async with TelegramServer() as server, daemon(small_disk, server) as (app, served), aiohttp.ClientSession() as http:
        await server.until(lambda: served.chats.running["telegram"].health.was_up)

        async def ready() -> tuple[int, str, dict[str, str]]:
            async with http.get(f"{served.url}/readyz") as answer:
                body = await answer.json()
                return answer.status, body["status"], body["parts"]["database"]

        assert (await ready())[:2] == (200, "ready")
        with structlog.testing.capture_logs() as logs:
            with full(small_disk):
                async with asyncio.timeout(30):
                    while (seen := await ready())[2][
                        "state"
                    ] == "available":  # a small write may have found room after all
                        await fill_up(app.database)
                assert seen[:2] == (200, "degraded")
                assert "is full" in seen[2]["words"]
            await server.until(lambda: app.database.failure is None)
            assert (await ready())[2]["state"] == "available"
        told = [(entry["event"], entry["log_level"]) for entry in logs if entry["event"].startswith("database.")]
        assert [each for each in told if each[0] != "database.still_unavailable"] == [
            ("database.unavailable", "error"),
            ("database.available", "warning"),
        ]


def test_nothing_is_told_as_long_as_all_is_well(home: Path) -> None:
    database = open_database(home)
    watch = DatabaseWatch(database)
    database.write_now(probe)
    with structlog.testing.capture_logs() as logs:
        assert watch.part()["state"] == "available"
    assert logs == []
    database.close()


@pytest.mark.parametrize("has_room_again", [True, False])
async def test_a_start_waits_for_room_on_the_disk(small_disk: Path, has_room_again: bool):
    configure(small_disk)
    with full(small_disk):
        process = await start(small_disk)
        await process.says("database.unavailable")
        if not has_room_again:
            process.process.terminate()
            assert await process.ends() == 0
            return
    await process.says("daemon.started")
    process.process.terminate()
    assert await process.ends() == 0
