"""A large home moved to PostgreSQL and back by `hermes migrate`, with its index. A move ends only when counts and digests of all tables are the same."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import Connection, insert

from bench.corpus import texts
from bench.table import ResultTable
from bench.team import postgres
from sessions.db import open_database
from sessions.db.schema import messages, sessions
from sessions.search import message_index

_CHUNK = 1_000
_WORDS = 46
"""Of a message, on average: about 280 characters."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=10, help="in each session")
    parser.add_argument("--words", type=int, default=_WORDS, help="of a message, on average")
    options = parser.parse_args()
    count = options.sessions * options.messages
    table = ResultTable(f"migrate: {options.sessions:,} sessions, {count:,} messages")
    with postgres() as server, tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        (home / "config.yaml").write_text("{}\n")
        began = time.perf_counter()
        fill(home, options.sessions, options.messages, options.words)
        size = (home / "state.db").stat().st_size
        table.row("filled in", f"{time.perf_counter() - began:.0f} s", f"{size / 2**20:,.0f} MB", None, "")
        for way, target in (("to PostgreSQL", server.url()), ("back to the file", "sqlite")):
            began = time.perf_counter()
            hermes(home, "migrate", "--to", target)
            table.row(way, f"{time.perf_counter() - began:.0f} s", "", None, "300 s")
            found = hermes(home, "sessions", "search", "deploy server", "--json")
            assert '"session_id"' in found, found[:300]
    print(table)


def fill(home: Path, of_sessions: int, each: int, words: int) -> None:
    database = open_database(home)
    corpus = texts(of_sessions * each, mean=words)
    for start in range(0, of_sessions, _CHUNK):
        numbers = range(start, min(start + _CHUNK, of_sessions))
        database.write_now(_fill_some, numbers, [next(corpus) for _ in range(len(numbers) * each)])
    database.write_now(lambda conn: message_index.fill(conn, lambda _: None))
    database.close()


def _fill_some(conn: Connection, numbers: range, said: list[str]) -> None:
    each = len(said) // len(numbers)
    conn.execute(
        insert(sessions),
        [
            {
                "id": f"20250101_000000_{number:08x}",
                "session_key": f"agent:main:telegram:dm:{number}",
                "source": "telegram",
                "agent": "main",
                "started_at": number * 60_000,
                "last_user_at": number * 60_000,
                "message_count": each,
                "ns": f"agent:main:telegram:dm:{number // 100}",
                "settled_to": each * (number + 1),
                "indexed_to": each * (number + 1),
            }
            for number in numbers
        ],
    )
    conn.execute(
        insert(messages),
        [
            {
                "session_id": f"20250101_000000_{numbers[place // each]:08x}",
                "role": "assistant" if place % 2 else "user",
                "content": content,
                "created_at": numbers[place // each] * 60_000 + place % each,
                "state": "done",
            }
            for place, content in enumerate(said)
        ],
    )


def hermes(home: Path, *command: str) -> str:
    env = {**os.environ, "HERMES_HOME": str(home), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", *command], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    main()
