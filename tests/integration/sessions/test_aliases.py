"""Ids that belong together: the first one stays the key."""

import asyncio

from sessions import people
from sessions.db import Database


def test_an_id_that_was_never_joined_is_its_own(database: Database) -> None:
    assert database.read_now(people.first_id, "telegram", "-5") == "-5"


def test_the_supergroup_is_known_by_the_group_it_was(database: Database) -> None:
    database.write_now(people.join_ids, "telegram", "-1001", "-5")
    assert database.read_now(people.first_id, "telegram", "-1001") == "-5"
    assert database.read_now(people.first_id, "telegram", "-5") == "-5"
    assert database.read_now(people.first_id, "slack", "-1001") == "-1001"


def test_joining_again_or_backwards_changes_nothing(database: Database) -> None:
    for alias, first in (("b", "a"), ("b", "a"), ("a", "b"), ("a", "a")):
        database.write_now(people.join_ids, "whatsapp", alias, first)
    assert {database.read_now(people.first_id, "whatsapp", name) for name in "ab"} == {"a"}


def test_chains_lead_to_the_first_id(database: Database) -> None:
    for alias, first in (("b", "a"), ("c", "b"), ("y", "x"), ("y", "c"), ("x", "b")):
        database.write_now(people.join_ids, "whatsapp", alias, first)
    assert {database.read_now(people.first_id, "whatsapp", name) for name in "abcxy"} == {"a"}


async def test_joins_at_the_same_time_make_no_circle(database: Database) -> None:
    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"), ("a", "c")] * 3
    await asyncio.gather(*(database.write(people.join_ids, "whatsapp", alias, first) for alias, first in pairs))
    found = [await database.read(people.first_id, "whatsapp", name) for name in "abc"]
    assert len(set(found)) == 1
