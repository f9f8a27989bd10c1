"""Builds one answer from the pieces that an endpoint streams, without the reasoning before it. Pure: no network, no client library.

Endpoints differ in every detail of a tool call's deltas (no index, no id, an id on each, arguments as an object), so the
rules here are the widest that stay unambiguous.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from gateway.agent.models.interface import JSON, ToolCall, Usage

_TAG = re.compile(r"<(/?)(think|thinking|thought)>", re.IGNORECASE)
_REASONING = ("reasoning_content", "reasoning")
_LONGEST_TAG = len("</thinking>")
MOST_CALLS = 128
"""Of one answer; what goes beyond is left out, as if it had not been said."""
_WRITTEN = "text"
_MAYBE_TAG = re.compile(r"</?[a-z]*$", re.IGNORECASE)


class ThinkFilter:
    """Takes text as it arrives and gives back what may be shown: everything outside `<think>…</think>`.

    A tag in a code fence or right after a backtick is text about tags. `restarted` is set by a closing tag without an opening
    one: the endpoint had swallowed the opening, so all text before it was reasoning.
    """

    def __init__(self) -> None:
        self.text = ""
        self.restarted = False
        self._waiting = ""
        self._hidden = False

    def finish(self) -> str:
        return self.feed("", last=True)

    def feed(self, piece: str, *, last: bool = False) -> str:
        self.restarted = False
        rest = self._waiting + piece
        start = len(self.text)
        while match := _TAG.search(rest):
            self._show(rest[: match.start()])
            rest = rest[match.end() :]
            # In code it is no tag.
            if not self._hidden and (self.text.endswith("`") or self.text.count("```") % 2 == 1):
                self._show(match.group())
            elif match.group(1) and not self._hidden:
                self.text, start, self.restarted = "", 0, True
            else:
                self._hidden = not match.group(1)
        maybe = None if last else _MAYBE_TAG.search(rest[-_LONGEST_TAG:])  # more characters may make it a tag
        end = len(rest) - len(maybe.group()) if maybe else len(rest)
        self._show(rest[:end])
        self._waiting = rest[end:]
        return self.text[start:]

    def _show(self, piece: str) -> None:
        if not self._hidden:
            self.text += piece if self.text else piece.lstrip()  # without the empty lines that follow reasoning


class AnswerBuilder:
    """One answer in the making. Feed it chunks, or one whole completion.

    `limit`: the bytes of text, reasoning and calls that are taken; what goes beyond is left out, and `is_full` tells.
    """

    def __init__(self, limit: int = 2**62) -> None:
        self._room = limit
        self.visible = ThinkFilter()
        self.usage: Usage | None = None
        self.finish_reason = ""
        self.started = False
        self._calls: list[JSON] = []
        self._indexes: dict[int, JSON] = {}

    @property
    def complete(self) -> bool:
        """Returns False when the connection ended before the answer did."""
        return bool(self.finish_reason) or (self.started and self.usage is not None)

    @property
    def is_full(self) -> bool:
        return self._room <= 0

    def _fitting(self, text: str) -> str:
        """Returns as much of the text as there is room for. Empty pieces take room too, or a stream of nothing would never end."""
        data = text.encode("utf-8", "replace")
        if len(data) < self._room:
            self._room -= max(1, len(data))
            return text
        kept, self._room = data[: self._room].decode("utf-8", "ignore"), 0
        return kept

    def feed(self, chunk: Mapping[str, Any]) -> str:
        """Takes a chunk, and returns the visible text that it adds."""
        self.usage = _usage(chunk.get("usage")) or self.usage
        text = ""
        choices: list[JSON] = chunk.get("choices") or []
        for choice in choices[:1]:  # usage may come in a chunk without choices
            self.started = True
            reason = choice.get("finish_reason")
            if reason is not None:
                self.finish_reason = str(reason) or "stop"
            message: JSON = choice.get("delta") or choice.get("message") or {}
            deltas: list[JSON] = message.get("tool_calls") or []
            for delta in deltas:
                self._fitting(json.dumps(delta, default=str))  # only counted: half of a call is of no use
                if not self.is_full:
                    _merge(self._call_of(delta), delta)
            if reasoning := "".join(str(message.get(name) or "") for name in _REASONING):
                self._fitting(reasoning)
            if legacy := message.get("function_call"):
                delta = {"function": legacy}
                _merge(self._calls[-1] if self._calls else self._open(), delta)
            text += self.visible.feed(self._fitting(_plain(message.get("content"))))
        return text

    def _call_of(self, delta: JSON) -> JSON:
        index, key = delta.get("index"), delta.get("id")
        known = self._indexes.get(index) if index is not None else None
        # Without an index the id names the call; without either the delta goes on with the last one.
        if known is None and index is None:
            same = (call for call in self._calls if call.get("id") == key) if key else reversed(self._calls)
            known = next(same, None)
        if known is None or _is_another(known, delta):
            known = self._open()
        if index is not None:
            self._indexes[index] = known
        return known

    def _open(self) -> JSON:
        self._calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        return self._calls[-1]

    @property
    def has_calls(self) -> bool:
        return any(raw["function"]["name"] for raw in self._calls)

    @property
    def has_whole_call(self) -> bool:
        return any(_is_object(raw["function"]["arguments"] or "{}") for raw in self._calls if raw["function"]["name"])

    def tool_calls(self) -> tuple[ToolCall, ...]:
        seen: set[str] = set()
        return tuple(_tool_call(raw, seen) for raw in self._calls if raw["function"]["name"])[:MOST_CALLS]


def _is_another(known: JSON, delta: JSON) -> bool:
    """Returns whether a delta begins another call. Some endpoints give every call the index 0, or no index: a new id, or a name after
    whole arguments, tells them apart.
    """
    key: str = delta.get("id") or ""
    if key and known["id"]:
        return key != known["id"]
    function: JSON = delta.get("function") or {}
    has_name, arguments = bool(known["function"]["name"]), known["function"]["arguments"]
    if not (has_name and function.get("name")):
        return False
    return bool(arguments and function.get("arguments") and _is_json(arguments)) or (
        delta.get("index") is None and not key and bool(arguments)
    )


def _merge(call: JSON, delta: JSON) -> None:
    """Merges a delta into its call. Unknown fields are kept: a thought signature has to go back as it came."""
    for name, value in delta.items():
        if name == "function":
            _merge_function(call["function"], value or {})
        elif name != "index" and value not in (None, ""):
            call[name] = value


def _merge_function(function: JSON, delta: JSON) -> None:
    for name, value in delta.items():
        if value is None:
            continue
        if name == "arguments":
            function[name] += value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        elif name == "name":  # streamed in pieces by some, repeated whole in every delta by others
            function[name] += "" if value == function[name] else value
        else:
            function[name] = value


def _tool_call(raw: JSON, seen: set[str]) -> ToolCall:
    """Returns the finished call with a unique id and valid JSON: several endpoints refuse a transcript that holds any other."""
    arguments: str = raw["function"]["arguments"] or "{}"
    key: str = raw["id"] if raw["id"] and raw["id"] not in seen else new_call_id()
    seen.add(key)
    sent_back = arguments if _is_object(arguments) else json.dumps({"not_json": arguments}, ensure_ascii=False)
    function = {**raw["function"], "arguments": sent_back}
    return ToolCall(id=key, name=function["name"], arguments=arguments, raw={**raw, "id": key, "function": function})


def written_calls(found: Sequence[JSON]) -> tuple[ToolCall, ...]:
    """Returns the calls that a model has written into its text."""
    return tuple(_tool_call({**raw, "id": new_call_id(written=True)}, set()) for raw in found[:MOST_CALLS])


def new_call_id(*, written: bool = False) -> str:
    """Returns an id that the strictest endpoint takes: nine letters and digits. See `is_written`."""
    return (_WRITTEN if written else "") + uuid4().hex[: 5 if written else 9]


def is_written(call_id: str | None) -> bool:
    """Returns whether a call was written as text. The id says it, because it is all of a call that goes everywhere unchanged."""
    return (call_id or "").startswith(_WRITTEN)


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(_part_text(part) for part in cast(list[Any], content))


def _part_text(part: Any) -> str:
    match part:
        case {"type": "thinking" | "reasoning" | "redacted_thinking"}:
            return ""
        case {"text": str(text)}:
            return text
        case _:
            return ""


def _usage(found: Any) -> Usage | None:
    if not isinstance(found, dict):
        return None
    usage = cast(JSON, found)
    details: JSON = usage.get("prompt_tokens_details") or {}
    asked, answered = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    if not asked and not answered:
        return None
    return Usage(input_tokens=asked, output_tokens=answered, cached_tokens=int(details.get("cached_tokens") or 0))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_object(text: str) -> bool:
    return text.lstrip().startswith("{") and _is_json(text)
