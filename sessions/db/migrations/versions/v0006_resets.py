"""Resets: sessions by the time of the last user message, farewells, and what a new session has to announce."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute("ALTER TABLE sessions ADD COLUMN announces text")
    op.execute("CREATE INDEX sessions_by_last_user ON sessions (last_user_at) WHERE ended_at IS NULL")
    op.execute("CREATE UNIQUE INDEX runs_farewell ON runs (session_id) WHERE status = 'running' AND kind = 'farewell'")
