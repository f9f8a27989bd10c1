"""What an empty database gets first. Databases of an older revision are refused.

Written out, not taken from the schema module: that one goes on growing, and this is what existing databases have been through.
"""

from alembic import op

revision = "0011"
down_revision = None

_TYPES = {
    "sqlite": {"{row_id}": "integer NOT NULL PRIMARY KEY AUTOINCREMENT", "{bytes}": "blob"},
    "postgresql": {"{row_id}": "bigserial PRIMARY KEY", "{bytes}": "bytea"},
}

_TABLES = """
CREATE TABLE meta (
    key text NOT NULL PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE sessions (
    id text NOT NULL PRIMARY KEY,
    session_key text NOT NULL,
    source text NOT NULL,
    user_id text,
    agent text NOT NULL,
    model text,
    model_config text,
    system_prompt text,
    title text,
    started_at bigint NOT NULL,
    ended_at bigint,
    end_reason text,
    last_user_at bigint,
    parent_session_id text,
    message_count bigint NOT NULL DEFAULT 0,
    tool_call_count bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    ns text NOT NULL,
    settled_to bigint NOT NULL DEFAULT 0,
    indexed_to bigint NOT NULL DEFAULT 0,
    rewrites bigint NOT NULL DEFAULT 0,
    announces text
);
CREATE UNIQUE INDEX sessions_active ON sessions (session_key) WHERE ended_at IS NULL;
CREATE INDEX sessions_by_key ON sessions (session_key, started_at);
CREATE INDEX sessions_by_parent ON sessions (parent_session_id);
CREATE INDEX sessions_by_start ON sessions (started_at);
CREATE INDEX sessions_unindexed ON sessions (id) WHERE indexed_to < settled_to;
CREATE INDEX sessions_by_last_user ON sessions (last_user_at) WHERE ended_at IS NULL;

CREATE TABLE messages (
    id {row_id},
    session_id text NOT NULL,
    run_id text,
    role text NOT NULL,
    content text,
    tool_calls text,
    tool_call_id text,
    tool_name text,
    token_count integer,
    created_at bigint NOT NULL,
    sender text,
    attachments text,
    state text NOT NULL DEFAULT 'done',
    idem_key text
);
CREATE INDEX messages_by_session ON messages (session_id, id);
CREATE INDEX messages_open ON messages (session_id, id) WHERE state IN ('pending', 'started');

CREATE TABLE runs (
    id text NOT NULL PRIMARY KEY,
    session_id text NOT NULL,
    session_key text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    stop_reason text,
    error text,
    wake_at bigint,
    lease_owner text,
    lease_until bigint,
    fence bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0,
    steps bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    worked_ms bigint NOT NULL DEFAULT 0,
    route text,
    options text,
    deployment text,
    thread_id text,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    preview text,
    noted text,
    away_since bigint,
    away_model text
);
CREATE UNIQUE INDEX runs_active ON runs (session_key) WHERE status IN ('running', 'waiting_on_human') AND kind <> 'farewell';
CREATE INDEX runs_by_session ON runs (session_id);
CREATE INDEX runs_running ON runs (status) WHERE status = 'running';
CREATE INDEX runs_shown ON runs (id) WHERE preview IS NOT NULL OR noted IS NOT NULL;
CREATE UNIQUE INDEX runs_farewell ON runs (session_id) WHERE status = 'running' AND kind = 'farewell';

CREATE TABLE asks (
    id {row_id},
    run_id text NOT NULL,
    tool_call_id text NOT NULL,
    kind text NOT NULL,
    question text NOT NULL,
    options text,
    args_hash text,
    created_at bigint NOT NULL,
    deadline bigint,
    answered_at bigint,
    answer text,
    answered_by text,
    approved boolean,
    UNIQUE (run_id, tool_call_id)
);

CREATE TABLE inbox (
    id {row_id},
    dedup_key text NOT NULL UNIQUE,
    session_key text NOT NULL,
    kind text NOT NULL,
    mode text NOT NULL,
    body text NOT NULL,
    route text,
    fingerprint text,
    created_at bigint NOT NULL,
    run_id text,
    outcome text,
    left_at bigint
);
CREATE INDEX inbox_by_run ON inbox (run_id);
CREATE INDEX inbox_unread ON inbox (session_key, id) WHERE outcome IS NULL;

CREATE TABLE outbox (
    id {row_id},
    dedup_key text NOT NULL UNIQUE,
    platform text NOT NULL,
    chat text NOT NULL,
    address text NOT NULL,
    session_key text NOT NULL,
    run_id text,
    body text NOT NULL,
    rendered boolean NOT NULL DEFAULT false,
    state text NOT NULL,
    root bigint,
    part bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0,
    doubts bigint NOT NULL DEFAULT 0,
    due_at bigint NOT NULL,
    created_at bigint NOT NULL,
    sent_at bigint,
    lease_owner text,
    lease_until bigint,
    platform_ids text,
    last_error text
);
CREATE INDEX outbox_by_run ON outbox (run_id);
CREATE INDEX outbox_open ON outbox (platform, chat, id) WHERE state IN ('pending', 'sending', 'unknown');

CREATE TABLE events (
    id {row_id},
    deployment text NOT NULL,
    run_id text,
    thread_id text,
    kind text NOT NULL,
    data text NOT NULL,
    created_at bigint NOT NULL
);
CREATE INDEX events_by_deployment ON events (deployment, id);
CREATE INDEX events_by_run ON events (run_id);

CREATE TABLE aliases (
    platform text NOT NULL,
    alias text NOT NULL,
    id text NOT NULL,
    PRIMARY KEY (platform, alias)
);

CREATE TABLE leases (
    name text NOT NULL PRIMARY KEY,
    owner text NOT NULL,
    until bigint NOT NULL,
    fence bigint NOT NULL DEFAULT 0
);

CREATE TABLE observations (
    id {row_id},
    ns text NOT NULL,
    kind text NOT NULL,
    text text NOT NULL,
    cause text,
    happened text,
    said_at bigint NOT NULL,
    src text NOT NULL,
    session_id text,
    supersedes bigint,
    closed_by bigint,
    closed_at bigint,
    weight bigint NOT NULL DEFAULT 0,
    used_at bigint,
    fold bigint NOT NULL DEFAULT 0,
    asked_as text,
    UNIQUE (ns, fold, text)
);
CREATE INDEX observations_by_ns ON observations (ns, id);
CREATE INDEX observations_by_session ON observations (session_id);

CREATE TABLE spending (
    day text NOT NULL PRIMARY KEY,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0
);

CREATE TABLE deployments (
    id text NOT NULL PRIMARY KEY,
    name text NOT NULL,
    customer_id text,
    system_prompt text,
    model text,
    created_by text NOT NULL,
    default_thread text,
    created_at bigint NOT NULL
);

CREATE TABLE overheard (
    id {row_id},
    session_key text NOT NULL,
    message_id text NOT NULL,
    sender text NOT NULL,
    text text NOT NULL,
    created_at bigint NOT NULL
);
CREATE INDEX overheard_by_key ON overheard (session_key, id);

CREATE TABLE people (
    platform text NOT NULL,
    user_id text NOT NULL,
    name text NOT NULL,
    owner boolean NOT NULL DEFAULT false,
    approved_at bigint NOT NULL,
    PRIMARY KEY (platform, user_id)
);

CREATE TABLE pairings (
    code_hash text NOT NULL PRIMARY KEY,
    platform text NOT NULL,
    user_id text NOT NULL,
    name text NOT NULL,
    address text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);

CREATE TABLE responses (
    id text NOT NULL PRIMARY KEY,
    key_name text NOT NULL,
    kind text NOT NULL,
    session_key text,
    previous_id text,
    dedup_key text,
    ends_at bigint,
    input text,
    answer text,
    created_at bigint NOT NULL
);
CREATE INDEX responses_by_session ON responses (session_key);
CREATE INDEX responses_by_time ON responses (created_at);

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

CREATE TABLE forgotten (
    id {row_id},
    ns text NOT NULL,
    up_to bigint NOT NULL,
    src text NOT NULL,
    marks text NOT NULL
);
CREATE INDEX forgotten_by_ns ON forgotten (ns);

CREATE TABLE note_vectors (
    id bigint NOT NULL PRIMARY KEY,
    ns text NOT NULL,
    model text NOT NULL,
    vector {bytes} NOT NULL
);
CREATE INDEX note_vectors_by_ns ON note_vectors (ns, id);

CREATE TABLE workers (
    name text NOT NULL PRIMARY KEY,
    owner text NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    version text NOT NULL,
    role text NOT NULL,
    state text NOT NULL,
    started_at bigint NOT NULL,
    last_seen bigint NOT NULL,
    report text NOT NULL
);

CREATE TABLE jobs (
    id text NOT NULL PRIMARY KEY,
    name text NOT NULL,
    prompt text NOT NULL,
    schedule text NOT NULL,
    timezone text NOT NULL,
    repeat_times bigint,
    completed bigint NOT NULL DEFAULT 0,
    enabled boolean NOT NULL,
    state text NOT NULL,
    created_at bigint NOT NULL,
    next_run_at bigint,
    last_run_at bigint,
    last_status text,
    last_error text,
    failures bigint NOT NULL DEFAULT 0,
    not_before bigint,
    run_soon_at bigint,
    told boolean NOT NULL,
    deliver text NOT NULL,
    route text,
    session_key text NOT NULL,
    ns text,
    origin text NOT NULL,
    made_by text,
    deployment text,
    thread_id text
);
CREATE INDEX jobs_due ON jobs (next_run_at) WHERE (next_run_at IS NOT NULL OR run_soon_at IS NOT NULL);
CREATE INDEX jobs_failing ON jobs (id) WHERE failures >= 3 AND NOT told;

CREATE TABLE job_slots (
    id {row_id},
    job_id text NOT NULL,
    slot bigint NOT NULL,
    dedup_key text NOT NULL UNIQUE,
    outcome text NOT NULL,
    status text NOT NULL,
    run_id text,
    created_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    error text
);
CREATE INDEX job_slots_by_job ON job_slots (job_id, id);
CREATE INDEX job_slots_by_run ON job_slots (run_id)"""

