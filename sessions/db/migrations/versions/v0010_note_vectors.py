"""Vectors of observations, for a search by meaning."""

from alembic import op

revision = "0010"
down_revision = "0009"

_VECTOR = {"sqlite": "blob", "postgresql": "bytea"}


def upgrade() -> None:
    op.execute(
        f"""
CREATE TABLE note_vectors (
    id bigint NOT NULL PRIMARY KEY,
    ns text NOT NULL,
    model text NOT NULL,
    vector {_VECTOR[op.get_bind().dialect.name]} NOT NULL
)"""
    )
    op.execute("CREATE INDEX note_vectors_by_ns ON note_vectors (ns, id)")
