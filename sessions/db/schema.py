"""The tables, for SQLAlchemy Core. Migrations create them; a test holds both against each other."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    text,
)

from sessions.db.sql import Json, Prose, Repeated, Word
from sessions.messages import Attachment
from sessions.records import (
    AskKind,
    EndReason,
    InboxKind,
    InboxMode,
    InboxOutcome,
    MessageState,
    OutState,
    Role,
    Route,
    RunKind,
    RunStatus,
    StopReason,
)

OLDEST = "0011"
"""The migration that makes everything in an empty database. A database from before it is refused."""

HEAD = "0022"
"""The newest migration. Opening a database at HEAD imports no alembic."""

APPLICATION_ID = 0x48524D47
"""`PRAGMA application_id` of our SQLite files, since other programs use the same names for their homes."""

metadata = MetaData()

# SQLite numbers rows by itself only in a column whose type is exactly INTEGER.
_Id = BigInteger().with_variant(Integer, "sqlite")


def row_id() -> Column[int]:
    """Returns a growing id. With `sqlite_autoincrement` a deleted row's id is never given again: mirrors rely on it."""
    return Column("id", _Id, primary_key=True, autoincrement=True)


def count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def partial_index(name: str, *columns: str, where: TextClause, unique: bool = False) -> Index:
    """The condition is noted beside the index, because to name a dialect is to load it, and each takes 3 MB.

    Queries use the very words of the condition: SQLite takes the index only for literal values, not for parameters.
    """
    return Index(name, *columns, unique=unique, info={"where": where})


# --- sessions, their messages, what came in ------------------------------------------------------------------------------

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
    Column("end_reason", Word(EndReason)),
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
    partial_index("sessions_active", "session_key", unique=True, where=SESSION_OPEN),
    Index("sessions_by_key", "session_key", "started_at"),
    partial_index("sessions_by_last_user", "last_user_at", where=SESSION_OPEN),
    Index("sessions_by_start", "started_at"),
    Index("sessions_by_activity", "last_user_at"),
    Index("sessions_by_end", "end_reason", "ended_at"),
    Index("sessions_by_parent", "parent_session_id"),
    partial_index("sessions_unindexed", "id", where=text("indexed_to < settled_to")),
)

MESSAGE_OPEN = text("state IN ('pending', 'started')")

