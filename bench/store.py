"""The journal and its index under 64 writers, beside bare sqlite3 writing the same rows in the same run."""

import argparse
import asyncio
import contextlib
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.corpus import texts
from bench.table import ResultTable
from sessions import store
from sessions.db import Database, open_database
from sessions.keys import SessionKey
from sessions.records import Message, Role, Source
from sessions.search import message_index

WRITERS = 64


@contextlib.contextmanager
def bare(path: Path) -> Iterator[sqlite3.Connection]:
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")
    with contextlib.closing(conn):
        yield conn


def bare_rows(path: Path, corpus: list[str], per_commit: int) -> float:
    """Rows a second of a plain table without any index, each commit as durable as ours."""
    with bare(path) as conn:
        conn.execute(
            "CREATE TABLE m (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, created_at INT)"
        )
        began = time.perf_counter()
        for start in range(0, len(corpus), per_commit):
            conn.execute("BEGIN IMMEDIATE")
            for text in corpus[start : start + per_commit]:
                conn.execute("INSERT INTO m(session_id, role, content, created_at) VALUES ('s', 'user', ?, 1)", (text,))
            conn.execute("COMMIT")
        return len(corpus) / (time.perf_counter() - began)


def plain_fts(path: Path, corpus: list[str]) -> float:
    """Rows a second of a plain table with a plain FTS5 index on it, each row and its entry in one commit of 64."""
    with bare(path) as conn:
        conn.execute(
            "CREATE TABLE m (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, created_at INT)"
        )
        conn.execute(
            "CREATE VIRTUAL TABLE f USING fts5(content, content='m', content_rowid='id', tokenize='porter unicode61')"
        )
        rows = list(enumerate(corpus, 1))
        began = time.perf_counter()
        for start in range(0, len(rows), WRITERS):
            some = rows[start : start + WRITERS]
            conn.execute("BEGIN IMMEDIATE")
            conn.executemany(
                "INSERT INTO m(id, session_id, role, content, created_at) VALUES (?, 's', 'user', ?, 1)", some
            )
            conn.executemany("INSERT INTO f(rowid, content) VALUES (?, ?)", some)
            conn.execute("COMMIT")
        return len(corpus) / (time.perf_counter() - began)


class StoreRun:
    """64 writers, the index behind them, and a watch on the event loop."""

    def __init__(self, database: Database, corpus: list[str]) -> None:
        self.database = database
        self.shares = [corpus[i::WRITERS] for i in range(WRITERS)]
        self.waits: list[float] = []
        self.worst_loop = 0.0
        self.worst_trail = 0.0
        self.index_seconds = 0.0
        self.done = False

    async def write_all(self) -> float:
        watch = asyncio.create_task(self.watch())
        began = time.perf_counter()
        await asyncio.gather(*(self.writer(i, share) for i, share in enumerate(self.shares)))
        seconds = time.perf_counter() - began
        self.done = True
        await watch
        return seconds

    async def writer(self, number: int, share: list[str]) -> None:
        key = SessionKey.parse(f"agent:main:telegram:group:-{number}")
        now = time.time_ns() // 1_000_000
        session = await self.database.write(store.start, key, now, source=Source.TELEGRAM)
        for i, text in enumerate(share):
            message = Message(
                role=Role.ASSISTANT if i % 2 else Role.USER, content=text, sender=None if i % 2 else "Ann"
            )
            began = time.perf_counter()
            await self.database.write(store.append, session.id, [message], now + i)
            self.waits.append(time.perf_counter() - began)

    async def watch(self) -> None:
        while not self.done:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            self.worst_loop = max(self.worst_loop, time.perf_counter() - began - 0.005)

    async def index_all(self) -> float:
        began = time.perf_counter()
        while await self.database.write(message_index.index_some):
            pass
        return time.perf_counter() - began


