"""The preview of a run's answer, by the name that its platform gave it; a decision beside the words that it was given in."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN preview text")
    op.execute("CREATE INDEX runs_previews ON runs (id) WHERE preview IS NOT NULL")
    op.execute("ALTER TABLE asks ADD COLUMN approved boolean")
