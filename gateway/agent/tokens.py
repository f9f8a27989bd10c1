"""Estimates tokens: a quarter of the bytes, corrected by the endpoint's last count for that model."""

import json
from collections.abc import Mapping, Sequence
from operator import is_not
from typing import Any, cast

from gateway.agent.models.encoding import EncodedMessage

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4  # role and separators
IMAGE_TOKENS = 1_000  # what large models charge for a picture of ordinary size
FILE_TOKENS = 1_000  # a file as a part, say a PDF of a page or two: how many it has is for the endpoint to find out
LEAST_FACTOR, GREATEST_FACTOR = 0.5, 3.0
TOO_SMALL_TO_LEARN = 50

Message = Mapping[str, Any]


class Tokens:
    """Estimates for every model. Until an endpoint has counted for a model, its tokens are bytes / 4."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}
        self._tools: Sequence[Message] = ()
        self._size_of_tools = 0
        self._messages: Sequence[Message] = ()
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

    def messages(self, messages: Sequence[Message], model: str = "") -> int:
        if not _are_same(messages, self._messages):  # an answer is measured against the request that was just made
            self._messages = tuple(messages)
            self._size_of_messages = sum(
                [each.size if isinstance(each, EncodedMessage) else size_of(each) for each in messages]
            )
        return _rounded_up(self._size_of_messages * self.factor(model))

    def tools(self, tools: Sequence[Message], model: str = "") -> int:
        if not _are_same(tools, self._tools):  # nearly always they are the last ones
            self._tools = tuple(tools)
            self._size_of_tools = sum(_size(json.dumps(tool, ensure_ascii=False)) for tool in tools)
        return _rounded_up(self._size_of_tools * self.factor(model))

    def clip(self, text: str, budget: int, model: str = "", *, marker: str = " […]") -> str:
        """The start of `text`, of at most `budget` tokens, `marker` included where something was cut."""
        if self.text(text, model) <= budget:
            return text
        room = int(budget * BYTES_PER_TOKEN / self.factor(model))
        if room <= 0:
            return ""
        if _size(marker) * 2 > room:
            marker = ""
        start = _encode(text)[: room - _size(marker)].decode("utf-8", "ignore")
        return start.rstrip() + marker


def estimate(text: str, factor: float) -> int:
    """What `Tokens.text` gives for a model of this factor."""
    return _rounded_up((len(text) if text.isascii() else len(_encode(text))) * factor)


def _rounded_up(size: float) -> int:
    return -int(-size // BYTES_PER_TOKEN)


def _are_same(some: Sequence[Message], others: Sequence[Message]) -> bool:
    return len(some) == len(others) and not any(map(is_not, some, others))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a lone surrogate is no reason to fail


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(_encode(text))


def size_of(message: Message) -> int:
    """Returns the bytes of a message, as many as its tokens would have."""
    if isinstance(message, EncodedMessage):
        return message.size
    content = message.get("content")
    size = MESSAGE_OVERHEAD * BYTES_PER_TOKEN + (_size(content) if isinstance(content, str) else _content_size(content))
    if len(message) == 2:  # role and content, as nearly all
        return size
    calls: list[Any] = message.get("tool_calls") or []
    for call in calls:
        function: dict[str, Any] = call.get("function") or {}
        size += sum(_size(str(part)) for part in (call.get("id"), function.get("name"), function.get("arguments")))
    return size + _size(str(message.get("tool_call_id", "")))


def _content_size(content: object) -> int:
    if not isinstance(content, list):
        return 0
    return sum(_part_size(part) for part in cast(list[Any], content))


def _part_size(part: Any) -> int:
    match part:
        case {"text": str(text)}:
            return _size(text)
        case {"type": "image_url"}:
            return IMAGE_TOKENS * BYTES_PER_TOKEN
        case {"type": "file"}:
            return FILE_TOKENS * BYTES_PER_TOKEN
        case _:
            return _size(json.dumps(part, ensure_ascii=False, default=str))
