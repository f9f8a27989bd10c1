"""What each day has cost: messages and tokens of each person and each key.

`who` is a name of `people`, `<platform>:<id>`, or `key:<name>`; empty for what nobody in particular has asked for, such as jobs and notes.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from sessions import audit, store
from sessions.clock import iso
from sessions.db.schema import usage
from sessions.db.sql import insert_or_add, lock, param
from sessions.errors import DayLimitReached

NOBODY = ""
DAY_MS = 24 * 3_600_000

_OF_DAY = select(
    func.coalesce(func.sum(usage.c.input_tokens), 0), func.coalesce(func.sum(usage.c.output_tokens), 0)
).where(usage.c.day == param("of"))
_OF_PERSON = select(usage).where(usage.c.day == param("of"), usage.c.who == param("by"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DayUsage:
    """What one person has used in a day."""

    messages: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLimit:
    """What one person may use in a day; 0: as much as they like."""

    messages: int = 0
    tokens: int = 0

    def reached(self, used: DayUsage) -> str | None:
        """Returns which limit is reached: `messages` or `tokens`."""
        if self.messages and used.messages >= self.messages:
            return "messages"
        return "tokens" if self.tokens and used.tokens >= self.tokens else None


NO_LIMIT = DayLimit()


def of_day(conn: Connection, day: str) -> tuple[int, int]:
    """Returns the tokens in and out of everybody."""
    read, written = conn.execute(_OF_DAY, {"of": day}).one()
    return int(read), int(written)


def of_person(conn: Connection, day: str, who: str) -> DayUsage:
    row = conn.execute(_OF_PERSON, {"of": day, "by": who}).first()
    return DayUsage() if row is None else DayUsage(messages=row.messages, tokens=row.input_tokens + row.output_tokens)


def require(conn: Connection, who: str, limit: DayLimit, now: int) -> None:
    """Raises DayLimitReached when this person has used what they may use today. It belongs into the transaction that counts the message, after
    the lock of its session: of two messages at once only one is the last. Whoever catches it calls `record_reached`."""
    if not (limit.messages or limit.tokens):
        return
    lock(conn, f"usage of {who}")
    day = iso(now)[:10]
    reached = limit.reached(of_person(conn, day, who))
    if reached is not None:
        most = limit.messages if reached == "messages" else limit.tokens
        raise DayLimitReached(who, reached, most=most, day=day, seconds=-(-(DAY_MS - now % DAY_MS) // 1000))


def record_reached(conn: Connection, reached: DayLimitReached, now: int) -> None:
    """Records it, once a day."""
    once = f"limit:{reached.who}:{reached.which}:{reached.day}"
    audit.record(conn, now, reached.who, "limit.reached", f"{reached.which}_per_day", reached.day, once=once)


def take_message(conn: Connection, who: str, limit: DayLimit, now: int) -> None:
    """Counts one message. Raises DayLimitReached as `require` does."""
    require(conn, who, limit, now)
    add(conn, iso(now)[:10], who, messages=1)


def add(
    conn: Connection, day: str, who: str, *, messages: int = 0, input_tokens: int = 0, output_tokens: int = 0
) -> None:
    """Works for any number of transactions at once; the first of a day makes the row."""
    amounts = {"messages": messages, "input_tokens": input_tokens, "output_tokens": output_tokens}
    insert_or_add(conn, usage, {"day": day, "who": who}, amounts)


def add_for_session(
    conn: Connection, session_id: str, day: str, who: str, input_tokens: int, output_tokens: int
) -> None:
    """Adds the tokens of a call whose answer is no message of the session: to the session and to the day."""
    store.count_used(conn, session_id, input_tokens, output_tokens)
    add(conn, day, who, input_tokens=input_tokens, output_tokens=output_tokens)
