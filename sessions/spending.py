"""What all runs of a day have used."""

from sqlalchemy import Connection, insert, select, update

from sessions.db.schema import spending


def of_day(conn: Connection, day: str) -> tuple[int, int]:
    """Tokens in and out."""
    row = conn.execute(select(spending.c.input_tokens, spending.c.output_tokens).where(spending.c.day == day)).first()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def add(conn: Connection, day: str, input_tokens: int, output_tokens: int) -> None:
    """What was used beside the runs that are kept."""
    values = {
        "input_tokens": spending.c.input_tokens + input_tokens,
        "output_tokens": spending.c.output_tokens + output_tokens,
    }
    if conn.execute(update(spending).where(spending.c.day == day).values(values)).rowcount == 0:
        conn.execute(insert(spending), {"day": day, "input_tokens": input_tokens, "output_tokens": output_tokens})
