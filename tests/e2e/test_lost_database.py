"""A daemon whose database was put aside, or is damaged: it does not start, says why, and leaves everything where it is."""

import subprocess
from pathlib import Path

from sessions.db import open_database
from sessions.transcripts import Transcripts
from tests.conftest import PostgresServer
from tests.e2e.test_daemon import HERMES, configure, environ
from tests.e2e.test_daemon import start as start_daemon
from tests.integration.sessions.writing import conversation


def used(home: Path) -> list[Path]:
    """Returns the transcripts."""
    database = open_database(home)
    transcripts = Transcripts(home, database)
    for number in range(3):
        conversation(database, f"agent:main:telegram:group:{number}", *["words of people " * 20] * 50)
    transcripts.close()
    database.close()
    return sorted((home / "sessions").glob("*.jsonl"))


def start(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    configure(home)
    return subprocess.run(
        [HERMES, *arguments], env=environ(home), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_a_database_that_was_put_aside_is_asked_for_and_no_transcript_goes(home: Path) -> None:
    transcripts = used(home)
    (home / "state.db").rename(home / "state.db.damaged")
    for command in (["gateway", "run"], ["chat", "-q", "hello"]):
        refused = start(home, *command)
        assert refused.returncode == 1
        assert "was put aside" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert sorted((home / "sessions").glob("*.jsonl")) == transcripts
    (home / "sessions").rename(home / "sessions.before")
    assert start(home, "chat", "-q", "hello").returncode == 0


def test_damage_is_told_at_the_start_after_a_kill(home: Path) -> None:
    used(home)
    (home / "gateway.pid").write_text("123\n")  # a daemon that was killed leaves it
    with (home / "state.db").open("r+b") as file:
        file.seek(-6 * 4_096, 2)
        file.write(b"\xff" * 4_096)
    refused = start(home, "gateway", "run")
    assert refused.returncode == 1
    assert "state.db is damaged" in refused.stderr


async def test_a_start_waits_for_a_server_that_is_away(home: Path, postgres_url: str, postgres_server: PostgresServer):
    configure(home, database={"url": postgres_url})
    with postgres_server.away():
        daemon = await start_daemon(home)
        assert "starts by itself" in await daemon.says("database.unavailable")
    await daemon.says("daemon.started")
    daemon.process.terminate()
    assert await daemon.ends() == 0
