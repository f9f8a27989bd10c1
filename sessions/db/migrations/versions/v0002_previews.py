"""Columns for what a chat is shown of a run (the preview of its answer, the messages marked as read) and for the decision of an approval."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN preview text")
    op.execute("ALTER TABLE runs ADD COLUMN noted text")
    op.execute("CREATE INDEX runs_shown ON runs (id) WHERE preview IS NOT NULL OR noted IS NOT NULL")
    op.execute("ALTER TABLE asks ADD COLUMN approved boolean")
    op.execute("UPDATE asks SET approved = (answer = 'yes') WHERE kind = 'approval' AND answer IS NOT NULL")
