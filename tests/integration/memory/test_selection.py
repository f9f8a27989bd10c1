"""Which notes a prompt shows when not all of them fit."""

from sqlalchemy import Connection

from sessions import memory
from sessions.db import Database
from sessions.records import Observation
from tests.integration.memory.folding import NS


def test_observations_beyond_the_budget_are_chosen_in_steps(sqlite: Database) -> None:
    """By weight and recency, and the choice stays while up to fifteen more come."""

    def add(conn: Connection, number: int) -> Observation:
        return memory.note(conn, NS, f"fact number {number}", number)

    def shown(conn: Connection) -> list[str]:
        found = memory.lines(conn, NS)
        return [line.text for line in memory.choose(found, 200, {line.id: 10 for line in found})]

    for number in range(64):
        sqlite.write_now(add, number)
    before = sqlite.read_now(shown)
    assert len(before) == 15
    for number in range(64, 69):
        sqlite.write_now(add, number)
        after = sqlite.read_now(shown)
        assert after[: len(before)] == before
        before = after
    assert len(before) == 20
