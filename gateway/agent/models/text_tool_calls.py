"""Tool calls that a model writes into its text, because its endpoint has no tools or because it does not know better.

Text is a call only where the whole answer is one, behind one opening sentence at most: what an answer quotes is not done.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gateway.agent.models import bare_tool_calls
from gateway.agent.models.interface import JSON, ModelRequest

Offered = Mapping[str, JSON]
"""The functions that may be called, by name, as `tools` has them."""

_NAMES, _ARGUMENTS = ("name", "tool", "tool_name", "function"), ("arguments", "parameters", "args", "input")
_BESIDE = frozenset({*_NAMES, *_ARGUMENTS, "type", "id"})
_LIKE_CALL = re.compile(r'"(?:name|tool|tool_name|function)"\s*:\s*"(?P<name>[\w-]{1,64})"')


def calls_in(text: str, offered: Offered) -> list[JSON]:
    """Returns the calls that this text consists of: one object, a list of them, or several on successive lines; else none."""
    calls: list[JSON] = []
    rest = text.strip()
    while rest:
        found, end = first_object(rest)
        if end == 0:
            return []
        made = _calls(found, offered)
        if not made:
            return []
        calls += made
        rest = rest[end:].lstrip(" \t\r\n,;")
    return calls


def first_object(text: str) -> tuple[Any, int]:
    """Returns the JSON that the text begins with, and where it ends; (None, 0) when it is none, or not yet. `{{…}}` is `{…}`."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)  # models write line breaks into strings as they are
    except ValueError:
        pass
    if not text.startswith("{{"):
        return None, 0
    end = text.find("}}", 2)
    while end >= 0:
        doubled = text[: end + 2]
        # Small models copy the braces of a template: the outer pair alone is doubled, or every pair.
        halved = doubled.replace("{{", "{").replace("}}", "}") if doubled.count("{{") == doubled.count("}}") else ""
        for inside in (text[1 : end + 1], halved):
            try:
                return json.loads(inside, strict=False), end + 2
            except ValueError:
                continue
        end = text.find("}}", end + 1)
    return None, 0


def broken_call(text: str, offered: Offered) -> JSON | None:
    """Returns a call of a known tool whose JSON is broken: it is made all the same, so that the model reads what is wrong with it."""
    found = _LIKE_CALL.search(text)
    if found is None or found["name"] not in offered:
        return None
    return _new_call(found["name"], text.strip())


def may_be_call(key: str, offered: Offered, *, whole: bool) -> bool:
    """Returns whether an object whose first key this is (or begins so) can be a call."""
    known = _BESIDE.union(*(_properties(function) for function in offered.values()))
    return key in known if whole else any(name.startswith(key) for name in known)


def _calls(found: Any, offered: Offered) -> list[JSON]:
    items = cast(list[Any], found) if isinstance(found, list) else [found]
    calls = [call for item in items if (call := _call(item, offered))]
    return calls if len(calls) == len(items) else []


def _call(item: Any, offered: Offered) -> JSON | None:
    if not isinstance(item, dict):
        return None
    fields = cast(JSON, item)
    if isinstance(inner := fields.get("function"), dict):  # the call as it stands in a transcript
        return _call(inner, offered)
    for key in _NAMES:
        if isinstance(name := fields.get(key), str) and name in offered:
            return _named_call(name, {field: value for field, value in fields.items() if field != key}, offered[name])
    # The call of an object of arguments alone, when only one tool takes them.
    fitting = [
        name
        for name, function in offered.items()
        if _has_known_action(fields, function)
        and fields.keys() <= _properties(function)
        and _required(function) <= fields.keys()
    ]
    return _new_call(fitting[0], fields) if len(fitting) == 1 else None


def _named_call(name: str, fields: JSON, function: JSON) -> JSON | None:
    """Returns the call of an object with the tool's name: its arguments are an object of their own, or stand beside the name."""
    for key in _ARGUMENTS:
        if isinstance(arguments := fields.get(key), (dict, str)):
            return _new_call(name, arguments)
    flat = {field: value for field, value in fields.items() if field not in {"type", "id"}}
    return _new_call(name, flat) if flat.keys() <= _properties(function) else None


