"""Who talks with the agent, and the deployments."""

from sqlalchemy import BigInteger, Boolean, Column, Table, Text, text

from sessions.db.schema.base import metadata
from sessions.db.sql import Prose

aliases = Table(
    "aliases",
    metadata,
    Column("platform", Text, primary_key=True),
    Column("alias", Text, primary_key=True),
    Column("id", Text, nullable=False),
)

people = Table(
    "people",
    metadata,
    Column("platform", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("name", Prose, nullable=False),
    Column("owner", Boolean, nullable=False, server_default=text("false")),
    Column("approved_at", BigInteger, nullable=False),
)

pairings = Table(
    "pairings",
    metadata,
    Column("code_hash", Text, primary_key=True),
    Column("platform", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("name", Prose, nullable=False),
    Column("address", Prose, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

deployments = Table(
    "deployments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Prose, nullable=False),
    Column("customer_id", Prose),
    Column("system_prompt", Prose),
    Column("model", Text),
    Column("created_by", Text, nullable=False),
    Column("default_thread", Text),
    Column("created_at", BigInteger, nullable=False),
)
