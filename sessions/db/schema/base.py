"""What all tables share: the metadata, kinds of columns, partial indexes."""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, TextClause, text

metadata = MetaData()

# SQLite numbers rows by itself only in a column whose type is exactly INTEGER.
_Id = BigInteger().with_variant(Integer, "sqlite")


def row_id() -> Column[int]:
    """Returns a growing id. With `sqlite_autoincrement` a deleted row's id is never given again: mirrors rely on it."""
    return Column("id", _Id, primary_key=True, autoincrement=True)


def count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def partial_index(name: str, *columns: str, where: TextClause, unique: bool = False) -> Index:
    """The condition is noted beside the index, because to name a dialect is to load it, and each takes 3 MB.

    Queries use the very words of the condition: SQLite takes the index only for literal values, not for parameters.
    """
    return Index(name, *columns, unique=unique, info={"where": where})
