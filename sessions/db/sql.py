"""SQL that SQLAlchemy lacks: typed parameters, inserts that ignore doubles, text that every database can store."""

import json
from enum import StrEnum
from functools import lru_cache
from importlib import import_module
from sys import intern
from typing import Any, get_origin

from sqlalchemy import BindParameter, Connection, Dialect, Table, Text, TypeDecorator, bindparam, text

from sessions import codec


def param(name: str) -> BindParameter[Any]:
    """A value that is given when the statement runs, so that the statement is built only once."""
    return bindparam(name)


LOCKED = "locked"
"""Where a connection's `info` holds the locks of the transaction that goes on; whoever begins one on PostgreSQL empties it."""


def lock(conn: Connection, name: str, *, space: int = 0) -> None:
    """On PostgreSQL, makes transactions that name the same thing wait for each other, until they end. SQLite has one writer anyway."""
    if conn.dialect.name != "sqlite":
        held = conn.info.setdefault(LOCKED, set[tuple[str, int]]())
        if (name, space) not in held:
            conn.execute(_LOCK, {"name": name, "space": space})
            held.add((name, space))


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


def inserting(dialect: str, table: Table) -> Any:
    """Returns an insert of this table that can say what becomes of a row that is there."""
    return _insert(dialect)(table)


def _insert(dialect: str) -> Any:
    return import_module(f"sqlalchemy.dialects.{dialect}").insert  # only the one in use: each takes its memory


@lru_cache
def _inserting_once(dialect: str, table: Table) -> Any:
    return _insert(dialect)(table).on_conflict_do_nothing(index_elements=["dedup_key"]).returning(table.c.id)


def storable(text: str) -> str:
    """NUL and halves of surrogate pairs, which not every database can hold, become U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Prose(TypeDecorator[str]):
    """Text from people, models and tools."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002  # SQLAlchemy's signature
        return None if value is None else storable(value)


class Word(TypeDecorator[Any]):
    """A member of a closed set. It is stored as its word."""

    impl = Text
    cache_ok = True

    def __init__(self, members: type[StrEnum]) -> None:
        super().__init__()
        self.members = members

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:  # noqa: ARG002  # SQLAlchemy's signature
        # A lookup in a dict, because calling an enum takes as long as the rest of a row.
        return {None: None, **{member.value: member for member in self.members}}.__getitem__


class Repeated(TypeDecorator[str]):
    """Text that many rows share, such as the id of their session. It is in memory once."""

    impl = Text
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:  # noqa: ARG002  # SQLAlchemy's signature
        def read(text: str | None) -> str | None:
            return None if text is None else intern(text)

        return read


class Json(TypeDecorator[Any]):
    """JSON as text. `shape`: what it is in Python (see `codec`), or a class with `to_json` and `from_json`; None: dicts and lists as they
    are. NULL is None, and an empty tuple where the shape is one.
    """

    impl = Text
    cache_ok = True

    def __init__(self, shape: Any = None) -> None:
        super().__init__()
        self.shape = shape

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002  # SQLAlchemy's signature
        if value is None:
            return None
        if hasattr(self.shape, "to_json"):
            return storable(value.to_json())
        is_plain = self.shape in {None, tuple}
        return storable(codec.dump(value if is_plain else codec.plain(self.shape, value)))

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:  # noqa: ARG002  # SQLAlchemy's signature
        nothing = () if tuple in {self.shape, get_origin(self.shape)} else None

        def read(text: str | None) -> Any:
            return self._read(text) if text else nothing

        return read

    def _read(self, text: str) -> Any:
        if hasattr(self.shape, "from_json"):
            return self.shape.from_json(text)
        stored = json.loads(text)
        if self.shape is None:
            return stored
        return tuple(stored) if self.shape is tuple else codec.shaped(self.shape, stored)
