"""Hashed keys of events whose session was deleted, so that a repeated event is recognised."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("CREATE TABLE deleted_keys (hash text NOT NULL PRIMARY KEY, deleted_at bigint NOT NULL)")
    op.execute("CREATE INDEX deleted_keys_by_time ON deleted_keys (deleted_at)")
