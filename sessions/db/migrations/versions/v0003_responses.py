"""Responses that are kept by id; whether the caller of a message left before the answer."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("ALTER TABLE inbox ADD COLUMN left_at bigint")
    op.execute(
        "CREATE TABLE responses (id text NOT NULL PRIMARY KEY, key_name text NOT NULL, kind text NOT NULL, session_key text,"
        " previous_id text, dedup_key text, ends_at bigint, input text, answer text, created_at bigint NOT NULL)"
    )
    op.execute("CREATE INDEX responses_by_session ON responses (session_key)")
    op.execute("CREATE INDEX responses_by_time ON responses (created_at)")
