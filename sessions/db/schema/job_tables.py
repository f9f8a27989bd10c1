"""Jobs and their slots."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text, text

from sessions.db.schema.base import count, metadata, partial_index, row_id
from sessions.db.sql import Prose

# Not `enabled`: a job that is paused or finished can be wanted now all the same.
JOB_DUE = text("(next_run_at IS NOT NULL OR run_soon_at IS NOT NULL)")
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
