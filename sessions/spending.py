"""What all runs of a day have used."""

from sqlalchemy import Connection, insert, select, update

from sessions.db.schema import spending
from sessions.db.sql import param

_OF_DAY = select(spending.c.input_tokens, spending.c.output_tokens).where(spending.c.day == param("of"))
_ADD = (
    update(spending)
    .where(spending.c.day == param("of"))
    .values(
        input_tokens=spending.c.input_tokens + param("read"), output_tokens=spending.c.output_tokens + param("written")
    )
)


def of_day(conn: Connection, day: str) -> tuple[int, int]:
    """Tokens in and out."""
    row = conn.execute(_OF_DAY, {"of": day}).first()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def add(conn: Connection, day: str, input_tokens: int, output_tokens: int) -> None:
    if conn.execute(_ADD, {"of": day, "read": input_tokens, "written": output_tokens}).rowcount == 0:
        conn.execute(insert(spending), {"day": day, "input_tokens": input_tokens, "output_tokens": output_tokens})
