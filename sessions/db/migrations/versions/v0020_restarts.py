"""When a run was taken up again after its process was gone, for its timeline."""

from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN restarts text")
