"""Joins the system prompt from its parts and cuts it to a budget, at the end of a block, line or sentence.

The part about the gateway comes from `gateway_prompt.py`; `prompt.py` builds the whole request, in which the system prompt is the first
message.
"""

import re
from collections.abc import Callable, Sequence

Cost = Callable[[str], int]
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")


def core(agent: str, layered: Sequence[str], gateway: Sequence[str], budget: int, cost: Cost) -> str:
    """Returns the part of the system prompt that stays the same from turn to turn: who the agent is, what the caller has added
    (`layered`), and the blocks about the gateway.

    When it costs more than `budget`, blocks about the gateway are left out first, from the end, then the agent's last sentences. The last
    block (safety) and `layered` always stay.
    """
    agent, (*others, safety) = agent.strip(), gateway
    while others and cost(_joined([agent, *layered, *others, safety])) > budget:
        others.pop()
    # The agent's own text is cut last: it says who it is, the others only what the gateway offers.
    left = budget - cost(_joined([*layered, *others, safety]))
    return _joined([whole_sentences(agent, left, cost), *layered, *others, safety])


def whole_sentences(text: str, budget: int, cost: Cost) -> str:
    """Returns the beginning of the text, up to the last sentence or line that fits; empty when none does."""
    if cost(text) <= budget:
        return text
    ends = [match.start() for match in _SENTENCE.finditer(text)]
    return next((text[:end] for end in reversed(ends) if cost(text[:end]) <= budget), "")


def newest_lines(lines: Sequence[str], budget: int, cost: Cost) -> list[str]:
    """Returns the newest lines that fit, in their order. A line is never cut."""
    kept: list[str] = []
    for line in reversed(lines):
        budget -= cost(line) + 1  # the line break
        if budget < 0:
            break
        kept.insert(0, line)
    return kept


def _joined(blocks: Sequence[str]) -> str:
    return "\n\n".join(block for block in blocks if block.strip())
