"""Nothing that happens for every message goes through a whole table, however large the database has grown."""

import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import Engine

from sessions import asks, events, inbox, outbox, runs, store, workspace_files
from sessions.db import Database, open_database
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.messages import Content
from sessions.records import InboxMode, InboxRow, Message, Role, Route, RunKind, Source
from sessions.runs import ModelAnswer, Opening
from sessions.search import message_index, sqlite
from sessions.transcripts import Transcripts

KEY = "agent:dep_x:telegram:group:-1"
ROUTE = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id="-1"))
OPENING = Opening(deployment="dep_x", thread_id="t")
CALL = {"id": "c1", "type": "function", "function": {"name": "ask_human", "arguments": "{}"}}


def accept(conn: Connection, number: int, mode: InboxMode = InboxMode.TAKE_IN) -> None:
    new = InboxRow(
        dedup_key=f"k{number}", session_key=KEY, messages=[Message(content="deploy now")], route=ROUTE, mode=mode
    )
    runs.accept(conn, new, OPENING, number)


def a_day(conn: Connection) -> None:
    """Everything that a message may meet on its way."""
    accept(conn, 1)
    run = runs.claim(conn, KEY, "me", OPENING, 2, lease_ms=1_000)
    assert run is not None
    runs.keep_alive(conn, [run.id], "me", 2, lease_ms=1_000)
    runs.take_in_new_messages(conn, run, 2)
    (call,) = runs.answered(conn, run, ModelAnswer(text="", tool_calls=[CALL], day="2025-01-01"), 3, step=0)
    runs.tool_started(conn, run, call.id, 3)
    assert runs.park(conn, run, call, "sure?", 4, card=Content(text="sure?"))
    assert asks.open_of(conn, run.id)
    accept(conn, 2)
    run = runs.claim(conn, KEY, "me", OPENING, 5, lease_ms=1_000)
    assert run is not None
    assert runs.finish(conn, run, ModelAnswer(text="done"), 6, step=1, reply=Content(text="done"))
    accept(conn, 3, InboxMode.QUEUE)
    run = runs.claim(conn, KEY, "me", Opening(kind=RunKind.CALL), 7, lease_ms=1_000)
    assert run is not None
    runs.take_in_new_messages(conn, run, 7)
    runs.fail(conn, run, "broken", 8, notice=Content(text="sorry"))
    accept(conn, 4)
    runs.stop(conn, runs.active(conn, KEY).id, 9)  # type: ignore[union-attr]
    accept(conn, 4)
    runs.in_flight(conn)
    inbox.count_unread(conn, KEY)
    events.after(conn, "dep_x", 0)
    events.last_id(conn, "dep_x")
    send_all(conn)
    session = store.active(conn, KEY)
    assert session is not None
    store.last_messages(conn, session.id, 20)
    store.read_messages(conn, session.id)
    store.chain(conn, session)
    store.recent(conn, key=KEY)
    while message_index.index_some(conn):
        pass
    for query in ("deploy", "deploy done", '"deploy now"', "dep* AND now"):
        assert message_index.search(conn, query, ns=session.ns)
        message_index.search(conn, query, ns=session.ns, cut_off=5, source=Source.TELEGRAM)
    store.take_back(conn, session.id)
    shared = workspace_files.NewFile(path="plan.md", sha256="0", size=1, mtime=1, executable=False, data=b"x")
    workspace_files.add(conn, session.ns, shared)
    workspace_files.change(conn, session.ns, [shared], {"gone.md": "0"})
    for file in workspace_files.listing(conn, session.ns).values():
        workspace_files.data(conn, file.id)
    workspace_files.about(conn, session.ns, ["plan.md"])


def send_all(conn: Connection) -> None:
    outbox.next_due(conn, "telegram", 10)
    outbox.left_claimed(conn, "telegram", "me", ())
    outbox.interrupted(conn, "telegram", 10)
    while rows := outbox.claim(conn, "telegram", "me", 10, lease_ms=1_000):
        row = rows[0]
        if row.piece is None:
            row, _ = outbox.split(conn, row, [{"text": "a"}, {"text": "b"}])
        outbox.mark_sending(conn, row.id)
        outbox.mark_sent(conn, row.id, "77", 10)


def live_through(home: Path, database: Database) -> None:
    transcripts = Transcripts(home, database)
    database.write_now(a_day)
    transcripts.flush()
    transcripts.close()
    key = SessionKey.parse("agent:main:slack:dm")
    session = database.write_now(store.start, key, 20, source=Source.SLACK)
    database.write_now(store.append, session.id, [Message(role=Role.USER, content="x")], 21)


SMALL = {"hits", "CONSTANT", "pairings", "people", "leases", "deployments", "usage", "meta", "hit", "json_each"}


