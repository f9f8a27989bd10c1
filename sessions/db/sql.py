"""SQL that SQLAlchemy lacks: typed parameters, inserts that ignore doubles, text that every database can store."""

from functools import lru_cache
from importlib import import_module
from typing import Any

from sqlalchemy import BindParameter, Connection, Dialect, Table, Text, TypeDecorator, bindparam, text


def param(name: str) -> BindParameter[Any]:
    """A value that is given when the statement runs, so that the statement is built only once."""
    return bindparam(name)


def lock(conn: Connection, name: str, *, space: int = 0) -> None:
    """On PostgreSQL, makes transactions that name the same thing wait for each other, until they end. SQLite has one writer anyway."""
    if conn.dialect.name != "sqlite":
        conn.execute(_LOCK, {"name": name, "space": space})


_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, :space))")


def insert_once(conn: Connection, table: Table, values: dict[str, Any]) -> int | None:
    """The new row's id; None when a row with this `dedup_key` is there."""
    return conn.execute(_inserting_once(conn.dialect.name, table), values).scalar()


def insert_or_ignore(conn: Connection, table: Table, values: dict[str, Any]) -> bool:
    """False when a row with the same primary key is there, also when another transaction has put it in this very moment."""
    key = list(table.primary_key)
    inserting = _insert(conn.dialect.name)(table).on_conflict_do_nothing(index_elements=key).returning(*key)
    return conn.execute(inserting, values).first() is not None


def insert_or_add(conn: Connection, table: Table, values: dict[str, Any], amounts: dict[str, int]) -> None:
    """Insert the row of this primary key with these amounts; where it is there, add the amounts to what it holds."""
    conn.execute(_adding(conn.dialect.name, table, tuple(amounts)), {**values, **amounts})


@lru_cache
def _adding(dialect: str, table: Table, names: tuple[str, ...]) -> Any:
    inserting = _insert(dialect)(table)
    sums = {name: table.c[name] + inserting.excluded[name] for name in names}
    return inserting.on_conflict_do_update(index_elements=list(table.primary_key), set_=sums)


def _insert(dialect: str) -> Any:
    return import_module(f"sqlalchemy.dialects.{dialect}").insert  # only the one in use: each takes its memory


@lru_cache
def _inserting_once(dialect: str, table: Table) -> Any:
    return _insert(dialect)(table).on_conflict_do_nothing(index_elements=["dedup_key"]).returning(table.c.id)


class Prose(TypeDecorator[str]):
    """Text from people, models and tools. NUL and halves of surrogate pairs, which not every database can hold, become U+FFFD."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002  # SQLAlchemy's signature
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