def _has_known_action(fields: JSON, function: JSON) -> bool:
    properties: dict[str, JSON] = _schema(function).get("properties") or {}
    allowed: Sequence[Any] = properties.get("action", {}).get("enum") or ()
    return fields.get("action") in allowed and len(fields) > 1


def _schema(function: JSON) -> JSON:
    return function.get("parameters") or {}


def _properties(function: JSON) -> frozenset[str]:
    return frozenset(_schema(function).get("properties") or ())


def _required(function: JSON) -> set[str]:
    return set(_schema(function).get("required") or ())


def _new_call(name: str, arguments: Any) -> JSON:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": "", "type": "function", "function": {"name": name, "arguments": text}}


_BLOCK = re.compile(
    r"\s*(?:```(?:tool|tool_call|tool_code)[ \t]*\n(?P<fenced>.*?)(?:^[ \t]*```[ \t]*$|\Z)"
    r"|<(?P<tag>tool_call|tool_response|tools)>(?P<tagged>.*?)(?:</(?P=tag)>|\Z))",
    re.DOTALL | re.MULTILINE,
)
"""A call in a fence, or in the tags of the templates that small models were trained with: they confuse one tag with another."""
_BLOCK_OPENINGS = (
    *bare_tool_calls.ELEMENTS,
    "```tool",
    "</tools>",
    "}",
    "]",
    "tool{",
    "tool {",
    "tool_call{",
    "tool_call {",
)
_JSON_OPENING = re.compile(r'(?:\[\s*)?\{+\s*(?:"(?P<key>\w*)(?P<end>")?|\Z)|\[\s*\Z')
_REMAINS = re.compile(r"(?:</?tools>|[}\]\s])+")
_REMAINS_OF_TAGS = re.compile(r"\A\s*(?:</?tools>\s*)+")
_STRAY = re.compile(r"\s*[}\]]+\s*\Z")
_STRAY_TAGS = re.compile(r"(?:[.!?…}\]\"][ \t]*+|\n[ \t]*+)(?P<tags>(?:</?tools?>\s*+)+)\Z")
_MAYBE_STRAY = re.compile(r"(?<![\s}\]])[\s}\]]*+(?:</?[a-z_]{0,9}+>?\s*+)*+\Z")
_KIND = re.compile(r"tool(?:_call)?\s*(?=\{)")
_SENTENCE = re.compile(r"[^`\"“”«»{}<>]{0,200}")
_NEXT_SENTENCE = re.compile(r"[.!?…]\s+\S")
_LONGEST_OPENING = 100
_FENCE = re.compile(r"```(?:json)?[ \t]*\n\s*")
_FENCED_JSON = re.compile(r"\s*```(?:json)?\s*\n(?P<inside>.*?)\n?\s*```\s*", re.DOTALL)

_INSTRUCTIONS = """You can call tools. To call one, write a fenced block marked `tool` and nothing after it:

```tool
{"name": "NAME", "arguments": {}}
```

Several blocks call several tools. The results come with the next message. These are the tools, with the JSON Schema of their arguments:
"""


