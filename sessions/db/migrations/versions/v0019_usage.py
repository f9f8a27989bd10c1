"""What each person and key has used in a day. The table before it stays, because older versions that still run write there."""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE usage (day text NOT NULL, who text NOT NULL, messages bigint NOT NULL DEFAULT 0, input_tokens bigint NOT NULL DEFAULT 0,"
        " output_tokens bigint NOT NULL DEFAULT 0, PRIMARY KEY (day, who))"
    )
    op.execute(
        "INSERT INTO usage (day, who, input_tokens, output_tokens) SELECT day, '', input_tokens, output_tokens FROM spending"
    )
    op.execute("ALTER TABLE runs ADD COLUMN who text")
