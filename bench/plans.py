"""A million sessions with ten million messages on PostgreSQL: the plan of every statement that a message may need, and how long each takes.

The texts are short, and of the index of words a part is filled: what counts is the number of rows, by which PostgreSQL chooses.
"""

import argparse
import tempfile
import time
from pathlib import Path

from sqlalchemy import text

from bench.table import ResultTable
from bench.team import postgres
from sessions import wakeups
from sessions.db import open_database
from tests.integration.sessions.test_plans import FILL, PostgresPlans, a_day


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    options = parser.parse_args()
    table = ResultTable(f"plans: {options.sessions:,} sessions, {10 * options.sessions:,} messages on PostgreSQL")
    with postgres(durable=False) as server, tempfile.TemporaryDirectory() as folder:
        server.run("ALTER SYSTEM SET max_wal_size = '8GB'")
        server.run("SELECT pg_reload_conf()")
        began = time.perf_counter()
        database = open_database(Path(folder), server.url())
        for fill in FILL.values():
            database.write_now(
                lambda conn, fill=fill: conn.exec_driver_sql(fill, {"sessions": options.sessions}) and None
            )
        server.run("VACUUM ANALYZE")
        size = database.read_now(lambda conn: conn.scalar(text("SELECT pg_database_size(current_database())"))) or 0
        table.row("filled in", f"{time.perf_counter() - began:.0f} s", f"{size / 2**30:.1f} GB", None, "")
        plans = database.read_now(PostgresPlans, rows=1_000)
        with plans.listening():
            database.write_now(a_day)
        took, slowest = plans.most
        table.row("statements of a day", f"{plans.seen}", f"that go through a table: {len(plans.scans)}", None, "0")
        table.row("  the slowest", f"{took:.1f} ms", slowest[:70], None, "")
        worker = database.write_now(wakeups.register, 24)
        took_each: list[float] = []
        for _ in range(20):
            at = time.perf_counter()
            assert database.write_now(wakeups.fetch, worker, [wakeups.RUNS, wakeups.REST]) is not None
            took_each.append((time.perf_counter() - at) * 1000)
        waiting = f"{options.sessions // 100:,} jobs wait"
        table.row("  fetching a job", f"{sorted(took_each)[10]:.1f} ms", waiting, None, "")
        database.close()
        for scan in plans.scans:
            print(scan)
    print(table)


if __name__ == "__main__":
    main()
