"""What is remembered, and how it is found."""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Table, Text, UniqueConstraint

from sessions.db.schema.base import count, metadata, row_id
from sessions.db.sql import Prose

observations = Table(
    "observations",
    metadata,
    row_id(),
    Column("ns", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Prose, nullable=False),
    Column("cause", Prose),
    Column("happened", Prose),
    Column("said_at", BigInteger, nullable=False),
    Column("src", Text, nullable=False),
    Column("session_id", Text),
    Column("supersedes", BigInteger),
    Column("closed_by", BigInteger),
    Column("closed_at", BigInteger),
    count("weight"),
    count("fold"),
    Column("asked_as", Prose),
    UniqueConstraint("ns", "fold", "text"),
    Index("observations_by_ns", "ns", "id"),
    Index("observations_by_session", "session_id"),
    sqlite_autoincrement=True,
)

note_vectors = Table(
    "note_vectors",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("ns", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Index("note_vectors_by_ns", "ns", "id"),
)
"""What a model for embeddings makes of an observation, which goes with it. `vector`: of length one, as 32-bit floats."""

memory_state = Table(
    "memory_state",
    metadata,
    Column("ns", Text, primary_key=True),
    Column("digest", Prose),
    count("rev"),
    count("changes"),
    count("fails"),
    count("retry_at"),
    Column("lease_owner", Text),
    Column("lease_until", BigInteger),
)
"""One row for each namespace that has a memory. `rev` grows with whatever makes a fold that is under way worthless, `changes` with
every change."""

folds = Table(
    "folds",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("ns", Text, nullable=False),
    count("folded_to"),
)
"""How far each session is folded."""

forgotten = Table(
    "forgotten",
    metadata,
    row_id(),
    Column("ns", Text, nullable=False),
    Column("up_to", BigInteger, nullable=False),
    Column("src", Text, nullable=False),
    Column("marks", Text, nullable=False),
    Index("forgotten_by_ns", "ns"),
    sqlite_autoincrement=True,
)
"""What people had removed, without a word of it: `marks` are short keyed hashes, each of which many words share. `up_to`: the last
message that was there."""

message_search = Table(  # PostgreSQL only: its tsvector columns are added by the migration
    "message_search",
    MetaData(),
    Column("message_id", BigInteger, primary_key=True),
    Column("ns", Text, nullable=False),
)
