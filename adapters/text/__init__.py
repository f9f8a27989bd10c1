"""One parse of Markdown, neutral blocks, and a splitter, for every platform."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

DRAFT_CHARS = 20_000
LONG_CHARS = 1_000  # a text of this length is rendered in about a millisecond


async def off_the_loop(text: str, render: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls `render`, in a thread where `text` is long: ten thousand characters take ten milliseconds."""
    if len(text) < LONG_CHARS:
        return render(*args, **kwargs)
    return await asyncio.to_thread(render, *args, **kwargs)


def end_of_draft(markdown: str) -> str:
    """Returns the end of a long text, from the start of a line, with the fence that is open there. More is not shown of a growing answer,
    and to render all of it with every change would take seconds.
    """
    if len(markdown) <= DRAFT_CHARS:
        return markdown
    start = len(markdown) - DRAFT_CHARS
    start = max(start, markdown.find("\n", start) + 1)
    is_open = markdown.count("```", 0, start) % 2 == 1
    return f"{'```' + chr(10) if is_open else ''}{markdown[start:]}"
