"""Words of the index of observations are made one with their namespace on SQLite; the index is made anew on both databases."""

import json

from alembic import op
from sqlalchemy import text

from sessions.search import note_index

revision = "0009"
down_revision = "0008"

_SEARCH = {
    "sqlite": """
DROP TABLE observations_fts;
CREATE VIRTUAL TABLE observations_fts USING fts5(words, content='', detail=none, columnsize=0, tokenize='porter unicode61')""",
    "postgresql": "TRUNCATE observation_search",
}


def upgrade() -> None:
    conn = op.get_bind()
    for statement in _SEARCH[conn.dialect.name].strip().split(";\n"):
        conn.exec_driver_sql(statement)
    for row in conn.execute(text("SELECT id, ns, text, cause, asked_as FROM observations")).all():
        asked = json.loads(row.asked_as) if row.asked_as else ()
        note_index.add(conn, row.id, row.ns, (row.text, row.cause or ""), asked)
