"""A small version of `bench/recall.py`: notes written by hand, so that it runs without a model."""

from pathlib import Path

from bench.facts import FACTS, QuestionKind
from bench.recall import facts_found
from sessions.db import Database


def test_facts_are_found_in_the_first_three_hits_however_they_are_asked_for(sqlite: Database) -> None:
    assert len({fact.said for fact in FACTS}) == 60
    for fact in FACTS:
        assert fact.question not in fact.asked_as, "that would be the question of the test"
        assert all(len(asked) <= 100 for asked in fact.asked_as)
    found = facts_found(sqlite, 600)
    assert (found[QuestionKind.RARE], found[QuestionKind.COMMON]) == (20, 20)
    assert found[QuestionKind.PARAPHRASE] >= 15


def test_the_dataset_is_not_shipped() -> None:
    assert not list(Path(__file__).parents[3].rglob("locomo10*.json"))
