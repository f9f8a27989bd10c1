"""Learns from refusals which fields one model at one endpoint does not take, and builds requests without them.

Each gap costs one refused call, once. A refusal teaches only about a field that the refused request had, so learning ends.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from gateway.agent.models.interface import JSON, ModelRequest
from gateway.agent.models.text_tool_calls import instructions, spell_out, with_instructions
from gateway.agent.models.vision import is_blind, is_refused, without_pictures

_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"maximum (?:context|prompt) length (?:is|of) ([\d,]+)",
        r"([\d,]+) maximum context length",
        r"tokens? > ([\d,]+) maximum",
        r"tokens allowed \(?([\d,]+)",
        r"context (?:size|length|window)\D{0,12}([\d,]+)",
        r"n_ctx\D{1,6}([\d,]+)",
        r"tokens` must be <= ([\d,]+)",
    )
)
_OVERFLOW = re.compile(
    r"context[_ ](?:length|size|window)|maximum prompt length|prompt is too long|input (?:is|was) too long|too many tokens"
    r"|input token count|max_new_tokens` must be|reduce the length|too large for model|request too large|exceeds? the (?:context|token)"
    r"|context the overflows|request entity too large|payload too large",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit|payment", re.IGNORECASE)
_KEY = re.compile(r"api[_ -]?key|authenticat|unauthorized", re.IGNORECASE)
_MODEL = re.compile(
    r"model[_ ](?:id|name|not[_ ]found)|\bmodel\b.{0,80}(?:not exist|not found|not a valid)|invalid model",
    re.IGNORECASE,
)
_TRANSCRIPT = re.compile(
    r"messages?\b|tool_call|\broles?\b|content|conversation|\bturns?\b|image|prompt|thought_signature|roles must alternate",
    re.IGNORECASE,
)
_SCHEMA = re.compile(r"schema for function|function_parameters|invalid 'tools'", re.IGNORECASE)
_SECRET = re.compile(r"\b(?:(?:sk|gsk|xai|key)[-_]|AIza)[-_A-Za-z0-9*.]{4,}")
_SHOWN_CHARACTERS = 300


class RefusalKind(StrEnum):
    AGAIN = "again"  # later, the same request may do
    OVERFLOW = "overflow"
    TRANSCRIPT = "transcript"
    REFUSED = "refused"


def classify(status: int, error_text: str) -> RefusalKind:
    """Returns the kind of refusal. `error_text`: message, code, type and param of the error in one text."""
    if status in (400, 413, 422, 500) and is_overflow(status, error_text):
        return RefusalKind.OVERFLOW
    if status in (408, 409, 425) or status >= 500:
        return RefusalKind.AGAIN
    if status == 429:  # waiting does not bring back a used-up quota
        return RefusalKind.REFUSED if _QUOTA.search(error_text) else RefusalKind.AGAIN
    if status in (400, 422) and _is_about_transcript(error_text):
        return RefusalKind.TRANSCRIPT
    return RefusalKind.REFUSED


def is_overflow(status: int, error_text: str) -> bool:
    return status == 413 or bool(_OVERFLOW.search(error_text))


def _is_about_transcript(error_text: str) -> bool:
    # These speak of messages, prompts and content as well, and are no fault of the conversation.
    if _KEY.search(error_text) or _MODEL.search(error_text) or _SCHEMA.search(error_text):
        return False
    return bool(_TRANSCRIPT.search(error_text))


def named_limit(error_text: str) -> int | None:
    """Returns the window in tokens that an overflow names."""
    for pattern in _LIMITS:
        if match := pattern.search(error_text):
            return int(match.group(1).replace(",", "")) or None
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that the endpoint asks to wait. A date counts from the answer's own date, so that our clock may be wrong."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after", "")
    if (seconds := _number(asked)) is not None:
        return seconds
    try:
        until = parsedate_to_datetime(asked)
        answered = parsedate_to_datetime(headers["date"]) if headers.get("date") else datetime.now(UTC)
        return max((until - answered).total_seconds(), 0.0)
    except (ValueError, TypeError):  # no date at all, or one without a zone
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def describe_refusal(host: str, model: str, status: int, said: str, api_key: str) -> str:
    """Returns what the operator reads: what happened, what to do, and the endpoint's own words."""
    match status:
        case _ if 300 <= status < 400:
            what = f"{host} redirects to another address ({status}). Write the right one into model.base_url."
        case 401 | 403:
            what = f"{host} does not accept the API key for {model} ({status}). Check model.api_key."
        case 402:
            what = f"The account at {host} has no credit left ({status})."
        case 429:
            what = f"The quota at {host} is used up or its rate limit is reached ({status})."
        case 404 | 405:
            what = f"{host} does not know {model} ({status}). Check model.name and model.base_url."
        case 413:
            what = f"The request is too large for {model} at {host} ({status})."
        case _ if status >= 500:
            what = f"{host} has trouble of its own ({status})."
        case _:
            what = f"{host} refuses the request for {model} ({status})."
    said = without_keys(said[: 4 * _SHOWN_CHARACTERS], api_key).strip()[:_SHOWN_CHARACTERS]
    return f"{what} It says: {said}" if said else what


