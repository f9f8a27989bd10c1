"""Folds and digests, the index of observations, what was forgotten; a search index without tool results."""

from alembic import op

revision = "0004"
down_revision = "0003"

_TABLES = """
ALTER TABLE observations ADD COLUMN asked_as text;
CREATE INDEX observations_by_session ON observations (session_id);
ALTER TABLE sessions ADD COLUMN rewrites bigint NOT NULL DEFAULT 0;
CREATE TABLE memory_state (
    ns text NOT NULL PRIMARY KEY,
    digest text,
    rev bigint NOT NULL DEFAULT 0,
    changes bigint NOT NULL DEFAULT 0,
    fails bigint NOT NULL DEFAULT 0,
    retry_at bigint NOT NULL DEFAULT 0,
    lease_owner text,
    lease_until bigint
);
CREATE TABLE folds (
    session_id text NOT NULL PRIMARY KEY,
    ns text NOT NULL,
    folded_to bigint NOT NULL DEFAULT 0
);
INSERT INTO folds (session_id, ns, folded_to) SELECT id, ns, settled_to FROM sessions WHERE ended_at IS NOT NULL;
CREATE TABLE forgotten (
    id {row_id},
    ns text NOT NULL,
    up_to bigint NOT NULL,
    src text NOT NULL,
    marks text NOT NULL
);
CREATE INDEX forgotten_by_ns ON forgotten (ns);
UPDATE sessions SET indexed_to = 0"""

_ROW_ID = {"sqlite": "integer NOT NULL PRIMARY KEY AUTOINCREMENT", "postgresql": "bigserial PRIMARY KEY"}

_SEARCH = {
    "sqlite": """
INSERT INTO messages_fts(messages_fts) VALUES ('delete-all');
INSERT INTO messages_near(messages_near) VALUES ('delete-all');
INSERT INTO messages_words(messages_words) VALUES ('delete-all');
CREATE VIRTUAL TABLE observations_fts USING fts5(ns, text, asked, content='', tokenize='porter unicode61')""",
    "postgresql": """
TRUNCATE message_search;
CREATE TABLE observation_search (
    observation_id bigint PRIMARY KEY,
    ns text NOT NULL,
    stems tsvector NOT NULL
);
CREATE INDEX observation_search_stems ON observation_search USING gin (stems);
CREATE INDEX observation_search_ns ON observation_search (ns)""",
}


def upgrade() -> None:
    """Ended sessions count as folded: to summarise years of them would cost more than anybody expects of an upgrade. 0009 fills the index
    of observations."""
    conn = op.get_bind()
    dialect = conn.dialect.name
    for statement in (_TABLES.replace("{row_id}", _ROW_ID[dialect]) + ";" + _SEARCH[dialect]).split(";\n"):
        conn.exec_driver_sql(statement)