class TextToolCallFilter:
    """Holds back what may become a call, and lets other text through as it arrives.

    `offered`: tools that may be called in any way in which small models write a call. `in_fence`: tools that may be called in a block
    that is marked `tool`, as the instructions say. An answer is a call, or several, when it consists of nothing else, except for one
    sentence on a line of its own before them. `is_broken`, after the end: it is neither a call nor an answer, but what is left of a call, or
    a call that may be a quotation because it stands in a fence; that is not shown.
    """

    def __init__(self, offered: Offered, in_fence: Offered) -> None:
        self._offered = offered
        self._in_fence = in_fence
        self.restart()

    def restart(self) -> None:
        """Forgets all text before: the answer begins anew."""
        self.text = ""
        self.calls: list[JSON] = []
        self.is_broken = False
        self._held = ""
        self._may_come = bool(self._offered or self._in_fence)

    def feed(self, piece: str) -> str:
        """Takes a piece of the answer. Returns the text that can be shown now."""
        self._held += piece
        # What is held for longer than any opening is decided at its end; to look at it with every piece would take too long.
        if not self._may_come or len(self._held) > _LONGEST_OPENING + len(piece):
            return "" if self._may_come else self._show(self._end_of_text())
        start = self._start_of_call(self.text + self._held)
        self._may_come = start is not None
        return self._show(self._end_of_text() if start is None else start - len(self.text))

    def within(self, arguments: str) -> list[JSON]:
        """Returns the calls that the arguments of a call consist of, when they are no arguments: a server that cuts calls out of the text of a
        small model may cut in the wrong place."""
        return [] if first_object(arguments)[1] else self._calls_in(arguments.strip())

    def finish(self, *, is_text: bool = False) -> str:
        """Decides about what was held back, and returns it when it is text. `is_text`: there is no call in this answer."""
        if not is_text and self._may_come:
            text = self._held.strip()
            if fence := _FENCE.match(text):
                inside = text[fence.end() :].removesuffix("```").rstrip()
                self.is_broken = not self.text.strip() and bool(_read(inside, self._offered))
            else:
                self._decide(text)
        if self.calls or self.is_broken:
            return ""
        if not is_text and self._offered:
            # What is held without empty tags at its start, and without tags and brackets at its end that close nothing.
            held = self._held if self.text.strip() else _REMAINS_OF_TAGS.sub("", self._held)
            held = held if {"{", "["} & {*self.text, *held} else _STRAY.sub("", held)
            answer = self.text + held
            stray = _STRAY_TAGS.search(answer)
            if stray and "<tools>" not in answer[: stray.start("tags")]:
                held = held[: max(0, stray.start("tags") - len(self.text))]
            self._held = held
        return self._show(len(self._held))

    def _decide(self, text: str) -> None:
        self.calls = self._calls_in(text)
        bare = None if self.calls else bare_tool_calls.read(text, self._offered)
        if bare is not None and bare[1]:
            self.calls = [_new_call(*bare)]
        is_nothing = not self.text.strip() and _REMAINS.fullmatch(text) is not None
        self.is_broken = not self.calls and (bare is not None or is_nothing or self._begins_with_call(text))

    def _begins_with_call(self, text: str) -> bool:
        """Returns whether a call is followed by something else: whatever it is, it is not for people."""
        if block := _BLOCK.match(text):
            inside = (block["tagged"] or block["fenced"] or "").strip()
            is_result = block["tag"] == "tool_response" and not first_object(inside)[1]
            return is_result or bool(_read(inside, self._in_fence or self._offered))
        text = _KIND.sub("", text, count=1)
        end = first_object(text)[1]
        return bool(end and calls_in(text[:end], self._offered)) or (
            not end and broken_call(text, self._offered) is not None
        )

    def _end_of_text(self) -> int:
        """Returns how much of what is held can be shown: a bracket at the end may be left over from a call."""
        found = _MAYBE_STRAY.search(self._held) if self._offered else None
        return len(self._held) if found is None else found.start()

    def _show(self, end: int) -> str:
        shown, self._held = self._held[:end], self._held[end:]
        self.text += shown
        return shown

    def _start_of_call(self, answer: str) -> int | None:
        """Returns where a call begins, or may begin with the next piece; None: this answer is text."""
        begun = answer.lstrip()
        if self._may_open(begun):
            return len(answer) - len(begun)
        sentence, line_break, rest = begun.partition("\n")
        if _SENTENCE.fullmatch(sentence) is None or _NEXT_SENTENCE.search(sentence):
            return None
        rest = rest.lstrip()
        return len(answer) - len(rest) if not line_break or self._may_open(rest) else None

    def _may_open(self, text: str) -> bool:
        if any(text.startswith(opening) or opening.startswith(text) for opening in _BLOCK_OPENINGS):
            return True
        if self._offered and bare_tool_calls.may_open(text, self._offered):
            return True
        if self._offered and text.startswith("`"):
            fence = _FENCE.match(text)
            if fence is None or fence.end() == len(text):
                return fence is not None or "```json\n".startswith(text) or "```\n".startswith(text)
            text = text[fence.end() :]
        found = _JSON_OPENING.match(text)
        if found is None:
            return False
        return found["key"] is None or may_be_call(found["key"], self._offered, whole=bool(found["end"]))

    def _calls_in(self, text: str) -> list[JSON]:
        calls: list[JSON] = []
        end = 0
        while block := _BLOCK.match(text, end):
            fenced, end = block["fenced"], block.end()
            found = _read(block["tagged"], self._offered) if fenced is None else _read(fenced, self._in_fence)
            if not found:
                return []
            calls += found
        rest = text[end:].strip()
        if calls:
            return [] if rest else calls
        return _read(_KIND.sub("", rest, count=1).removesuffix("```"), self._offered)


