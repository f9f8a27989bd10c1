"""One parse of Markdown, neutral blocks, and a splitter, for every platform."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LONG_CHARS = 1_000  # a text of this length is rendered in about a millisecond


async def off_the_loop(text: str, render: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls `render`, in a thread where `text` is long: ten thousand characters take ten milliseconds."""
    if len(text) < LONG_CHARS:
        return render(*args, **kwargs)
    return await asyncio.to_thread(render, *args, **kwargs)
