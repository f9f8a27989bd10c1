"""Who decided what."""

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    key = "id integer NOT NULL PRIMARY KEY AUTOINCREMENT"
    if op.get_bind().dialect.name != "sqlite":
        key = "id bigserial NOT NULL PRIMARY KEY"
    op.execute(
        f"CREATE TABLE audit ({key}, at bigint NOT NULL, who text NOT NULL, action text NOT NULL, about text NOT NULL,"
        " detail text NOT NULL, dedup_key text UNIQUE)"
    )
    op.execute("CREATE INDEX audit_by_time ON audit (at)")
    op.execute("CREATE INDEX audit_about ON audit (about)")
