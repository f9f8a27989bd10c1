"""What one message costs the database of a team: statements and commits, from its arrival to the mark that its answer was sent."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event

from tests.integration.gateway.test_delivery import Chats, delivering, until
from tests.integration.runs.worker_in_process import worker_in_process

MOST, COMMITS = 36, 10
OF_ENGINE = 8
"""Statements of the engine that distributes runs over processes."""
LOOKED = ("AND kind != 'farewell'", "kind = 'farewell'", "SELECT DISTINCT inbox.session_key")
"""What is asked by the clock, not for each message."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    found = Counter[str]()

    def statement(_conn: object, _cursor: object, text: str, *_: object) -> None:
        found[" ".join(text.split())] += 1

    def ended(_: object) -> None:
        found["COMMIT"] += 1

    heard = [("before_cursor_execute", statement), ("commit", ended)]
    for name, listener in heard:
        event.listen(Engine, name, listener)
    try:
        yield found
    finally:
        for name, listener in heard:
            event.remove(Engine, name, listener)


async def test_a_message_takes_few_statements(home, postgres_url):
    chats = Chats(per_second=100_000)
    async with worker_in_process(home, ["one", "two"], url=postgres_url) as it, delivering(it.database, chats):
        await it.say("first")
        await until(lambda: len(chats.sent) == 1)
        await asyncio.sleep(0.1)
        with counted() as found:
            await it.accept("second")
            await until(lambda: len(chats.sent) == 2)
            await until(lambda: any("sent_at" in text for text in found))
    asked = {text: count for text, count in found.items() if not any(part in text for part in LOOKED)}
    commits = asked.pop("COMMIT")
    engine = {text: count for text, count in asked.items() if "procrastinate" in text}
    assert sum(engine.values()) <= OF_ENGINE, engine
    assert sum(asked.values()) - sum(engine.values()) <= MOST, asked
    assert commits <= COMMITS
