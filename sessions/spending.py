"""Counts the tokens that all runs of a day have used."""

from sqlalchemy import Connection, select

from sessions import store
from sessions.db.schema import spending
from sessions.db.sql import insert_or_add, param

_OF_DAY = select(spending.c.input_tokens, spending.c.output_tokens).where(spending.c.day == param("of"))


def of_day(conn: Connection, day: str) -> tuple[int, int]:
    """Tokens in and out."""
    row = conn.execute(_OF_DAY, {"of": day}).first()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def add(conn: Connection, day: str, input_tokens: int, output_tokens: int) -> None:
    """Works for any number of transactions at once; the first of a day makes the row."""
    insert_or_add(conn, spending, {"day": day}, {"input_tokens": input_tokens, "output_tokens": output_tokens})


def add_for_session(conn: Connection, session_id: str, day: str, input_tokens: int, output_tokens: int) -> None:
    """Adds the tokens of a call whose answer is no message of the session: to the session and to the day."""
    store.count_used(conn, session_id, input_tokens, output_tokens)
    add(conn, day, input_tokens, output_tokens)
