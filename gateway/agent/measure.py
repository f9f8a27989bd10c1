"""Estimates how many tokens the parts of a prompt take."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise

from gateway.agent.models.interface import JSON
from gateway.agent.tokens import MESSAGE_OVERHEAD, Tokens, estimate
from sessions.records import Message, Role

TIME_LINE = 16


_SCHEMAS: dict[int, tuple[JSON, str]] = {}
_MOST_SCHEMAS = 256


class Measure:
    """Estimates in tokens, for one model."""

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
