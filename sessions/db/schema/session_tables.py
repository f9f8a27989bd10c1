"""Sessions, their messages, and what came in."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, text

from sessions.db.schema.base import count, metadata, partial_index, row_id
from sessions.db.sql import Prose

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Prose, nullable=False))

SESSION_OPEN = text("ended_at IS NULL")

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("session_key", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("user_id", Text),
    Column("agent", Text, nullable=False),
    Column("model", Text),
    Column("model_config", Text),
    Column("system_prompt", Prose),
    Column("title", Prose),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("end_reason", Text),
    Column("last_user_at", BigInteger),
    Column("parent_session_id", Text),
    count("message_count"),
    count("tool_call_count"),
    count("input_tokens"),
    count("output_tokens"),
    Column("ns", Text, nullable=False),
    count("settled_to"),  # messages up to this id do not change any more
    count("indexed_to"),
    Column("announces", Text),  # the session before, until the chat was told that it was reset
    count("rewrites"),  # how often settled messages were changed or removed all the same
    partial_index(
        "sessions_active",
        "session_key",
        unique=True,
        where=SESSION_OPEN,
    ),
    Index("sessions_by_key", "session_key", "started_at"),
    partial_index("sessions_by_last_user", "last_user_at", where=SESSION_OPEN),
    Index("sessions_by_start", "started_at"),
    Index("sessions_by_parent", "parent_session_id"),
    partial_index(
        "sessions_unindexed",
        "id",
        where=text("indexed_to < settled_to"),
    ),
)

MESSAGE_OPEN = text("state IN ('pending', 'started')")

messages = Table(
    "messages",
    metadata,
    row_id(),
    Column("session_id", Text, nullable=False),
    Column("run_id", Text),
    Column("role", Text, nullable=False),
    Column("content", Prose),
    Column("tool_calls", Prose),
    Column("tool_call_id", Prose),
    Column("tool_name", Prose),
    Column("token_count", Integer),
    Column("created_at", BigInteger, nullable=False),
    Column("sender", Prose),
    Column("attachments", Prose),
    Column("state", Text, nullable=False, server_default="done"),
    Column("idem_key", Text),
    Index("messages_by_session", "session_id", "id"),
    partial_index("messages_open", "session_id", "id", where=MESSAGE_OPEN),
    sqlite_autoincrement=True,
)

inbox = Table(
    "inbox",
    metadata,
    row_id(),
    Column("dedup_key", Text, nullable=False, unique=True),
    Column("session_key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("body", Prose, nullable=False),
    Column("route", Text),
    Column("fingerprint", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("run_id", Text),
    Column("outcome", Text),
    Column("left_at", BigInteger),
    partial_index(
        "inbox_unread",
        "session_key",
        "id",
        where=text("outcome IS NULL"),
    ),
    Index("inbox_by_run", "run_id"),
    sqlite_autoincrement=True,
)

deleted_keys = Table(
    "deleted_keys",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("deleted_at", BigInteger, nullable=False),
    Index("deleted_keys_by_time", "deleted_at"),
)
"""What is left of the inbox rows of a deleted session: keyed hashes of their `dedup_key`, for some days."""

responses = Table(
    "responses",
    metadata,
    Column("id", Text, primary_key=True),
    Column("key_name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("session_key", Text),
    Column("previous_id", Text),
    Column("dedup_key", Text),
    Column("ends_at", BigInteger),
    Column("input", Prose),
    Column("answer", Prose),
    Column("created_at", BigInteger, nullable=False),
    Index("responses_by_session", "session_key"),
    Index("responses_by_time", "created_at"),
)
"""Responses that are kept by id, and conversations. `input`: the messages of the request, until the response belongs to a session;
`answer`: the response as it was given, empty while the run works; `ends_at`: the last message of the session that belongs to it."""

overheard = Table(
    "overheard",
    metadata,
    row_id(),
    Column("session_key", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("sender", Prose, nullable=False),
    Column("text", Prose, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("overheard_by_key", "session_key", "id"),
    sqlite_autoincrement=True,
)
