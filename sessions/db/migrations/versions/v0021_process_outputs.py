"""What a process of the agent has printed, for whoever asks from another worker, and after its end."""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.execute("ALTER TABLE processes ADD COLUMN asked_at bigint")
    op.execute("ALTER TABLE processes ADD COLUMN output text")
