"""The tables of procrastinate, which distributes runs over several processes. PostgreSQL only."""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    conn = op.get_bind()
    if conn.dialect.name == "sqlite":
        return
    from procrastinate.schema import SchemaManager

    # Its own SQL as it is, of the version that pyproject.toml pins; without parameters, so its per cent signs mean nothing else.
    conn.connection.driver_connection.execute(SchemaManager.get_schema())  # type: ignore[union-attr]
    # Told within a transaction, a new job would let only one transaction at a time commit. The bus tells of it after the commit.
    op.execute("ALTER TABLE procrastinate_jobs DISABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1")
    op.execute("CREATE INDEX hermes_jobs_by_lock ON procrastinate_jobs (lock)")
    op.execute("CREATE INDEX hermes_jobs_by_group ON procrastinate_jobs (task_name)")
