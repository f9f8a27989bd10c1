"""The system prompt: the same from turn to turn. In a small window whole blocks are left out, never halves of
sentences."""

import re
from collections.abc import Callable, Sequence

Cost = Callable[[str], int]
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")


def core(agent: str, layered: Sequence[str], house: Sequence[str], budget: int, cost: Cost) -> str:
    """Who the agent is, what the caller has added, and the house's rules, whose last block (safety) always stays.

    Over budget, the other blocks of the house go first, the one before the last first, then the agent's last sentences.
    """
    agent, (*others, safety) = agent.strip(), house
    while others and cost(_joined([agent, *layered, *others, safety])) > budget:
        others.pop()
    left = budget - cost(_joined([*layered, *others, safety]))
    return _joined([whole_sentences(agent, left, cost), *layered, *others, safety])


def whole_sentences(text: str, budget: int, cost: Cost) -> str:
    """The beginning of the text, up to the last sentence or line that fits. May be empty."""
    if cost(text) <= budget:
        return text
    ends = [match.start() for match in _SENTENCE.finditer(text)]
    return next((text[:end] for end in reversed(ends) if cost(text[:end]) <= budget), "")


def newest_lines(lines: Sequence[str], budget: int, cost: Cost) -> list[str]:
    """The newest lines that fit, each of them complete."""
    kept: list[str] = []
    for line in reversed(lines):
        budget -= cost(line) + 1
        if budget < 0:
            break
        kept.insert(0, line)
    return kept


def _joined(blocks: Sequence[str]) -> str:
    return "\n\n".join(block for block in blocks if block.strip())
