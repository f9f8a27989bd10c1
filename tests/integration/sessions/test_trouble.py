"""Disks that are full, files that are damaged or not ours, folders that cannot be written: nothing is harmed, and a sentence says why."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from sessions.db import Database, open_database
from sessions.db.schema import APPLICATION_ID, meta
from sessions.errors import DatabaseUnavailable, ForeignHome, Unusable

ROOT = Path(__file__).parents[3]


def put(conn: Connection, key: str, size: int = 1) -> str:
    conn.execute(insert(meta), {"key": key, "value": "x" * size})
    return key


def keys(conn: Connection) -> set[str]:
    return set(conn.scalars(select(meta.c.key)))


def sound(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        return conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# --- a full disk --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(new_home: Path) -> Path:
    return new_home


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A home on a disk of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def fill(database: Database) -> tuple[set[str], list[BaseException]]:
    """Write in batches until the disk is full; what was acknowledged, and what was refused."""
    done: set[str] = set()
    refused: list[BaseException] = []
    for round_ in range(100):
        works = [database.write(put, f"{round_}-{i}", 4_000 * i) for i in range(12)]
        for result in await asyncio.gather(*works, return_exceptions=True):
            done.add(result) if isinstance(result, str) else refused.append(result)
        if refused:
            return done, refused
    raise AssertionError("the disk never filled up")


async def test_a_full_disk_refuses_and_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    database = open_database(small_disk)
    done, refused = await fill(database)
    assert done
    assert {type(error) for error in refused} == {DatabaseUnavailable}
    assert all("full" in str(error) and "make room" in str(error) for error in refused)
    assert await database.read(keys) == done
    database.close()
    assert sound(small_disk / "state.db")


async def test_with_room_again_writing_goes_on(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 900_000)
    database = open_database(small_disk)
    done, _ = await fill(database)
    ballast.unlink()
    assert await database.write(put, "after") == "after"
    assert await database.read(keys) == {*done, "after"}
    database.close()


async def test_a_page_limit_in_the_middle_of_a_batch_fails_only_what_does_not_fit(sqlite: Database) -> None:
    """Whether SQLite undoes one statement or the whole transaction, every answer is true."""
    pages = sqlite.read_now(lambda conn: conn.exec_driver_sql("PRAGMA page_count").scalar_one())
    await sqlite.write(lambda conn: conn.exec_driver_sql(f"PRAGMA max_page_count = {pages + 20}").scalar_one())
    works = [sqlite.write(put, str(i), 200_000 if i == 3 else 10) for i in range(8)]
    results = await asyncio.gather(*works, return_exceptions=True)
    assert isinstance(results[3], Unusable)
    assert await sqlite.read(keys) == {result for result in results if isinstance(result, str)}


# --- files ---------------------------------------------------------------------------------------------------------------------


def directory(home: Path) -> None:
    (home / "state.db").mkdir()


def text_file(home: Path) -> None:
    (home / "state.db").write_text("dear diary, " * 1_000)


def scribbled(home: Path) -> None:
    open_database(home).close()
    with (home / "state.db").open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(20_000))


def cut_off(home: Path) -> None:
    open_database(home).close()
    os.truncate(home / "state.db", 8192)


@pytest.mark.parametrize("harm", [directory, text_file, scribbled, cut_off])
def test_a_file_that_cannot_be_used_is_refused_with_a_sentence(home: Path, harm: Callable[[Path], None]) -> None:
    harm(home)
    with pytest.raises(Unusable) as refusal:
        open_database(home)
    assert str(home / "state.db") in str(refusal.value)
    assert refusal.value.exit_code == 1


def test_damage_that_shows_later_is_explained_too(home: Path) -> None:
    database = open_database(home)
    for number in range(200):
        database.write_now(put, str(number), 3_000)
    database.close()
    with (home / "state.db").open("r+b") as file:
        file.seek(-300_000, os.SEEK_END)
        file.write(os.urandom(300_000))
    database = open_database(home)
    with pytest.raises(Unusable, match="damaged"):
        database.read_now(lambda conn: conn.execute(select(func.sum(func.length(meta.c.value)))).all())
    database.close()


def test_another_programs_database_is_left_alone(home: Path) -> None:
    path = home / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE sessions (id TEXT)")
        conn.execute("PRAGMA application_id = 77")
        conn.commit()
    before = path.read_bytes()
    with pytest.raises(ForeignHome, match="another program") as refusal:
        open_database(home)
    assert refusal.value.exit_code == 2
    assert path.read_bytes() == before


def test_an_empty_file_becomes_ours(home: Path) -> None:
    (home / "state.db").touch()
    open_database(home).close()
    with contextlib.closing(sqlite3.connect(home / "state.db")) as conn:
        assert conn.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_only_the_owner_may_read_the_file(home: Path) -> None:
    database = open_database(home)
    database.write_now(put, "a")
    modes = {path.name: path.stat().st_mode & 0o777 for path in home.iterdir() if path.is_file()}
    database.close()
    assert set(modes.values()) == {0o600}, modes


AS_NOBODY = """
import os, sys, tempfile
from pathlib import Path
from sessions.db import open_database
from sessions.errors import Unusable
with tempfile.TemporaryDirectory() as folder:
    open_database(Path(folder)).close()  # everything is imported: the interpreter may lie where nobody can read it
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    open_database(Path(sys.argv[1]))
except Unusable as refusal:
    print(refusal)
else:
    print("opened")
"""


def as_nobody(home: Path) -> str:
    for folder in [home, *home.parents][:-2]:
        if folder.is_relative_to(Path("/tmp")) and folder != Path("/tmp"):
            folder.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, home], capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def open_home() -> Generator[Path]:
    """A home that other users can reach."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_home_that_may_not_be_written_is_refused_with_a_sentence(open_home: Path) -> None:
    open_home.chmod(0o555)
    assert "cannot be written" in as_nobody(open_home)


def test_a_file_that_may_not_be_written_is_refused_with_a_sentence(open_home: Path) -> None:
    open_database(open_home).close()
    (open_home / "state.lock").chmod(0o666)
    (open_home / "state.db").chmod(0o444)
    said = as_nobody(open_home)
    assert "Check who owns" in said


def test_a_home_that_does_not_exist_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file"):
        open_database(tmp_path / "nowhere")


def test_an_error_of_the_database_holds_nothing_that_was_written(database: Database) -> None:
    def twice(conn: Connection) -> None:
        conn.execute(insert(meta), [{"key": "once", "value": "his words"}] * 2)

    with pytest.raises(IntegrityError) as raised:
        database.write_now(twice)

    assert "his words" not in str(raised.value)