def without_keys(text: str, api_key: str) -> str:
    if len(api_key) >= 4:
        text = text.replace(api_key, "[key]")
    return _SECRET.sub("[key]", text)


_TELLING = frozenset({400, 404, 405, 415, 422, 500, 501})
_UNSUPPORTED = re.compile(
    r"not? support|n't support|unsupported|unrecognized|unknown|not permitted|not allowed|not available|not enabled|not implemented"
    r"|unexpected|extra (?:inputs|fields)|no endpoints|additional properties|requires --|only supports?|must not be|cannot be used",
    re.IGNORECASE,
)
_FORMAT = re.compile(r"response_format|json_schema|json_object|json mode|structured.outputs?|grammar", re.IGNORECASE)
_TOOLS = re.compile(r"\btools?\b|tool use|tool choice|\bfunctions?\b|function calling", re.IGNORECASE)
_TRANSCRIPT_TOOLS = re.compile(r"tool_call|role|messages?\.|schema for", re.IGNORECASE)
_STREAM = re.compile(r"\bstream(?:ing)?\b", re.IGNORECASE)
_SYSTEM = re.compile(
    r"system (?:role|message|instruction|prompt)|developer instruction|\brole\b.{0,40}system", re.IGNORECASE
)
_OUTPUT = re.compile(r"max_(?:completion_|output_)?tokens", re.IGNORECASE)
_OUTPUT_LIMIT = re.compile(
    r"(?:at most|<=|less than or equal to|limit of|maximum (?:is|of|value is))\s*([\d,]+)", re.IGNORECASE
)
_LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
_TOOL_OPTIONS = ("tool_choice", "parallel_tool_calls")


class Gap(StrEnum):
    STREAM = "stream"
    STREAM_OPTIONS = "stream_options"
    TOOLS = "tools"
    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    SYSTEM = "system"  # no system role
    MAX_TOKENS = "max_tokens"  # it wants max_completion_tokens
    PICTURES = "pictures"


