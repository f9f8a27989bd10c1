"""Estimates tokens, of requests and of the parts of a prompt: a quarter of the bytes, corrected by the endpoint's last count for that model."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import is_not
from typing import Any, cast

from gateway.agent.models.interface import JSON, EncodedMessage
from sessions.records import BYTES_PER_TOKEN, Message, Role, size_in_bytes

MESSAGE_OVERHEAD = 4  # role and separators
TIME_LINE = 16
IMAGE_TOKENS = 1_000  # what large models charge for a picture of ordinary size
FILE_TOKENS = 1_000  # a file as a part, say a PDF of a page or two: how many it has is for the endpoint to find out
LEAST_FACTOR, GREATEST_FACTOR = 0.5, 3.0
TOO_SMALL_TO_LEARN = 50
_SCHEMAS: dict[int, tuple[JSON, str]] = {}
_MOST_SCHEMAS = 256

SentMessage = Mapping[str, Any]


class Tokens:
    """Estimates for every model. Until an endpoint has counted for a model, its tokens are bytes / 4."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}
        self._tools: Sequence[SentMessage] = ()
        self._size_of_tools = 0
        self._messages: Sequence[SentMessage] = ()
        self._size_of_messages = 0

    def learn(self, model: str, estimated: int, counted: int) -> None:
        """Corrects estimates for this model. `estimated`: what the methods gave without a model; `counted`: what the endpoint counted."""
        if estimated >= TOO_SMALL_TO_LEARN and counted > 0:
            factor = min(max(counted / estimated, LEAST_FACTOR), GREATEST_FACTOR)
            # Rounded, so that budgets, and with them the cached start of a prompt, do not shift with every answer.
            self._factors[model] = round(factor, 1)

    def factor(self, model: str) -> float:
        return self._factors.get(model, 1.0)

    def text(self, text: str, model: str = "") -> int:
        return estimate(text, self.factor(model))

    def messages(self, messages: Sequence[SentMessage], model: str = "") -> int:
        if not _are_same(messages, self._messages):  # an answer is measured against the request that was just made
            self._messages = tuple(messages)
            self._size_of_messages = sum(
                [each.size if isinstance(each, EncodedMessage) else size_of(each) for each in messages]
            )
        return _rounded_up(self._size_of_messages * self.factor(model))

    def tools(self, tools: Sequence[SentMessage], model: str = "") -> int:
        if not _are_same(tools, self._tools):  # nearly always they are the last ones
            self._tools = tuple(tools)
            self._size_of_tools = sum(size_in_bytes(json.dumps(tool, ensure_ascii=False)) for tool in tools)
        return _rounded_up(self._size_of_tools * self.factor(model))

    def clip(self, text: str, budget: int, model: str = "", *, marker: str = " […]") -> str:
        """The start of `text`, of at most `budget` tokens, `marker` included where something was cut."""
        if self.text(text, model) <= budget:
            return text
        room = int(budget * BYTES_PER_TOKEN / self.factor(model))
        if room <= 0:
            return ""
        if size_in_bytes(marker) * 2 > room:
            marker = ""
        start = text.encode("utf-8", "replace")[: room - size_in_bytes(marker)].decode("utf-8", "ignore")
        return start.rstrip() + marker


def estimate(text: str, factor: float) -> int:
    """What `Tokens.text` gives for a model of this factor."""
    return _rounded_up(size_in_bytes(text) * factor)


def _rounded_up(size: float) -> int:
    return -int(-size // BYTES_PER_TOKEN)


def _are_same(some: Sequence[SentMessage], others: Sequence[SentMessage]) -> bool:
    return len(some) == len(others) and not any(map(is_not, some, others))


def size_of(message: SentMessage) -> int:
    """Returns the bytes of a message, as many as its tokens would have."""
    if isinstance(message, EncodedMessage):
        return message.size
    content = message.get("content")
    size = MESSAGE_OVERHEAD * BYTES_PER_TOKEN + (
        size_in_bytes(content) if isinstance(content, str) else _content_size(content)
    )
    if len(message) == 2:  # role and content, as nearly all
        return size
    calls: list[Any] = message.get("tool_calls") or []
    for call in calls:
        function: dict[str, Any] = call.get("function") or {}
        size += sum(
            size_in_bytes(str(part)) for part in (call.get("id"), function.get("name"), function.get("arguments"))
        )
    return size + size_in_bytes(str(message.get("tool_call_id", "")))


def _content_size(content: object) -> int:
    if not isinstance(content, list):
        return 0
    return sum(_part_size(part) for part in cast(list[Any], content))


def _part_size(part: Any) -> int:
    match part:
        case {"text": str(text)}:
            return size_in_bytes(text)
        case {"type": "image_url"}:
            return IMAGE_TOKENS * BYTES_PER_TOKEN
        case {"type": "file" | "input_audio"}:
            return FILE_TOKENS * BYTES_PER_TOKEN
        case _:
            return size_in_bytes(json.dumps(part, ensure_ascii=False, default=str))


class Measure:
    """Estimates for the parts of one model's prompt, as they stand in the journal."""

    def __init__(self, tokens: Tokens, model: str, parts: Callable[[Message], Sequence[JSON]]) -> None:
        self.model = model
        self.parts = parts
        self._tokens = tokens
        self.factor = tokens.factor(model)

    def text(self, text: str) -> int:
        return estimate(text, self.factor)

    def tools(self, tools: Sequence[JSON]) -> int:
        return sum(map(self.tool, tools))

    def tool(self, tool: JSON) -> int:
        """Returns the tokens of one schema. Those of the gateway are the same objects each time, so they are counted once."""
        # The entry keeps the schema alive, so no other object can get its id.
        known = _SCHEMAS.get(id(tool))
        if known is None:
            known = _SCHEMAS[id(tool)] = (tool, json.dumps(tool, ensure_ascii=False))
            if len(_SCHEMAS) > _MOST_SCHEMAS:
                _SCHEMAS.pop(next(iter(_SCHEMAS)))
        return self.text(known[1])

    def clip(self, text: str, budget: int, marker: str = " […]") -> str:
        return self._tokens.clip(text, budget, self.model, marker=marker)

    def beside(self, message: Message) -> int:
        """Returns the tokens of a message without those of its text."""
        size = MESSAGE_OVERHEAD
        if message.role is Role.USER:
            size += TIME_LINE
            if parts := self.parts(message):
                size += self._tokens.messages([{"content": list(parts)}], self.model)
        if message.tool_calls:
            size += sum(self.text(json.dumps(call)) for call in message.tool_calls)
        return size + self.text(message.tool_call_id) if message.tool_call_id else size

    def together(self, messages: Sequence[Message]) -> int:
        """Returns the tokens of all these messages. Neighbours of users become one message."""
        # Of two that are joined the second has no overhead and no time; the line break between them is the 1.
        joined = sum(one.role is other.role is Role.USER for one, other in pairwise(messages))
        return sum(map(self.message, messages)) - joined * (MESSAGE_OVERHEAD + TIME_LINE - 1)

    def message(self, message: Message) -> int:
        return self.text(message.content or "") + self.beside(message)