@pytest.fixture
def scans(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What every statement of that day would go through from end to end."""
    found: list[str] = []

    def explain(conn: Connection, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        if statement.split(maxsplit=1)[0] not in {"SELECT", "UPDATE", "DELETE"}:
            return
        for row in conn.connection.dbapi_connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters):  # type: ignore[union-attr]
            scan = re.match(r"SCAN (\w+)(?! VIRTUAL)", row[3])
            if (
                scan
                and scan[1] not in SMALL
                and "VIRTUAL TABLE" not in row[3]
                and "USING INDEX" not in row[3]
                and "COVERING" not in row[3]
            ):
                found.append(f"{row[3]}: {statement}")

    def fetched(conn: Connection, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        explain(conn, None, statement, values)
        seen.append(statement)
        return without_sqlalchemy(conn, statement, values)

    seen: list[str] = []
    without_sqlalchemy = sqlite.fetched
    monkeypatch.setattr(sqlite, "fetched", fetched)
    database = open_database(home)
    event.listen(Engine, "before_cursor_execute", explain)
    try:
        live_through(home, database)
    finally:
        event.remove(Engine, "before_cursor_execute", explain)
        database.close()
    assert seen, "a search"
    return found


def test_no_statement_of_a_messages_way_scans_a_table(scans: list[str]) -> None:
    assert scans == [], "\n".join(scans)


OPEN_IN = 100
"""Of so many sessions one is open, waits for a person or has something to send."""
_ID = "'20250101_000000_' || lpad(to_hex(n), 8, '0')"
_RUN = "'run_' || lpad(to_hex(n), 24, '0')"
_KEY = "'agent:main:telegram:dm:' || n / 10"
_OPEN = f"n %% 10 = 0 AND n / 10 %% {OPEN_IN // 10} = 0"
FILL = {
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


def fill(conn: Connection, count: int) -> None:
    """So many sessions, with ten messages each, and what goes with them."""
    for statement in FILL.values():
        conn.exec_driver_sql(statement, {"sessions": count})
    conn.exec_driver_sql("ANALYZE")


class PostgresPlans:
    """Looks at the plan of every statement while it listens. `scans`: those that go through a table, or a whole index of it, from end to end.
    `most`: the milliseconds of the slowest, and what it was. `rows`: how many a table must have to count.
    """

    def __init__(self, conn: Connection, rows: int = -1) -> None:
        # An index of some rows only is short, as long as those are few.
        partial = "SELECT indexrelid::regclass::text FROM pg_index WHERE indpred IS NOT NULL"
        self._short = set(conn.scalars(text(partial)))
        large = text("SELECT relname FROM pg_class WHERE relkind = 'r' AND reltuples >= :rows")
        self._large = (
            set(conn.scalars(large, {"rows": rows})) - SMALL - {"procrastinate_workers", "procrastinate_events"}
        )
        self.scans: list[str] = []
        self.seen = 0
        self.most = (0.0, "")

    @contextmanager
    def listening(self) -> Generator[None]:
        event.listen(Engine, "before_cursor_execute", self._before)
        event.listen(Engine, "after_cursor_execute", self._after)
        try:
            yield
        finally:
            event.remove(Engine, "before_cursor_execute", self._before)
            event.remove(Engine, "after_cursor_execute", self._after)

    def _before(self, _: Any, cursor: Any, statement: str, parameters: Any, *__: object) -> None:
        if statement.split(maxsplit=1)[0] in {"SELECT", "UPDATE", "DELETE", "INSERT", "WITH"}:
            self.seen += 1
            with cursor.connection.cursor() as beside:
                (((plan,),),) = beside.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters).fetchall()
            self._look(plan["Plan"], statement, stops=False)
        self._began = time.perf_counter()

    def _after(self, _: Any, __: Any, statement: str, *___: object) -> None:
        took = (time.perf_counter() - self._began) * 1000
        self.most = max(self.most, (took, " ".join(statement.split())))

    def _look(self, node: Mapping[str, Any], statement: str, *, stops: bool) -> None:
        table, index = node.get("Relation Name", ""), node.get("Index Name")
        goes_through = node["Node Type"] == "Seq Scan" or (
            index is not None and "Index Cond" not in node and index not in self._short and not stops
        )
        if goes_through and table in self._large:
            self.scans.append(f"{node['Node Type']} on {table} {index or ''}: {' '.join(statement.split())}")
        for child in node.get("Plans", ()):
            asks_for_one = child["Parent Relationship"] == "InitPlan" and "EXISTS" in statement
            self._look(child, statement, stops=stops or node["Node Type"] == "Limit" or asks_for_one)


def test_nor_does_it_on_postgresql(home: Path, postgres_url: str) -> None:
    """Over rows and figures about them: in an empty database every index is as good as none. Of so few rows some tables would be read whole all the
    same, so the planner is told to use an index wherever it can, and for each row.
    """
    told = "%20".join(f"-c%20enable_{way}%3Doff" for way in ("seqscan", "hashjoin", "mergejoin"))
    database = open_database(home, f"{postgres_url}&options={told}")
    database.write_now(fill, 1_000)
    plans = database.read_now(PostgresPlans)
    with plans.listening():
        live_through(home, database)
    database.close()
    assert plans.seen > 100
    assert plans.scans == [], "\n".join(plans.scans)
