"""What is asked of a model and what it answers, in the words of Chat Completions, without any client library."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, Protocol

JSON = dict[str, Any]

TOO_LONG, REFUSED = "context_length_exceeded", "refused_by_model"
"""What programs read when a call failed because of what it sent."""


class Afresh(Enum):
    """What `on_token` hears when the endpoint begins its answer again: what was shown of it is void."""

    AFRESH = "afresh"


AFRESH = Afresh.AFRESH
Shown = str | Literal[Afresh.AFRESH]
OnToken = Callable[[Shown], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False  # the endpoint did not say

    def and_before(self, other: "Usage") -> "Usage":
        """Returns this usage with that of a call before it."""
        read, written = self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        return replace(self, input_tokens=read, output_tokens=written)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """`arguments` is the text as the model wrote it, maybe no JSON. `raw` is the whole call with every field the endpoint sent."""

    id: str
    name: str
    arguments: str
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def as_sent(self, call_id: str | None = None) -> JSON:
        """Returns the call as it goes back to the model, with every field that the endpoint sent: it may want them back. `call_id`
        replaces its own id.
        """
        raw = dict(self.raw)
        function = {"name": self.name, "arguments": self.arguments, **dict(raw.get("function") or {})}
        return {"type": "function", **raw, "id": call_id or self.id, "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`finish_reason`: stop, length, tool_calls or content_filter. `model` is the one that answered, maybe a fallback. `is_broken`: it was no
    answer but what is left of a tool call; `text` is without that."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    is_broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """`messages` and `tools` as Chat Completions has them; `callers_tools`: names of those whose calls somebody else executes.
    `sampling`: temperature and the like, passed through.

    `exact`: pictures and files of the last user message reach the model, or the call is refused. Else the model is told that it could
    not see them.
    """

    messages: Sequence[JSON]
    tools: Sequence[JSON] = ()
    callers_tools: frozenset[str] = frozenset()
    model: str | None = None
    max_output_tokens: int | None = None
    response_format: JSON | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    exact: bool = False


class Model(Protocol):
    async def ask(self, request: ModelRequest, on_token: OnToken | None = None) -> Answer:
        """Returns one answer. Calls `on_token` with visible text as it arrives. Cancelling stops the call.

        Raises ModelUnreachable, ModelRefused or ContextOverflow, and nothing else.
        """
        ...

    @property
    def is_near(self) -> bool:
        """Whether the model runs on this machine or in its network: such a one serves one request at a time, as a rule."""
        ...

    def left_out(self, fields: Collection[str], model: str | None = None) -> Collection[str]:
        """Returns which of these fields of `sampling` a request does not have, because this model has refused them."""
        ...

    def window(self, model: str | None = None) -> int:
        """Returns how many tokens this model takes in; None: the one that answers."""
        ...

    async def learn_window(self, model: str | None = None) -> None:
        """Asks how large the window of this model is, where that is not known yet. Never raises."""
        ...

    async def warm_up(self) -> None:
        """Loads what the first call would wait for."""
        ...

    async def aclose(self) -> None: ...

    def start_slowly(self, model: str | None = None) -> None:
        """Limits the calls to a model that was away and has just answered, because others wait for it."""
        ...


class ModelError(Exception):
    """`str()` is a sentence that can be shown to the operator; no secrets in it."""


class ModelUnreachable(ModelError):
    """No configured model could be reached, after retries and fallbacks. Trying again later may help."""


class ModelRefused(ModelError):
    """The service refuses this request for good: key, quota, unknown model, or one transcript that it does not accept."""

    def __init__(self, message: str, *, status: int | None = None, about_transcript: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.about_transcript = about_transcript


class ContextOverflow(ModelError):
    """The request is too long for the model. `limit`: the window in tokens, where the service named it."""

    def __init__(self, message: str, *, limit: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit

    def for_good(self) -> "InputTooLong":
        """Returns the error for a request of which nothing smaller is left."""
        return InputTooLong(str(self))


class InputTooLong(ModelError):
    """What has to be sent as a whole does not fit into the window, so nothing was sent. A smaller selection of history would not help."""

    @classmethod
    def of(cls, needed: int, window: int, model: str | None) -> "InputTooLong":
        return cls(
            f"This model's maximum context length is {window} tokens ({model or 'the configured model'}). However, this call needs about "
            f"{needed} tokens with its tools and system messages. Please reduce the length of the messages."
        )


class EncodedMessage(JSON):
    """A message with its JSON, and its size as `tokens.size_of` counts it. It must not be changed. `json` is empty before the first call of
    `encode`."""

    __slots__ = ("json", "size")

    def __init__(self, message: JSON, size: int) -> None:
        super().__init__(message)
        self.size = size
        self.json = b""

    def encode(self) -> bytes:
        """Raises ValueError as `encoded` does."""
        self.json = encoded(dict(self))
        return self.json


def encoded(value: object) -> bytes:
    """Returns the value as JSON. Raises ValueError for a number that JSON does not know, and for text that UTF-8 does not."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def encoded_body(body: JSON) -> bytes:
    """Returns the body of a call as it is sent. Raises ValueError for what cannot be sent."""
    messages = [
        each.json or each.encode() if isinstance(each, EncodedMessage) else encoded(each) for each in body["messages"]
    ]
    others = encoded({name: value for name, value in body.items() if name != "messages"})
    return b'{"messages":[' + b",".join(messages) + b"]," + others[1:]
