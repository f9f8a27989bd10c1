"""A process that writes as fast as it can is killed, again and again: what it had acknowledged is there, and all is whole."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, text

from sessions.db import open_database
from sessions.db.schema import messages
from sessions.search import message_index
from sessions.transcripts import Transcripts

PROGRAM = [sys.executable, "-m", "tests.integration.sessions.crowd"]
ROOT = Path(__file__).parents[3]


def crash(home: Path, after_lines: int) -> set[int]:
    """Kill it in the middle; the ids that it had acknowledged."""
    with subprocess.Popen([*PROGRAM, "for-ever", str(home)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after_lines)]
        process.kill()
        lines += process.stdout.readlines()
    return {int(line) for line in lines if line.endswith("\n")}


def check(home: Path, acknowledged: set[int]) -> None:
    database = open_database(home)
    transcripts = Transcripts(home, database)
    transcripts.repair()
    while database.write_now(message_index.index_some):
        pass
    rows = database.read_now(_rows)
    assert acknowledged <= rows.keys()
    mirrored: dict[int, str] = {}
    for file in (home / "sessions").glob("*.jsonl"):
        ids = [json.loads(line)["id"] for line in file.read_text().splitlines()]
        assert ids == sorted(ids)
        mirrored |= dict.fromkeys(ids, file.stem)
    assert mirrored == rows
    database.write_now(_intact)
    transcripts.close()
    database.close()


def _rows(conn: Connection) -> dict[int, str]:
    return {row.id: row.session_id for row in conn.execute(select(messages.c.id, messages.c.session_id))}


def _intact(conn: Connection) -> None:
    assert conn.execute(text("PRAGMA integrity_check")).scalar() == "ok"
    for table in ("messages_fts", "messages_scoped", "messages_words"):
        conn.exec_driver_sql(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
    indexed = conn.execute(text("SELECT count(*) FROM sessions WHERE indexed_to < settled_to")).scalar()
    assert indexed == 0


def _crash_often(home: Path, times: int, every: int) -> None:
    rng = random.Random(times)
    acknowledged: set[int] = set()
    for number in range(1, times + 1):
        acknowledged |= crash(home, rng.randrange(1, 250))
        if number % every == 0:
            check(home, acknowledged)


def test_nothing_acknowledged_is_missing_after_kill_9(home: Path) -> None:
    _crash_often(home, 8, every=4)


@pytest.mark.chaos
def test_nothing_acknowledged_is_missing_after_hundreds_of_kills(home: Path) -> None:
    _crash_often(home, 400, every=10)


def test_ten_processes_in_one_home(home: Path) -> None:
    crowd = [
        subprocess.Popen(
            [*PROGRAM, "share", str(home), str(number), "120"], stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        for number in range(10)
    ]
    errors = [process.communicate()[1] for process in crowd]
    assert [(process.returncode, error) for process, error in zip(crowd, errors, strict=True)] == [(0, "")] * 10
    database = open_database(home)
    assert database.read_now(lambda conn: len(_rows(conn))) == 1_200
    database.close()
