"""A SQLite file that a child process makes, or cannot make."""

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sessions.db import is_current, open_database, upgrade_in_child
from sessions.errors import Unusable

_APART = """
import pathlib, sys
from sessions.db import upgrade_in_child
upgrade_in_child(pathlib.Path(sys.argv[1]))
assert "alembic" not in sys.modules
"""


def apart(home: Path) -> None:
    subprocess.run([sys.executable, "-c", _APART, str(home)], timeout=60, check=True)


def test_the_child_makes_the_whole_schema(tmp_path: Path) -> None:
    apart(tmp_path)
    made = (tmp_path / "state.db").stat()
    apart(tmp_path)
    assert (tmp_path / "state.db").stat().st_mtime_ns == made.st_mtime_ns

    with contextlib.closing(open_database(tmp_path)) as database:
        assert database.read_now(is_current)


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, b""])
def test_what_the_child_cannot_use_is_told_by_whoever_opens_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("state.db" if content else "missing/state.db")
    if content:
        path.write_bytes(content)
    apart(path.parent)

    with pytest.raises(Unusable):
        open_database(path.parent)
    assert not content or path.read_bytes() == content


def test_beside_other_threads_there_is_no_child(tmp_path: Path) -> None:
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    upgrade_in_child(tmp_path)
    end.set()
    other.join()
    assert not (tmp_path / "state.db").exists()
