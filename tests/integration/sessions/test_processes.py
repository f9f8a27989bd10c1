"""Several processes on one home, and processes that are killed: nothing that was acknowledged is lost, and all is whole again."""

import contextlib
import json
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from sessions import store
from sessions.db import Database, open_database
from sessions.transcripts import Transcripts, as_line, transcript_path
from tests.integration.sessions.writing import index_all

ROOT = Path(__file__).parents[3]
FTS = ("messages_fts", "messages_near", "messages_words")


def start(home: Path, name: str, count: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integration.sessions.busy_writer", str(home), name, str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen[str], seconds: float) -> list[str]:
    """What it had acknowledged when it died. The moment counts from its first commit."""
    assert process.stdout
    first = process.stdout.readline()
    assert first, process.stderr.read() if process.stderr else ""
    time.sleep(seconds)
    process.kill()
    rest, _ = process.communicate(timeout=20)
    return [line for line in (first + rest).split("\n")[:-1] if line]


def stored(database: Database) -> dict[str, list[str]]:
    """Session → first words of its messages."""

    def read(conn: Connection) -> dict[str, list[str]]:
        found = store.recent(conn, limit=None)
        return {s.id: [(m.content or "").split()[0] for m in store.read_messages(conn, s.id)] for s in found}

    return database.read_now(read)


def check_index(conn: Connection) -> None:
    for table in FTS:
        conn.execute(text(f"INSERT INTO {table}({table}) VALUES ('integrity-check')"))


def assert_whole(home: Path, acknowledged: set[str]) -> None:
    """As the next start finds it."""
    with contextlib.closing(sqlite3.connect(home / "state.db")) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database = open_database(home)
    transcripts = Transcripts(home, database)
    transcripts.repair()
    kept = stored(database)
    words = [word for some in kept.values() for word in some]
    assert acknowledged <= set(words)
    assert len(words) == len(set(words))
    for session_id in kept:
        lines = transcript_path(home, session_id).read_text("utf-8").splitlines()
        wanted = [
            json.dumps(as_line(m), ensure_ascii=False) for m in database.read_now(store.read_messages, session_id)
        ]
        assert lines == wanted
    index_all(database)
    database.write_now(check_index)
    indexed = database.read_now(
        lambda conn: conn.exec_driver_sql(
            "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'deploy'"
        ).scalar()
    )
    assert indexed == len(words)
    transcripts.close()
    database.close()


def kill_many(home: Path, times: int, seed: int, longest: float) -> None:
    rng = random.Random(seed)
    acknowledged: set[str] = set()
    for _ in range(times):
        processes = [start(home, name) for name in ("ann", "bob")]
        for process in processes:
            acknowledged |= set(kill_after(process, rng.uniform(0, longest)))
    assert len(acknowledged) > times
    assert_whole(home, acknowledged)


def test_processes_that_are_killed_lose_nothing_that_they_acknowledged(home: Path) -> None:
    kill_many(home, times=13, seed=random.randrange(10**6), longest=0.06)


@pytest.mark.chaos
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", range(10))
def test_the_same_hundreds_of_times(home: Path, seed: int) -> None:
    kill_many(home, times=20, seed=seed, longest=0.6)


def test_ten_processes_write_and_search_one_home(home: Path) -> None:
    processes = [start(home, f"p{number}", 120) for number in range(10)]
    acknowledged: set[str] = set()
    for process in processes:
        out, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors
        assert errors == ""
        acknowledged |= set(out.split())
    assert len(acknowledged) == 1_200
    assert_whole(home, acknowledged)
