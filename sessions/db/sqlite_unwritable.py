"""Opens a SQLite file that cannot be written, as on a read-only disk: no lock, no log, no upgrade."""

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from sessions.db import sqlite
from sessions.db.engine import QueuedWrite, resolve_futures
from sessions.errors import ReadOnly, Unusable

_ELSEWHERE = "Copy the home to a place that can be written, and name the copy with --home DIR."


class SqliteUnwritable:
    """Raises Unusable, ForeignHome."""

    name = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._address = f"file:{quote(str(path))}?{_access(path)}"
        self.engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool, hide_parameters=True)
        try:
            with contextlib.closing(self._connect()) as conn:
                sqlite.is_ours(conn, path)
        except sqlite3.Error as error:
            raise self.explain(error) from error

    def _connect(self) -> sqlite3.Connection:
        conn = sqlite3.connect(self._address, uri=True, isolation_level=None, check_same_thread=False)
        conn.execute("PRAGMA temp_store = MEMORY")
        return conn

    def explain(self, error: Exception) -> Exception:
        return sqlite.explain(error, self._path)

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        with self.engine.connect() as conn:
            conn.exec_driver_sql("BEGIN")
            yield conn

    def submit(self, job: QueuedWrite[Any]) -> None:
        resolve_futures([(job, None, ReadOnly(f"{self._path} cannot be written here. {_ELSEWHERE}"))])

    def shrink(self) -> None:
        """Nothing can be deleted here."""

    def checkpoint(self) -> None:
        """There is no log of ours."""

    def close(self) -> None:
        self.engine.dispose()


def _access(path: Path) -> str:
    """A log that somebody left needs its index, which cannot be made here; without a log nothing is missing."""
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if log.exists() and index.exists():
        return "mode=ro"
    if log.exists() and log.stat().st_size:
        raise Unusable(
            f"{log} holds what is not in {path.name} yet, and can only be read with it where one may write. {_ELSEWHERE}"
        )
    return "mode=ro&immutable=1"
