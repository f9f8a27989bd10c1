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
from tests.integration.sessions.test_plans import PostgresPlans, a_day

OPEN_IN = 100
"""Of so many sessions one is open, waits for a person or has something to send."""
_ID = "'20250101_000000_' || lpad(to_hex(n), 8, '0')"
_RUN = "'run_' || lpad(to_hex(n), 24, '0')"
_KEY = "'agent:main:telegram:dm:' || n / 10"
_OPEN = f"n %% 10 = 0 AND n / 10 %% {OPEN_IN // 10} = 0"
_FILL = {
    "sessions": f"""INSERT INTO sessions (id, session_key, source, agent, started_at, ended_at, end_reason, last_user_at, message_count, ns, settled_to,
        indexed_to) SELECT {_ID}, {_KEY}, 'telegram', 'main', n * 60000::bigint, CASE WHEN {_OPEN} THEN NULL ELSE n * 60000::bigint + 1 END,
        CASE WHEN {_OPEN} THEN NULL ELSE 'idle' END, n * 60000::bigint, 10, 'dm' || n / 1000, 10::bigint * n, 10::bigint * n
        FROM generate_series(1, %(sessions)s) AS n""",
    "messages": f"""INSERT INTO messages (session_id, run_id, role, content, created_at, state) SELECT {_ID}, {_RUN},
        CASE WHEN part %% 2 = 0 THEN 'user' ELSE 'assistant' END, 'word' || n || ' of message ' || part, n * 60000::bigint + part, 'done'
        FROM generate_series(1, %(sessions)s) AS n, generate_series(0, 9) AS part""",
    "runs": f"""INSERT INTO runs (id, session_id, session_key, kind, status, stop_reason, created_at, updated_at) SELECT {_RUN}, {_ID}, {_KEY}, 'chat',
        CASE WHEN {_OPEN} THEN 'waiting_on_human' ELSE 'completed' END, CASE WHEN {_OPEN} THEN NULL ELSE 'done' END, n, n
        FROM generate_series(1, %(sessions)s) AS n""",
    "asks": f"""INSERT INTO asks (run_id, tool_call_id, kind, question, created_at, answered_at) SELECT {_RUN}, 'c', 'question', 'which?', n,
        CASE WHEN {_OPEN} THEN NULL ELSE n END FROM generate_series(1, %(sessions)s) AS n""",
    "inbox": f"""INSERT INTO inbox (dedup_key, session_key, kind, mode, body, created_at, run_id, outcome) SELECT 'old' || n, {_KEY}, 'message', 'take_in',
        '{{}}', n, {_RUN}, 'folded' FROM generate_series(1, %(sessions)s) AS n""",
    "outbox": f"""INSERT INTO outbox (dedup_key, platform, chat, address, session_key, run_id, body, rendered, state, due_at, created_at, sent_at)
        SELECT 'old' || n, 'telegram', n / 10, '{{}}', {_KEY}, {_RUN}, '{{}}', true, 'sent', n, n, n FROM generate_series(1, %(sessions)s) AS n""",
    "events": f"""INSERT INTO events (deployment, run_id, thread_id, kind, data, created_at) SELECT 'dep_' || n / 1000, {_RUN}, 't', 'message', '{{}}', n
        FROM generate_series(1, %(sessions)s) AS n""",
    "message_search": """INSERT INTO message_search (message_id, ns, stems, words) SELECT id, 'dm' || id / 10000, to_tsvector('simple', content),
        to_tsvector('simple', content) FROM messages WHERE id %% 10 = 0""",
    "observations": f"""INSERT INTO observations (ns, kind, text, said_at, src, session_id) SELECT 'dm' || n / 1000, 'fact', 'note ' || n, n, '[]', {_ID}
        FROM generate_series(1, %(sessions)s) AS n""",
    "observation_search": """INSERT INTO observation_search (observation_id, ns, stems) SELECT id, ns, to_tsvector('simple', text) FROM observations
        WHERE id %% 10 = 0""",
    "folds": f"INSERT INTO folds (session_id, ns, folded_to) SELECT {_ID}, 'dm' || n / 1000, 10 FROM generate_series(1, %(sessions)s) AS n",
    "jobs of the engine": f"""INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args) SELECT 'rest', 'telegram:' || n, {_KEY} || 'x',
        jsonb_build_object('key', {_KEY}) FROM generate_series(1, %(sessions)s / 100) AS n""",
}


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
        for fill in _FILL.values():
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
        worker = database.write_now(wakeups.register)
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
