"""The processes that work on one database."""

from sqlalchemy import BigInteger, Column, Table, Text

from sessions.db.schema.base import count, metadata
from sessions.db.sql import Prose

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until", BigInteger, nullable=False),
    count("fence"),
)

workers = Table(
    "workers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("version", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    Column("report", Prose, nullable=False),
)