_SEARCH = {
    "sqlite": """
CREATE VIRTUAL TABLE messages_fts USING fts5(ns, sender, text, content='', tokenize='porter unicode61');
CREATE VIRTUAL TABLE messages_scoped USING fts5(words, content='', detail=none, columnsize=0, tokenize='porter unicode61');
CREATE VIRTUAL TABLE messages_words USING fts5(text, content='', detail=none, columnsize=0, tokenize='unicode61');
CREATE VIRTUAL TABLE observations_fts USING fts5(words, content='', detail=none, columnsize=0, tokenize='porter unicode61');
INSERT INTO messages_fts(messages_fts, rank) VALUES ('rank', 'bm25(0, 2.0, 1.0)');
-- Fewer, larger merges: indexing shares the only writer with everything else.
INSERT INTO messages_fts(messages_fts, rank) VALUES ('automerge', 16);
INSERT INTO messages_scoped(messages_scoped, rank) VALUES ('automerge', 16);
INSERT INTO messages_words(messages_words, rank) VALUES ('automerge', 16);
INSERT INTO messages_fts(messages_fts, rank) VALUES ('crisismerge', 64);
INSERT INTO messages_scoped(messages_scoped, rank) VALUES ('crisismerge', 64);
INSERT INTO messages_words(messages_words, rank) VALUES ('crisismerge', 64);
INSERT INTO messages_fts(messages_fts, rank) VALUES ('usermerge', 2);
INSERT INTO messages_scoped(messages_scoped, rank) VALUES ('usermerge', 2);
INSERT INTO messages_words(messages_words, rank) VALUES ('usermerge', 2);
INSERT INTO observations_fts(observations_fts, rank) VALUES ('usermerge', 2)
""",
    "postgresql": """
CREATE TEXT SEARCH DICTIONARY hermes_stem (TEMPLATE = snowball, Language = english);
CREATE TEXT SEARCH CONFIGURATION hermes (COPY = simple);
ALTER TEXT SEARCH CONFIGURATION hermes
    ALTER MAPPING FOR asciiword, asciihword, hword_asciipart, word, hword, hword_part WITH hermes_stem;
CREATE TABLE message_search (
    message_id bigint PRIMARY KEY,
    ns text NOT NULL,
    stems tsvector NOT NULL,
    words tsvector NOT NULL
);
CREATE INDEX message_search_stems ON message_search USING gin (stems);
CREATE INDEX message_search_words ON message_search USING gin (words);
CREATE INDEX message_search_ns ON message_search (ns);
CREATE TABLE observation_search (
    observation_id bigint PRIMARY KEY,
    ns text NOT NULL,
    stems tsvector NOT NULL
);
CREATE INDEX observation_search_stems ON observation_search USING gin (stems);
CREATE INDEX observation_search_ns ON observation_search (ns)
""",
}


def upgrade() -> None:
    conn = op.get_bind()
    dialect = conn.dialect.name
    tables = _TABLES
    for name, its_type in _TYPES[dialect].items():
        tables = tables.replace(name, its_type)
    for statement in (tables + ";" + _SEARCH[dialect]).split(";\n"):
        conn.exec_driver_sql(statement)
