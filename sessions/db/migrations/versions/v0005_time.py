"""Runs that sleep until the model can be reached."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN away_since bigint")
    op.execute("ALTER TABLE runs ADD COLUMN away_model text")
