"""A process that acts is killed, again and again: no act is without its row in the audit, and no row without its act."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select

from sessions import audit, jobs, memory
from sessions.db import open_database, schema
from sessions.keys import OWNER_NAMESPACE
from sessions.sign_ins import SignInKind

ROOT = Path(__file__).parents[3]


def killed(home: Path, after: float) -> None:
    program = [sys.executable, "-m", "tests.integration.sessions.acting", str(home)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is at work
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
        else:
            raise AssertionError("it has ended by itself")


def _count(conn: Connection, table: str, *where: object) -> int:
    return conn.scalar(select(func.count()).select_from(schema.metadata.tables[table]).where(*where)) or 0  # type: ignore[arg-type]


def check(conn: Connection) -> int:
    rows = audit.listing(conn, limit=1_000_000)
    told = Counter(row.action for row in rows)
    left = jobs.listing(conn)
    assert told["job.created"] - told["job.deleted"] == len(left)
    paused = {row.about for row in rows if row.action == "job.paused"}
    assert {f"job:{job.id}" for job in left if not job.enabled} == paused & {f"job:{job.id}" for job in left}
    assert told["person.let_in"] - told["person.revoked"] == _count(conn, "people")
    assert told["dashboard.signed_in"] == _count(conn, "sign_ins", schema.sign_ins.c.kind == SignInKind.COOKIE)
    # They are made together.
    assert told["job.created"] - told["note.forgotten"] == len(memory.open_notes(conn, OWNER_NAMESPACE))
    gone = {row.about.removeprefix("session:") for row in rows if row.action == "session.deleted"}
    assert not gone & set(conn.scalars(select(schema.sessions.c.id)))
    return len(rows)


def _kill_often(home: Path, times: int) -> None:
    chance = random.Random(times)
    for _ in range(times):
        killed(home, chance.uniform(0, 0.3))
        database = open_database(home)
        rows = database.read_now(check)
        database.close()
    assert rows > times * 7


def test_no_act_is_without_its_row(home: Path) -> None:
    _kill_often(home, 3)


@pytest.mark.chaos
def test_no_act_is_without_its_row_after_a_hundred_kills(home: Path) -> None:
    _kill_often(home, 100)


def test_what_each_machine_has_for_itself_is_no_change_after_a_move(home: Path) -> None:
    database = open_database(home)
    for marks, ignored in (
        ({"api.port": "a", "model.name": "a"}, ()),
        ({"model.name": "a"}, ("api.port",)),
        ({"model.name": "b"}, ("api.port",)),
    ):
        database.write_now(audit.record_configuration, marks, 1, ignored=ignored)
    assert [row.about for row in database.read_now(audit.listing)] == ["model.name"]
    database.close()
