"""The home, the database in it, and the command as a function."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import hermes
from sessions.db import Database, open_database
from tests.e2e.cli_sessions.stock import Hermes, fill


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("filled")
    database = open_database(home)
    database.write_now(fill)
    database.close()
    return home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which nothing was stored yet."""
    return tmp_path / "home"


@pytest.fixture
def stocked(filled: Path, home: Path) -> Path:
    """The home, with what `fill` puts there."""
    home.mkdir()
    for name in ("state.db", "state.db-wal"):
        if (filled / name).exists():
            (home / name).write_bytes((filled / name).read_bytes())
    return home


@pytest.fixture
def run(home: Path) -> Hermes:
    def run(*arguments: str, typed: str | bytes | None = None, **environ: str) -> Result:
        environ = {"HERMES_HOME": str(home), **environ}
        return CliRunner().invoke(hermes, ["sessions", *arguments], input=typed, env=environ, prog_name="hermes")

    return run


@pytest.fixture
def database(stocked: Path) -> Iterator[Database]:
    """What another program has open meanwhile."""
    database = open_database(stocked)
    yield database
    database.close()
