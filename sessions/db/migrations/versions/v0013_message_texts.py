"""On SQLite `messages_fts` reads the texts of its messages from their rows, for `text` and snippet(). The indexes of messages are filled anew.
Every message has a count of tokens.
"""

from alembic import op

revision = "0013"
down_revision = "0012"

_SQLITE = """
CREATE VIEW messages_indexed AS SELECT m.id AS id, s.ns AS ns, m.sender AS sender, m.content AS text FROM messages m
    JOIN sessions s ON s.id = m.session_id WHERE m.id <= s.indexed_to AND m.content <> ''
    AND (m.role IN ('user', 'assistant') OR (m.role = 'tool' AND m.sender IS NOT NULL));
DROP TABLE messages_fts;
CREATE VIRTUAL TABLE messages_fts USING fts5(ns, sender, text, content='messages_indexed', content_rowid='id', tokenize='porter unicode61');
INSERT INTO messages_fts(messages_fts, rank) VALUES ('rank', 'bm25(0, 2.0, 1.0)');
INSERT INTO messages_fts(messages_fts, rank) VALUES ('automerge', 16);
INSERT INTO messages_fts(messages_fts, rank) VALUES ('crisismerge', 64);
INSERT INTO messages_fts(messages_fts, rank) VALUES ('usermerge', 2);
INSERT INTO messages_scoped(messages_scoped) VALUES ('delete-all');
INSERT INTO messages_words(messages_words) VALUES ('delete-all');
UPDATE sessions SET indexed_to = 0"""
_BYTES = {"sqlite": "length(CAST(content AS blob))", "postgresql": "octet_length(content)"}


def upgrade() -> None:
    conn = op.get_bind()
    if conn.dialect.name == "sqlite":
        for statement in _SQLITE.strip().split(";\n"):
            conn.exec_driver_sql(statement)
    size = f"(coalesce({_BYTES[conn.dialect.name]}, 0) + 3) / 4"
    conn.exec_driver_sql(f"UPDATE messages SET token_count = {size} WHERE token_count IS NULL")  # noqa: S608  # our own words
