"""Runs, what they ask, and what goes out."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text, UniqueConstraint, text

from sessions.db.schema.base import count, metadata, partial_index, row_id
from sessions.db.sql import Prose

# A farewell works on an ended session, so the next conversation of its key need not wait for it.
RUN_ACTIVE = text("status IN ('running', 'waiting_on_human') AND kind <> 'farewell'")
RUN_RUNNING = text("status = 'running'")
RUN_FAREWELL = text("status = 'running' AND kind = 'farewell'")
RUN_SHOWN = text("(preview IS NOT NULL OR noted IS NOT NULL)")

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("session_key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("stop_reason", Text),
    Column("error", Prose),
    Column("wake_at", BigInteger),
    Column("away_since", BigInteger),
    Column("away_model", Text),
    Column("lease_owner", Text),
    Column("lease_until", BigInteger),
    count("fence"),
    count("attempts"),
    count("steps"),
    count("input_tokens"),
    count("output_tokens"),
    count("worked_ms"),
    Column("route", Text),
    Column("options", Prose),
    Column("deployment", Text),
    Column("thread_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("preview", Text),
    Column("noted", Text),  # ids of messages that were marked as read in the chat
    partial_index("runs_active", "session_key", unique=True, where=RUN_ACTIVE),
    partial_index("runs_running", "status", where=RUN_RUNNING),
    partial_index("runs_farewell", "session_id", unique=True, where=RUN_FAREWELL),
    partial_index("runs_shown", "id", where=RUN_SHOWN),
    Index("runs_by_session", "session_id"),
)

asks = Table(
    "asks",
    metadata,
    row_id(),
    Column("run_id", Text, nullable=False),
    Column("tool_call_id", Prose, nullable=False),
    Column("kind", Text, nullable=False),
    Column("question", Prose, nullable=False),
    Column("options", Prose),
    Column("args_hash", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("answered_at", BigInteger),
    Column("answer", Prose),
    Column("answered_by", Prose),
    Column("approved", Boolean),
    UniqueConstraint("run_id", "tool_call_id"),
    sqlite_autoincrement=True,
)

OUT_OPEN = text("state IN ('pending', 'sending', 'unknown')")

outbox = Table(
    "outbox",
    metadata,
    row_id(),
    Column("dedup_key", Text, nullable=False, unique=True),
    Column("platform", Text, nullable=False),
    Column("chat", Text, nullable=False),
    Column("address", Prose, nullable=False),
    Column("session_key", Text, nullable=False),
    Column("run_id", Text),
    Column("body", Prose, nullable=False),
    Column("rendered", Boolean, nullable=False, server_default=text("false")),
    Column("state", Text, nullable=False),
    Column("root", BigInteger),  # the first piece of a message that was split
    count("part"),
    count("attempts"),
    count("doubts"),  # how often it may have arrived
    Column("due_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("sent_at", BigInteger),
    Column("lease_owner", Text),
    Column("lease_until", BigInteger),
    Column("platform_ids", Text),
    Column("last_error", Prose),
    partial_index(
        "outbox_open",
        "platform",
        "chat",
        "id",
        where=OUT_OPEN,
    ),
    Index("outbox_by_run", "run_id"),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    row_id(),
    Column("deployment", Text, nullable=False),
    Column("run_id", Text),
    Column("thread_id", Text),
    Column("kind", Text, nullable=False),
    Column("data", Prose, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("events_by_deployment", "deployment", "id"),
    Index("events_by_run", "run_id"),
    sqlite_autoincrement=True,
)

spending = Table(
    "spending",
    metadata,
    Column("day", Text, primary_key=True),
    count("input_tokens"),
    count("output_tokens"),
)