@dataclass(slots=True, kw_only=True)
class Quirks:
    """What is known of one model. Mutable: it is changed by every refusal, and lives as long as the model."""

    gaps: set[Gap] = field(default_factory=set[Gap])
    calls_tools: bool = False  # it has made a call as the API has it, so its text is text
    dropped: set[str] = field(default_factory=set[str])
    most_output: int | None = None
    window: int | None = None

    def shape(self, request: ModelRequest, model: str, max_output_tokens: int) -> JSON:
        """Returns the body of the call."""
        body: JSON = {key: value for key, value in request.sampling.items() if key not in self.dropped}
        body |= {"model": model, "messages": list(request.messages)}
        if Gap.PICTURES in self.gaps:
            body["messages"] = without_pictures(body["messages"])
        limit, wanted = _LIMIT_NAMES[Gap.MAX_TOKENS in self.gaps], request.max_output_tokens or max_output_tokens
        if limit not in self.dropped:
            body[limit] = min(wanted, self.most_output or wanted)
        if request.tools:
            self._add_tools(body, request.tools)
        if request.response_format:
            self._add_format(body, request.response_format)
        # After the others: they may have added a system prompt.
        if Gap.SYSTEM in self.gaps:
            body["messages"] = _without_system(body["messages"])
        if Gap.STREAM not in self.gaps:
            body["stream"] = True
            if Gap.STREAM_OPTIONS not in self.gaps:
                body["stream_options"] = {"include_usage": True}
        return body

    def _add_tools(self, body: JSON, tools: Sequence[JSON]) -> None:
        if Gap.TOOLS not in self.gaps:
            body["tools"] = list(tools)
            return
        for option in _TOOL_OPTIONS:
            body.pop(option, None)
        body["messages"] = with_instructions(spell_out(body["messages"]), instructions(tools))

    def _add_format(self, body: JSON, wanted: JSON) -> None:
        if Gap.JSON_SCHEMA not in self.gaps or wanted.get("type") != "json_schema":
            if Gap.JSON_OBJECT not in self.gaps:
                body["response_format"] = wanted
                return
        elif Gap.JSON_OBJECT not in self.gaps:
            body["response_format"] = {"type": "json_object"}
        named: JSON = wanted.get("json_schema") or {}
        schema: Any = named.get("schema")
        ask = "Answer with one JSON object and nothing else."
        if schema:
            ask += f" It follows this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
        body["messages"] = with_instructions(body["messages"], ask)

    def learn(self, body: Mapping[str, Any], status: int, error_text: str) -> bool:
        """Returns True when this refusal of `body` taught something new, so that asking again, shaped anew, makes sense."""
        if status not in _TELLING or is_overflow(status, error_text):
            return False
        # Pictures first: such a refusal speaks of content and types, and would be taken for one of something else.
        if is_refused(body, error_text):
            return is_blind(error_text) and self._add(Gap.PICTURES)
        unsupported = bool(_UNSUPPORTED.search(error_text))
        if status >= 500 and not unsupported:  # trouble of its own, that happens to name a field
            return False
        return (
            self._learn_fields(body, error_text, unsupported)
            or self._learn_output(body, error_text)
            or self._learn_options(body, error_text)
        )

    def _learn_fields(self, body: Mapping[str, Any], error_text: str, unsupported: bool) -> bool:
        if "stream_options" in body and "stream_options" in error_text:
            return self._add(Gap.STREAM_OPTIONS)
        if "max_tokens" in body and "max_completion_tokens" in error_text:
            return self._add(Gap.MAX_TOKENS)
        if "response_format" in body and _FORMAT.search(error_text):
            kind = body["response_format"].get("type")
            return self._add(Gap.JSON_SCHEMA if kind == "json_schema" else Gap.JSON_OBJECT)
        # A complaint about calls in the transcript or about one schema is no gap: without tools the run could not go on.
        if "tools" in body and unsupported and _TOOLS.search(error_text) and not _TRANSCRIPT_TOOLS.search(error_text):
            return self._add(Gap.TOOLS)
        if unsupported and _SYSTEM.search(error_text) and _has_system(body["messages"]):
            return self._add(Gap.SYSTEM)
        if body.get("stream") and unsupported and _STREAM.search(error_text):
            return self._add(Gap.STREAM)
        return False

    def _learn_output(self, body: Mapping[str, Any], error_text: str) -> bool:
        name = next((name for name in _LIMIT_NAMES if name in body), None)
        if name is None or not _OUTPUT.search(error_text):
            return False
        named = _OUTPUT_LIMIT.search(error_text)
        most = int(named.group(1).replace(",", "")) if named else 0
        if 0 < most < body[name]:
            self.most_output = most
        else:  # no smaller number to try, so the next request goes without the field
            self.dropped.add(name)
        return True

    def _learn_options(self, body: Mapping[str, Any], error_text: str) -> bool:
        own = {"model", "messages", "tools", "stream", "stream_options", "response_format"}
        named = {key for key in body if key not in own and re.search(rf"\b{re.escape(key)}\b", error_text)}
        self.dropped |= named
        return bool(named)

    def _add(self, gap: Gap) -> bool:
        self.gaps.add(gap)
        return True


def _has_system(messages: Sequence[JSON]) -> bool:
    return bool(messages) and messages[0].get("role") == "system"


def _without_system(messages: Sequence[JSON]) -> list[JSON]:
    """Puts the system prompt at the start of the first user message; as a message of its own the roles would not alternate."""
    if not _has_system(messages):
        return list(messages)
    first, *rest = messages
    for index, message in enumerate(rest):
        if message["role"] == "user" and isinstance(message.get("content"), str):
            merged = {**message, "content": f"{first['content']}\n\n{message['content']}"}
            return [*rest[:index], merged, *rest[index + 1 :]]
    return [{**first, "role": "user"}, *rest]
