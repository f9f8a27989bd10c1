"""On SQLite the index of messages stores each word joined with its namespace. The indexes are filled anew. Small segments are merged early."""

import json

from alembic import op
from sqlalchemy import text

from sessions.search import note_index

revision = "0011"
down_revision = "0010"

_SQLITE = """
DROP TABLE messages_near;
CREATE VIRTUAL TABLE messages_scoped USING fts5(words, content='', detail=none, columnsize=0, tokenize='porter unicode61');
INSERT INTO messages_scoped(messages_scoped, rank) VALUES ('automerge', 16);
INSERT INTO messages_scoped(messages_scoped, rank) VALUES ('crisismerge', 64);
INSERT INTO messages_fts(messages_fts, rank) VALUES ('usermerge', 2);
INSERT INTO messages_scoped(messages_scoped, rank) VALUES ('usermerge', 2);
INSERT INTO messages_words(messages_words, rank) VALUES ('usermerge', 2);
INSERT INTO observations_fts(observations_fts, rank) VALUES ('usermerge', 2);
INSERT INTO messages_fts(messages_fts) VALUES ('delete-all');
INSERT INTO messages_words(messages_words) VALUES ('delete-all');
INSERT INTO observations_fts(observations_fts) VALUES ('delete-all');
UPDATE sessions SET indexed_to = 0"""


def upgrade() -> None:
    conn = op.get_bind()
    if conn.dialect.name != "sqlite":
        return
    for statement in _SQLITE.strip().split(";\n"):
        conn.exec_driver_sql(statement)
    for row in conn.execute(text("SELECT id, ns, text, cause, asked_as FROM observations")).all():
        asked = json.loads(row.asked_as) if row.asked_as else ()
        note_index.add(conn, row.id, row.ns, (row.text, row.cause or ""), asked)
