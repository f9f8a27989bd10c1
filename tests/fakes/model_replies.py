"""What the scripted model server can be told to do: answer in many shapes, or fail in the ways that endpoints do."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]
Pause = Callable[[], Awaitable[object]]
FROM_LENGTH: JSON = {}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer. `chunks` splits the text for streaming, `deltas` replaces everything that is streamed.

    `before` is awaited ahead of the first token, `between` ahead of every further one. `drop_after` closes the connection after
    that many chunks; `usage=None` leaves usage out.
    """

    text: str | None = None
    chunks: tuple[str, ...] = ()
    tool_calls: tuple[JSON, ...] = ()
    finish_reason: str | None = None
    usage: JSON | None = field(default_factory=lambda: FROM_LENGTH)
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    deltas: tuple[JSON, ...] = ()
    message: JSON | None = None
    parts: bool = False
    empty_choices: bool = False
    before: Pause | None = None
    between: Pause | None = None
    drop_after: int | None = None

    def ends(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    def whole(self) -> JSON:
        """The message of an answer that is not streamed."""
        if self.message is not None:
            return self.message
        message: JSON = {"role": "assistant", "content": self._content(self.text)}
        if self.tool_calls:
            message["tool_calls"] = list(self.tool_calls)
        if self.reasoning:
            message[self.reasoning_field] = self.reasoning
        return message

    def streamed(self) -> Iterator[JSON]:
        """The deltas of an answer that is streamed, in order."""
        if self.deltas:
            yield from self.deltas
            return
        yield {"role": "assistant", "content": "" if self.text is not None else None}
        if self.reasoning:
            yield {self.reasoning_field: self.reasoning}
        for piece in self.chunks or _words(self.text or ""):
            yield {"content": self._content(piece)}
        for index, call in enumerate(self.tool_calls):
            yield from _call_deltas(index, call)

    def _content(self, text: str | None) -> Any:
        return [{"type": "text", "text": text}] if self.parts and text is not None else text


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An HTTP error. `body` replaces the usual JSON; `hang` never answers; `drop` closes the connection without a word."""

    status: int = 500
    message: str = "The server had an error while processing your request"
    code: str | None = None
    type: str = "server_error"
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    hang: bool = False
    drop: bool = False

    def payload(self) -> bytes:
        if self.body is not None:
            return self.body
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()


Step = str | Reply | Failure


def call(name: str, arguments: JSON | str | None = None, *, id: str = "", **extra: Any) -> JSON:  # noqa: A002 the wire's word
    """A tool call as the API writes it. `extra` are fields that only some endpoints know."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": id or f"call_{name}", "type": "function", "function": {"name": name, "arguments": text}, **extra}


def calls(*tool_calls: JSON, text: str | None = None, **fields: Any) -> Reply:
    return Reply(text=text, tool_calls=tool_calls, **fields)


def as_json(value: Any, **fields: Any) -> Reply:
    return Reply(text=json.dumps(value), **fields)


def rate_limited(retry_after: str = "", *, ms: str = "", code: str = "rate_limit_exceeded") -> Failure:
    headers = {"Retry-After": retry_after} if retry_after else {}
    if ms:
        headers["retry-after-ms"] = ms
    return Failure(status=429, message="Rate limit reached", code=code, type="requests", headers=headers)


def out_of_quota() -> Failure:
    message = "You exceeded your current quota, please check your plan and billing details."
    return Failure(status=429, message=message, code="insufficient_quota", type="insufficient_quota")


def bad_request(message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> Failure:
    return Failure(status=status, message=message, code=code, type="invalid_request_error", param=param)


def bad_key(key: str = "sk-wrong") -> Failure:
    return bad_request(f"Incorrect API key provided: {key}.", status=401, code="invalid_api_key")


def no_model(name: str) -> Failure:
    message = f"The model `{name}` does not exist or you do not have access to it."
    return bad_request(message, status=404, code="model_not_found")


def not_json() -> Failure:
    return Failure(status=200, body=b"<html><body>Welcome</body></html>", content_type="text/html")


def drop() -> Failure:
    return Failure(drop=True)


def hang() -> Failure:
    return Failure(hang=True)


OVERFLOWS: dict[str, Failure] = {
    "openai": bad_request(
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. "
        "Please reduce the length of the messages.",
        code="context_length_exceeded",
        param="messages",
    ),
    "vllm": bad_request(
        "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens "
        "(4905 in the messages, 4096 in the completion)."
    ),
    "openrouter": bad_request(
        "This endpoint's maximum context length is 8192 tokens. However, you requested about 9001 tokens."
    ),
    "anthropic": bad_request("prompt is too long: 9001 tokens > 8192 maximum"),
    "gemini": bad_request("The input token count (9001) exceeds the maximum number of tokens allowed (8192)."),
    "llama.cpp": bad_request("the request exceeds the available context size (8192 tokens), try increasing it"),
    "mistral": bad_request(
        "Prompt contains 9001 tokens and 0 draft tokens, too large for model with 8192 maximum context length"
    ),
    "xai": bad_request("This model's maximum prompt length is 8192 but the request contains 9001 tokens."),
    "together": bad_request("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9001"),
}
UNNAMED_OVERFLOWS: dict[str, Failure] = {
    "bedrock": bad_request("Input is too long for requested model."),
    "groq": bad_request("Please reduce the length of the messages or completion.", code="context_length_exceeded"),
    "proxy": Failure(status=413, body=b"Request Entity Too Large", content_type="text/plain"),
}


def _words(text: str) -> list[str]:
    pieces = text.split(" ")
    return [piece + " " for piece in pieces[:-1]] + [piece for piece in pieces[-1:] if piece]


def _call_deltas(index: int, tool_call: JSON) -> Iterator[JSON]:
    """The first delta names the call, its arguments follow in two halves."""
    function = tool_call["function"]
    arguments = function["arguments"]
    yield {"tool_calls": [{**tool_call, "index": index, "function": {**function, "arguments": ""}}]}
    middle = len(arguments) // 2
    for half in (arguments[:middle], arguments[middle:]):
        yield {"tool_calls": [{"index": index, "function": {"arguments": half}}]}
