"""Jobs and their slots."""

from alembic import op

revision = "0008"
down_revision = "0007"

_JOBS = """
CREATE TABLE jobs (
    id text NOT NULL PRIMARY KEY,
    name text NOT NULL,
    prompt text NOT NULL,
    schedule text NOT NULL,
    timezone text NOT NULL,
    repeat_times bigint,
    completed bigint NOT NULL DEFAULT 0,
    enabled boolean NOT NULL,
    state text NOT NULL,
    created_at bigint NOT NULL,
    next_run_at bigint,
    last_run_at bigint,
    last_status text,
    last_error text,
    failures bigint NOT NULL DEFAULT 0,
    not_before bigint,
    run_soon_at bigint,
    told boolean NOT NULL,
    deliver text NOT NULL,
    route text,
    session_key text NOT NULL,
    ns text,
    origin text NOT NULL,
    made_by text,
    deployment text,
    thread_id text
)
"""
_SLOTS = """
CREATE TABLE job_slots (
    id {id},
    job_id text NOT NULL,
    slot bigint NOT NULL,
    dedup_key text NOT NULL UNIQUE,
    outcome text NOT NULL,
    status text NOT NULL,
    run_id text,
    created_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    error text
)
"""
_IDS = {"sqlite": "integer NOT NULL PRIMARY KEY AUTOINCREMENT", "postgresql": "bigserial PRIMARY KEY"}


def upgrade() -> None:
    op.execute(_JOBS)
    op.execute(_SLOTS.format(id=_IDS[op.get_bind().dialect.name]))
    op.execute("CREATE INDEX jobs_due ON jobs (next_run_at) WHERE (next_run_at IS NOT NULL OR run_soon_at IS NOT NULL)")
    op.execute("CREATE INDEX jobs_failing ON jobs (id) WHERE failures >= 3 AND NOT told")
    op.execute("CREATE INDEX job_slots_by_job ON job_slots (job_id, id)")
    op.execute("CREATE INDEX job_slots_by_run ON job_slots (run_id)")
