"""Columns that nothing reads are dropped."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute("ALTER TABLE asks DROP COLUMN deadline")
    op.execute("ALTER TABLE observations DROP COLUMN used_at")
