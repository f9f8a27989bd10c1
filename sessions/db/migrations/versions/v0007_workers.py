"""What each daemon reports about itself."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE workers (name text NOT NULL PRIMARY KEY, owner text NOT NULL, host text NOT NULL, pid bigint NOT NULL,"
        " version text NOT NULL, role text NOT NULL, state text NOT NULL, started_at bigint NOT NULL, last_seen bigint NOT NULL,"
        " report text NOT NULL)"
    )
