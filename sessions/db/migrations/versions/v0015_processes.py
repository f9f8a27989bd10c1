"""Processes that the agent has started."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE processes (id text NOT NULL PRIMARY KEY, session_id text NOT NULL, session_key text NOT NULL, owner text NOT NULL,"
        " command text NOT NULL, started_at bigint NOT NULL, stop_at bigint, ended_at bigint, outcome text)"
    )
    op.execute("CREATE INDEX processes_running ON processes (session_key) WHERE ended_at IS NULL")
    op.execute("CREATE INDEX processes_by_session ON processes (session_id)")
