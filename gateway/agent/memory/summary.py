"""Builds the request that asks the fast model what an old conversation says about a question. No I/O."""

from collections.abc import Sequence

from gateway.agent.memory.fold import DATA_BEGINS, DATA_ENDS
from gateway.agent.models.interface import ModelRequest
from gateway.agent.prompts import load_prompt

OUTPUT_TOKENS = 600


def summary_request(query: str, lines: Sequence[str], *, model: str | None) -> ModelRequest:
    """Returns the request. `lines`: messages, each on one line."""
    asked = " ".join(query.split())
    return ModelRequest(
        messages=[
            {"role": "system", "content": load_prompt("summary")},
            {"role": "user", "content": "\n".join([f"Question: {asked}", "", DATA_BEGINS, *lines, DATA_ENDS])},
        ],
        model=model,
        max_output_tokens=OUTPUT_TOKENS,
    )


def middle_of(lines: Sequence[str], most: int) -> list[str]:
    """Returns the lines in the middle, up to `most` characters. Lines at both ends are left out first: they are farthest from the hits."""
    first, last, size = 0, len(lines), sum(map(len, lines)) + len(lines)
    while size > most and last - first > 1:
        if first <= len(lines) - last:
            size -= len(lines[first]) + 1
            first += 1
        else:
            last -= 1
            size -= len(lines[last]) + 1
    return [line[:most] for line in lines[first:last]]
