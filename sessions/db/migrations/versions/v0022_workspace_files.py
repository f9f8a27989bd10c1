"""Files that several gateways on PostgreSQL share. SQLite does not use it."""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    key, data = "id integer NOT NULL PRIMARY KEY AUTOINCREMENT", "blob"
    if op.get_bind().dialect.name != "sqlite":
        key, data = "id bigserial NOT NULL PRIMARY KEY", "bytea"
    op.execute(
        f"CREATE TABLE workspace_files ({key}, ns text NOT NULL, path text NOT NULL, sha256 text NOT NULL, size bigint NOT NULL,"
        f" mtime bigint NOT NULL, executable bigint NOT NULL, data {data} NOT NULL, UNIQUE (ns, path))"
    )
    op.execute("CREATE INDEX workspace_files_newest ON workspace_files (ns, id)")
