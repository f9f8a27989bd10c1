"""One HTTP call to the agent, the same for Chat Completions and Responses: the request in, text and result out."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gateway.agent.models.interface import JSON
from gateway.runs.live import LiveEvent, TextDeduplicator
from sessions.records import CallOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """`messages` is the whole transcript in the form of Chat Completions, without system messages: the options have those."""

    messages: Sequence[JSON]
    options: CallOptions


AGENT = "hermes"
"""The name under which the agent answers with the model that is configured."""
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


def finish_reason(reported: str) -> FinishReason:
    """Reduces the endpoint's finish reason to those that callers know."""
    match reported:
        case "length" | "tool_calls" | "content_filter":
            return reported
        case _:
            return "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOutcome:
    """`waiting`: the text is a question, and the next call answers it."""

    text: str
    tool_calls: Sequence[JSON] = ()
    waiting: bool = False
    finish_reason: FinishReason = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class TextFeed:
    """The text of an answer as it is written, for one listener."""

    def __init__(self) -> None:
        self.has_text = False
        self._pieces: list[str] = []
        self._deduplicator = TextDeduplicator()
        self._news = asyncio.Event()
        self._gap = False

    def on_event(self, event: LiveEvent) -> None:
        match event.kind:
            case "token":
                if text := self._deduplicator.new_in(event.text):
                    self._pieces.append(f"\n\n{text}" if self._gap else text)
                    self._gap, self.has_text = False, True
            case "afresh":
                self._deduplicator.restart()
            case "said":
                self._gap = self.has_text
                self._deduplicator.end_step()
            case _:
                return
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """Waits for new text. Returns False when there was none in this time."""
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
    """A call that is being answered."""

    @property
    def feed(self) -> TextFeed: ...

    @property
    def id(self) -> str:
        """Returns the id of the call. A call that is recognised as repeated has the id of the first one."""
        ...

    @property
    def came_at(self) -> int:
        """Returns when the call, or the first one that it repeats, arrived, in milliseconds."""
        ...

    async def outcome(self) -> ExchangeOutcome:
        """Waits for the outcome and returns it. Raises ApiError when the call failed."""
        ...


async def text_pieces(exchange: Exchange, every: float) -> AsyncGenerator[str | ExchangeOutcome | None]:
    """Yields new text as it is written, None after `every` seconds without text, and at the end the outcome. Raises ApiError."""
    feed = exchange.feed
    task = asyncio.create_task(exchange.outcome())
    task.add_done_callback(lambda _: feed.wake())
    try:
        while not task.done():
            in_time = await feed.wait(every)
            if text := feed.take():
                yield text
            elif not in_time:
                yield None
        outcome = await task
        if text := feed.take():  # written between the last look and the end
            yield text
        if not feed.has_text and outcome.text:
            yield outcome.text
        elif outcome.waiting:
            yield f"\n\n{outcome.text}"
        yield outcome
    finally:
        task.cancel()