def _read(text: str, offered: Offered) -> list[JSON]:
    """Returns the calls that this text consists of. JSON that is broken off or wrong, with a tool's name, was meant as a call."""
    if found := calls_in(text, offered):
        return found
    broken = broken_call(text, offered) if first_object(text.strip())[1] == 0 else None
    return [] if broken is None else [broken]


_IN_WORDS = (
    "[Nobody was shown your last answer: it was no tool call that can be read, and no answer either. Answer the message before it again, in"
    " plain words, and name no tool.]"
)


def in_words(request: ModelRequest) -> ModelRequest:
    """Returns the request for another answer, after one that was only what is left of a call."""
    told = [{"role": "assistant", "content": "(nothing)"}, {"role": "user", "content": _IN_WORDS}]
    return replace(request, messages=[*request.messages, *told])


def unfenced_json(text: str) -> str:
    """Returns JSON without the fence that a model put around it."""
    match = _FENCED_JSON.fullmatch(text)
    return match.group("inside") if match else text


def instructions(tools: Sequence[Mapping[str, Any]]) -> str:
    """Returns what the system prompt says in place of `tools`."""
    lines = [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
    return _INSTRUCTIONS + "\n".join(lines)


def with_instructions(messages: Sequence[JSON], text: str) -> list[JSON]:
    """Adds the instructions to the end of the system prompt: user messages stay as they are."""
    first = messages[0] if messages else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def spell_out(messages: Sequence[JSON]) -> list[JSON]:
    """Returns the transcript for an endpoint without tools: calls as the blocks that asked for them, results as user text."""
    spelled: list[JSON] = []
    for message in messages:
        plain = _spelled(message)
        if spelled and plain["role"] == spelled[-1]["role"] != "system" and _both_text(spelled[-1], plain):
            spelled[-1] = {**spelled[-1], "content": f"{spelled[-1]['content']}\n\n{plain['content']}"}
        else:
            spelled.append(plain)
    return spelled


def _spelled(message: JSON) -> JSON:
    if message["role"] == "tool":
        return {"role": "user", "content": f"[result of the tool call {message['tool_call_id']}]\n{message['content']}"}
    calls: list[JSON] = message.get("tool_calls") or []
    if not calls:
        return message
    blocks = [f"```tool\n{_block_of(call)}\n```" for call in calls]
    return {"role": "assistant", "content": "\n\n".join([*filter(None, [message.get("content")]), *blocks])}


def _block_of(call: JSON) -> str:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:
        arguments = function["arguments"]
    return json.dumps({"name": function["name"], "arguments": arguments}, ensure_ascii=False)


def _both_text(one: JSON, other: JSON) -> bool:
    return isinstance(one.get("content"), str) and isinstance(other.get("content"), str)
