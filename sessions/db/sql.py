"""What SQLAlchemy leaves open: a typed parameter, and text that any database can hold."""

from typing import Any

from sqlalchemy import BindParameter, Dialect, Text, TypeDecorator, bindparam


def param(name: str) -> BindParameter[Any]:
    """A value that is given when the statement runs, so that the statement is built only once."""
    return bindparam(name)


class Prose(TypeDecorator[str]):
    """Text from people, models and tools. NUL and halves of surrogate pairs, which not every database can hold, become U+FFFD."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002  # SQLAlchemy's signature
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
