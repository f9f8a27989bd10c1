"""One call to the agent, whatever dialect it came in: what is asked, and what comes back."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gateway.agent.asking import JSON
from gateway.runs.live import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`messages` is the whole transcript as Chat Completions has it, without system messages, which are `layered`."""

    messages: Sequence[JSON]
    layered: Sequence[str] = ()
    tools: Sequence[JSON] = ()
    model: str | None = None
    response_format: JSON | None = None
    sampling: JSON = field(default_factory=dict[str, Any])
    max_output_tokens: int | None = None


FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


def finish_reason(told: str) -> FinishReason:
    """Endpoints have more words than callers know."""
    match told:
        case "length" | "tool_calls" | "content_filter":
            return told
        case _:
            return "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`waiting`: the text is a question, and the next call answers it."""

    text: str
    tool_calls: Sequence[JSON] = ()
    waiting: bool = False
    finish_reason: FinishReason = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class Feed:
    """The words of an answer as they are written, for one listener."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._said = ""
        self._again: str | None = None
        self._news = asyncio.Event()
        self._gap = False

    def hear(self, moment: Moment) -> None:
        match moment.kind:
            case "token":
                self._add(moment.text)
            case "afresh":
                self._again = ""
            case "tool":
                self._gap = bool(self._said)
            case _:
                return
        self._news.set()

    def _add(self, text: str) -> None:
        if self._again is not None:  # what was said cannot be taken back: go on where the new answer differs
            self._again += text
            if self._said.startswith(self._again):
                return
            text = self._again.removeprefix(self._said) if self._again.startswith(self._said) else f"\n\n{self._again}"
            self._again = None
        elif self._gap:
            text, self._gap = f"\n\n{text}", False
        self._said += text
        self._pieces.append(text)

    def wake(self) -> None:
        self._news.set()

    @property
    def said(self) -> bool:
        return bool(self._said)

    async def wait(self, seconds: float) -> bool:
        """Until something new was heard. False: nothing was for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def take(self) -> str:
        text = "".join(self._pieces)
        self._pieces.clear()
        return text


class Exchange(Protocol):
    """A call that is under way."""

    @property
    def feed(self) -> Feed: ...

    async def outcome(self) -> Outcome:
        """Waits for it. Raises ApiError when there will be none."""
        ...


async def pieces(exchange: Exchange, every: float) -> AsyncGenerator[str | Outcome | None]:
    """The words as they come, None when there were none for so many seconds, and the outcome at the end. Raises ApiError."""
    feed = exchange.feed
    task = asyncio.create_task(exchange.outcome())
    task.add_done_callback(lambda _: feed.wake())
    try:
        while not task.done():
            heard = await feed.wait(every)
            if text := feed.take():
                yield text
            elif not heard:
                yield None
        outcome = await task
        if text := feed.take():
            yield text
        if not feed.said and outcome.text:
            yield outcome.text
        elif outcome.waiting:
            yield f"\n\n{outcome.text}"
        yield outcome
    finally:
        task.cancel()
