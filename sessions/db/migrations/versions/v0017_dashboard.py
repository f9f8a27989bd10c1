"""Who is signed in to the page in the browser, and indexes for what it lists."""

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE sign_ins (hash text NOT NULL PRIMARY KEY, kind text NOT NULL, who text NOT NULL, created_at bigint NOT NULL,"
        " expires_at bigint NOT NULL)"
    )
    op.execute("CREATE INDEX runs_by_status ON runs (status, created_at)")
    op.execute("CREATE INDEX sessions_by_activity ON sessions (last_user_at)")
    op.execute("CREATE INDEX sessions_by_end ON sessions (end_reason, ended_at)")
