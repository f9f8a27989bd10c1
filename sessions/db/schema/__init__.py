"""The tables, for SQLAlchemy Core. Migrations create them; a test holds both against each other."""

from sessions.db.schema.base import metadata
from sessions.db.schema.job_tables import JOB_DUE, JOB_FAILING, job_slots, jobs
from sessions.db.schema.memory_tables import (
    folds,
    forgotten,
    memory_state,
    message_search,
    note_vectors,
    observations,
)
from sessions.db.schema.people_tables import aliases, deployments, pairings, people
from sessions.db.schema.process_tables import leases, workers
from sessions.db.schema.run_tables import (
    OUT_OPEN,
    RUN_ACTIVE,
    RUN_FAREWELL,
    RUN_RUNNING,
    RUN_SHOWN,
    asks,
    events,
    outbox,
    runs,
    spending,
)
from sessions.db.schema.session_tables import (
    MESSAGE_OPEN,
    SESSION_OPEN,
    deleted_keys,
    inbox,
    messages,
    meta,
    overheard,
    responses,
    sessions,
)

__all__ = [
    "APPLICATION_ID",
    "HEAD",
    "JOB_DUE",
    "JOB_FAILING",
    "MESSAGE_OPEN",
    "OLDEST",
    "OUT_OPEN",
    "RUN_ACTIVE",
    "RUN_FAREWELL",
    "RUN_RUNNING",
    "RUN_SHOWN",
    "SESSION_OPEN",
    "aliases",
    "asks",
    "deleted_keys",
    "deployments",
    "events",
    "folds",
    "forgotten",
    "inbox",
    "job_slots",
    "jobs",
    "leases",
    "memory_state",
    "message_search",
    "messages",
    "meta",
    "metadata",
    "note_vectors",
    "observations",
    "outbox",
    "overheard",
    "pairings",
    "people",
    "responses",
    "runs",
    "sessions",
    "spending",
    "workers",
]

OLDEST = "0011"
"""The migration that makes everything in an empty database. A database from before it is refused."""

HEAD = "0014"
"""The newest migration. Opening a database at HEAD imports no alembic."""

APPLICATION_ID = 0x48524D47
"""`PRAGMA application_id` of our SQLite files, since other programs use the same names for their homes."""
