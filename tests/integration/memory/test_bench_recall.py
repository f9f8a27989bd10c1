"""A small version of `bench/recall.py`: notes written by hand, so that it runs without a model."""

from pathlib import Path

from bench import everyday
from bench.facts import FACTS, QuestionKind
from bench.recall import EVERYDAY, everyday_missed, facts_found, put_everyday
from gateway.agent.window import Window
from sessions.db import Database


def test_facts_are_found_in_the_first_three_hits_however_they_are_asked_for(sqlite: Database) -> None:
    assert len({fact.said for fact in FACTS}) == 60
    for fact in FACTS:
        assert fact.question not in fact.asked_as, "that would be the question of the test"
        assert all(len(asked) <= 100 for asked in fact.asked_as)
    found = facts_found(sqlite, 600)
    assert (found[QuestionKind.RARE], found[QuestionKind.COMMON]) == (20, 20)
    assert found[QuestionKind.PARAPHRASE] >= 15


def test_what_was_said_in_ten_days_is_in_the_prompt_of_small_windows(sqlite: Database) -> None:
    """Without a note. Ten of the forty questions name a day, some nothing else."""
    place = put_everyday(sqlite)
    for size in (4_096, 8_192):
        missed = everyday_missed(place, Window(size=size))
        assert len(everyday.QUESTIONS) - len(missed) >= EVERYDAY, missed


def test_the_dataset_is_not_shipped() -> None:
    assert not list(Path(__file__).parents[3].rglob("locomo10*.json"))
