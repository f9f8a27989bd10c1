"""A small version of `bench/context.py`: the same conversation, shorter."""

import itertools
from pathlib import Path

from bench import context


async def test_prompts_stay_bounded_and_planted_facts_last(home: Path) -> None:
    _, figures = await context.measure(home, 300, 20, looks=(100, 300), times=False)
    assert figures["bound"] <= 1.3
    assert figures["kept"] >= 0.95
    assert figures["saved"] > 1.5


def test_the_fold_is_never_told_the_question_of_the_test() -> None:
    facts = context.planted(20)
    said = "\n".join(f"{number} 2025-01-01 user: {fact.statement}" for number, fact in enumerate(facts, 1))
    answer = context.scripted_fold({"messages": [{}, {"content": said}]})
    assert all(fact.value in answer and fact.question not in answer for fact in facts)


def test_hard_turns_are_among_the_ordinary_ones() -> None:
    first = [text for text, _ in itertools.islice(context.turns(1_000, context.planted(10)), 200)]
    assert any(len(text) > 5_000 for text in first)
    assert "ok" in first
    assert any("forget everything" in text for text in first)