async def trailing(database: Database, corpus: list[str], rate: float) -> float:
    """Write at a steady rate with the index at work; the longest that a message stayed unindexed."""
    key = SessionKey.parse("agent:main:telegram:group:-999")
    now = time.time_ns() // 1_000_000
    session = await database.write(store.start, key, now, source=Source.TELEGRAM)
    worst = 0.0
    behind_since: float | None = None
    stop = asyncio.Event()

    async def index() -> None:
        nonlocal worst, behind_since
        while not stop.is_set():
            more = await database.write(message_index.index_some)
            if not more:
                if behind_since is not None:
                    worst = max(worst, time.perf_counter() - behind_since)
                behind_since = time.perf_counter()
                await asyncio.sleep(0.25)

    task = asyncio.create_task(index())
    for text in corpus:
        await database.write(store.append, session.id, [Message(role=Role.USER, content=text)], now)
        await asyncio.sleep(1 / rate)
    stop.set()
    await task
    return worst


def timed(work: Callable[[], object], times: int) -> list[float]:
    took: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return took


def search_figures(table: ResultTable, database: Database, plain: Path) -> None:
    ours = statistics.median(timed(lambda: database.read_now(message_index.search, "deploy"), 15))
    with bare(plain) as conn:
        query = "SELECT rowid FROM f WHERE f MATCH '\"deploy\"' ORDER BY rank LIMIT 10"
        theirs = statistics.median(timed(lambda: conn.execute(query).fetchall(), 15))
    table.row("common word over everything", f"{ours:.1f} ms", f"plain FTS5 {theirs:.1f} ms", ours / theirs, "<= 2.5")
    rng = random.Random(3)
    took: list[float] = []
    questions = [
        "deploy",
        "backup restore",
        "what did the customer say about the invoice",
        '"the server"',
        "monday NOT budget",
        "clust*",
    ]
    for _ in range(40):
        ns = f"agent:main:telegram:group:-{rng.randrange(WRITERS)}"
        for question in questions:
            took += timed(lambda q=question, ns=ns: database.read_now(message_index.search, q, ns=ns), 1)
    table.row("search in one namespace, p95", f"{statistics.quantiles(took, n=20)[18]:.1f} ms", "", None, "<= 3 ms")


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("state.db*"))


async def measure(count: int, folder: Path) -> ResultTable:
    corpus = list(texts(count))
    size = sum(len(text.encode()) for text in corpus)
    table = ResultTable(f"store: {count:,} messages, {size / 2**20:.0f} MB of text, {WRITERS} writers")
    durable = bare_rows(folder / "bare1.db", corpus[: count // 10], 1)
    grouped = bare_rows(folder / "bare64.db", corpus, WRITERS)
    plain = plain_fts(folder / "plain.db", corpus)
    database = open_database(folder)
    run = StoreRun(database, corpus)
    seconds = await run.write_all()
    rate = count / seconds
    table.row("journal", f"{rate:,.0f}/s", f"bare sqlite3 {durable:,.0f}/s", rate / durable, ">= 10,000/s, >= 0.8")
    table.row("  the same, against 64 rows in one bare commit", "", f"{grouped:,.0f}/s", rate / grouped, "")
    table.row("longest wait of a writer", f"{max(run.waits) * 1000:.0f} ms", "", None, "<= 50 ms")
    table.row("longest stall of the event loop", f"{run.worst_loop * 1000:.0f} ms", "", None, "<= 50 ms")
    index_rate = count / await run.index_all()
    table.row("index", f"{index_rate:,.0f}/s", f"plain sqlite3+FTS5 {plain:,.0f}/s", index_rate / plain, ">= 0.35")
    trail = await trailing(database, corpus[:2_000], 1_000)
    table.row("index trails by", f"{trail:.2f} s", "", None, "<= 1 s")
    search_figures(table, database, folder / "plain.db")
    database.close()
    table.row(
        "database", f"{on_disk(folder) / 2**20:.0f} MB", f"text {size / 2**20:.0f} MB", on_disk(folder) / size, "<= 4"
    )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(measure(options.messages, Path(folder))))


if __name__ == "__main__":
    main()