messages = Table(
    "messages",
    metadata,
    row_id(),
    Column("session_id", Repeated, nullable=False),
    Column("run_id", Repeated),
    Column("role", Word(Role), nullable=False),
    Column("content", Prose),
    Column("tool_calls", Json),
    Column("tool_call_id", Prose),
    Column("tool_name", Prose),
    Column("token_count", Integer),
    Column("created_at", BigInteger, nullable=False),
    Column("sender", Prose),
    Column("attachments", Json(tuple[Attachment, ...])),
    Column("state", Word(MessageState), nullable=False, server_default="done"),
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
    Column("kind", Word(InboxKind), nullable=False),
    Column("mode", Word(InboxMode), nullable=False),
    Column("body", Json, nullable=False),
    Column("route", Json(Route)),
    Column("fingerprint", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("run_id", Text),
    Column("outcome", Word(InboxOutcome)),
    Column("left_at", BigInteger),
    partial_index("inbox_unread", "session_key", "id", where=text("outcome IS NULL")),
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
    Column("input", Json),
    Column("answer", Json),
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

audit = Table(
    "audit",
    metadata,
    row_id(),
    Column("at", BigInteger, nullable=False),
    Column("who", Prose, nullable=False),
    Column("action", Text, nullable=False),
    Column("about", Text, nullable=False),
    Column("detail", Prose, nullable=False),
    Column("dedup_key", Text, unique=True),
    Index("audit_by_time", "at"),
    Index("audit_about", "about"),
    sqlite_autoincrement=True,
)

# --- runs, what they ask, what goes out ----------------------------------------------------------------------------------

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
    Column("kind", Word(RunKind), nullable=False),
    Column("status", Word(RunStatus), nullable=False),
    Column("stop_reason", Word(StopReason)),
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
    Column("route", Json(Route)),
    Column("options", Json),
    Column("deployment", Text),
    Column("thread_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("preview", Text),
    Column("who", Prose),  # whose usage it counts as
    Column("noted", Json(tuple)),  # ids of messages that were marked as read in the chat
    Column("restarts", Json(tuple)),  # when it was taken up again after its process was gone
    partial_index("runs_active", "session_key", unique=True, where=RUN_ACTIVE),
    partial_index("runs_running", "status", where=RUN_RUNNING),
    partial_index("runs_farewell", "session_id", unique=True, where=RUN_FAREWELL),
    partial_index("runs_shown", "id", where=RUN_SHOWN),
    Index("runs_by_session", "session_id"),
    Index("runs_by_status", "status", "created_at"),
)

asks = Table(
    "asks",
    metadata,
    row_id(),
    Column("run_id", Text, nullable=False),
    Column("tool_call_id", Prose, nullable=False),
    Column("kind", Word(AskKind), nullable=False),
    Column("question", Prose, nullable=False),
    Column("options", Json(tuple)),
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
    Column("address", Json(Route), nullable=False),
    Column("session_key", Text, nullable=False),
    Column("run_id", Text),
    Column("body", Prose, nullable=False),
    Column("rendered", Boolean, nullable=False, server_default=text("false")),
    Column("state", Word(OutState), nullable=False),
    Column("root", BigInteger),  # the first piece of a message that was split
    count("part"),
    count("attempts"),
    count("doubts"),  # how often it may have arrived
    Column("due_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("sent_at", BigInteger),
    Column("lease_owner", Text),
    Column("lease_until", BigInteger),
    Column("platform_ids", Json),
    Column("last_error", Prose),
    partial_index("outbox_open", "platform", "chat", "id", where=OUT_OPEN),
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
    Column("data", Json, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("events_by_deployment", "deployment", "id"),
    Index("events_by_run", "run_id"),
    sqlite_autoincrement=True,
)

usage = Table(
    "usage",
    metadata,
    Column("day", Text, primary_key=True),
    Column("who", Prose, primary_key=True),
    count("messages"),
    count("input_tokens"),
    count("output_tokens"),
)

# --- who talks with the agent; deployments -------------------------------------------------------------------------------

aliases = Table(
    "aliases",
    metadata,
    Column("platform", Text, primary_key=True),
    Column("alias", Text, primary_key=True),
    Column("id", Text, nullable=False),
)

sign_ins = Table(
    "sign_ins",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("who", Prose, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

people = Table(
    "people",
    metadata,
    Column("platform", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("name", Prose, nullable=False),
    Column("owner", Boolean, nullable=False, server_default=text("false")),
    Column("approved_at", BigInteger, nullable=False),
)

pairings = Table(
    "pairings",
    metadata,
    Column("code_hash", Text, primary_key=True),
    Column("platform", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("name", Prose, nullable=False),
    Column("address", Prose, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

deployments = Table(
    "deployments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Prose, nullable=False),
    Column("customer_id", Prose),
    Column("system_prompt", Prose),
    Column("model", Text),
    Column("created_by", Text, nullable=False),
    Column("default_thread", Text),
    Column("created_at", BigInteger, nullable=False),
)

# --- jobs and their slots ------------------------------------------------------------------------------------------------

# Not `enabled`: a job that is paused or finished can be wanted now all the same.
JOB_DUE = text("(next_run_at IS NOT NULL OR run_soon_at IS NOT NULL)")
JOB_FAILED_OFTEN = text("failures >= 3")
JOB_FAILING = text("failures >= 3 AND NOT told")

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Prose, nullable=False),
    Column("prompt", Prose, nullable=False),
    Column("schedule", Text, nullable=False),
    Column("timezone", Text, nullable=False),
    Column("repeat_times", BigInteger),
    count("completed"),
    Column("enabled", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("next_run_at", BigInteger),
    Column("last_run_at", BigInteger),
    Column("last_status", Text),
    Column("last_error", Prose),
    count("failures"),
    Column("not_before", BigInteger),
    Column("run_soon_at", BigInteger),
    Column("told", Boolean, nullable=False),  # whether the owner knows of the failures
    Column("deliver", Text, nullable=False),
    Column("route", Prose),
    Column("session_key", Text, nullable=False),
    Column("ns", Text),
    Column("origin", Text, nullable=False),
    Column("made_by", Text),
    Column("deployment", Text),
    Column("thread_id", Text),
    partial_index("jobs_due", "next_run_at", where=JOB_DUE),
    partial_index("jobs_failing", "id", where=JOB_FAILING),
)

job_slots = Table(
    "job_slots",
    metadata,
    row_id(),
    Column("job_id", Text, nullable=False),
    Column("slot", BigInteger, nullable=False),
    Column("dedup_key", Text, nullable=False, unique=True),
    Column("outcome", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("run_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("error", Prose),
    Index("job_slots_by_job", "job_id", "id"),
    Index("job_slots_by_run", "run_id"),
    sqlite_autoincrement=True,
)

# --- what is remembered, and how it is found -----------------------------------------------------------------------------

observations = Table(
    "observations",
    metadata,
    row_id(),
    Column("ns", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Prose, nullable=False),
    Column("cause", Prose),
    Column("happened", Prose),
    Column("said_at", BigInteger, nullable=False),
    Column("src", Json(tuple), nullable=False),
    Column("session_id", Text),
    Column("supersedes", BigInteger),
    Column("closed_by", BigInteger),
    Column("closed_at", BigInteger),
    count("weight"),
    count("fold"),
    Column("asked_as", Json(tuple)),
    UniqueConstraint("ns", "fold", "text"),
    Index("observations_by_ns", "ns", "id"),
    Index("observations_by_session", "session_id"),
    sqlite_autoincrement=True,
)

note_vectors = Table(
    "note_vectors",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("ns", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Index("note_vectors_by_ns", "ns", "id"),
)
"""What a model for embeddings makes of an observation, which goes with it. `vector`: of length one, as 32-bit floats."""

memory_state = Table(
    "memory_state",
    metadata,
    Column("ns", Text, primary_key=True),
    Column("digest", Prose),
    count("rev"),
    count("changes"),
    count("fails"),
    count("retry_at"),
    Column("lease_owner", Text),
    Column("lease_until", BigInteger),
)
"""One row for each namespace that has a memory. `rev` grows with whatever makes a fold that is under way worthless, `changes` with
every change."""

folds = Table(
    "folds",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("ns", Text, nullable=False),
    count("folded_to"),
)
"""How far each session is folded."""

forgotten = Table(
    "forgotten",
    metadata,
    row_id(),
    Column("ns", Text, nullable=False),
    Column("up_to", BigInteger, nullable=False),
    Column("src", Json, nullable=False),
    Column("marks", Json, nullable=False),
    Index("forgotten_by_ns", "ns"),
    sqlite_autoincrement=True,
)
"""What people had removed, without a word of it: `marks` are short keyed hashes, each of which many words share. `up_to`: the last
message that was there."""

message_search = Table(  # PostgreSQL only: its tsvector columns are added by the migration
    "message_search", MetaData(), Column("message_id", BigInteger, primary_key=True), Column("ns", Text, nullable=False)
)

# --- files -----------------------------------------------------------------------------------------------------------------

workspace_files = Table(
    "workspace_files",
    metadata,
    row_id(),
    Column("ns", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("mtime", BigInteger, nullable=False),
    Column("executable", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    UniqueConstraint("ns", "path"),
    Index("workspace_files_newest", "ns", "id"),
    sqlite_autoincrement=True,
)
"""PostgreSQL only: what several homes share. `ns`: the folder of a namespace in `workspace/`, or another one: see `workspace_files.py`. A file that
is changed gets a new `id`."""

# --- the processes that work on one database -----------------------------------------------------------------------------

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until", BigInteger, nullable=False),
    count("fence"),
)

PROCESS_RUNS = text("ended_at IS NULL")

processes = Table(
    "processes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("session_key", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("command", Prose, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("stop_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("outcome", Text),
    Column("asked_at", BigInteger),
    Column("output", Prose),
    partial_index("processes_running", "session_key", where=PROCESS_RUNS),
    Index("processes_by_session", "session_id"),
)

workers = Table(
    "workers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("version", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    Column("report", Prose, nullable=False),
)
