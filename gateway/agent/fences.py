"""Tool calls that a model writes into its text, because its endpoint has no tools or because it does not know better.

Three ways are understood: a fenced block, `<tool_call>…</tool_call>`, and an answer that is nothing but the JSON object.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from gateway.agent.asking import JSON

_OPENING = re.compile(r"^[ \t]*```[ \t]*(?P<lang>\w*)[ \t]*\n|<tool_call>", re.MULTILINE)
_MAYBE_OPENING = re.compile(r"(?:^[ \t]*`{1,3}[ \t]*\w*[ \t]*|<[a-z_]{0,10})\Z", re.MULTILINE)
_CLOSING = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)
_CLOSING_TAG = re.compile(r"</tool_call>")
_LANGUAGES = {"", "json", "tool", "tool_call", "tool_code"}
_FENCED_JSON = re.compile(r"\s*```(?:json)?\s*\n(?P<inside>.*?)\n?\s*```\s*", re.DOTALL)

_INSTRUCTIONS = """You can call tools. To call one, write a fenced block marked `tool` and nothing after it:

```tool
{"name": "NAME", "arguments": {}}
```

Several blocks call several tools. The results come with the next message. These are the tools, with the JSON Schema of their arguments:
"""


class Fences:
    """Holds back what may become a tool call and lets the rest of the text through as it arrives.

    `anywhere=False`: only what opens the answer counts, as with an endpoint that has real tools.
    """

    def __init__(self, names: Collection[str], *, anywhere: bool) -> None:
        self.text = ""
        self.calls: list[JSON] = []
        self._names = names
        self._anywhere = anywhere
        self._rest = ""
        self._in_code = False
        self._begun = False

    def feed(self, piece: str) -> str:
        return self._take(piece, last=False)

    def finish(self) -> str:
        return self._take("", last=True)

    def restart(self) -> None:
        """All text before this was none."""
        self.text, self._rest, self.calls = "", "", []
        self._in_code = self._begun = False

    def _take(self, piece: str, *, last: bool) -> str:
        start = len(self.text)
        self._rest += piece
        while self._rest and self._step(last):
            pass
        return self.text[start:]

    def _step(self, last: bool) -> bool:
        """One piece of text or one block. False when more has to arrive first."""
        if not self._names or (not self._anywhere and self._begun):
            return self._let_through(len(self._rest))
        if self._in_code:
            return self._code(last)
        if not self._begun and not self.calls and self._rest.lstrip().startswith("{"):
            return last and self._decide(self._rest, len(self._rest))
        opening = _OPENING.search(self._rest)
        if opening is None:
            maybe = None if last else _MAYBE_OPENING.search(self._rest)
            return self._let_through(maybe.start() if maybe else len(self._rest))
        if opening.start():
            return self._let_through(opening.start())
        return self._block(opening, last)

    def _block(self, opening: re.Match[str], last: bool) -> bool:
        language = opening.group("lang")
        if language is not None and language not in _LANGUAGES:
            self._in_code = True
            return self._let_through(opening.end())
        closed = (_CLOSING_TAG if language is None else _CLOSING).search(self._rest, opening.end())
        if closed is None and not last:
            return False
        end = closed.end() if closed else len(self._rest)
        return self._decide(self._rest[opening.end() : closed.start() if closed else end], end)

    def _code(self, last: bool) -> bool:
        """A block in some programming language is text to its end."""
        closed = _CLOSING.search(self._rest)
        if closed is None:
            return self._let_through(len(self._rest) if last else self._rest.rfind("\n") + 1)
        self._in_code = False
        return self._let_through(closed.end())

    def _decide(self, inside: str, end: int) -> bool:
        found = calls_in(inside, self._names)
        if not found:
            return self._let_through(end)
        self.calls += found
        self._rest = self._rest[end:].lstrip("\n")
        return True

    def _let_through(self, end: int) -> bool:
        piece = self._rest[:end]
        self.text += piece
        self._begun = self._begun or bool(piece.strip())
        self._rest = self._rest[end:]
        return end > 0


def calls_in(text: str, names: Collection[str]) -> list[JSON]:
    """The calls of known tools that this JSON is, or none."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    items = cast(list[Any], found) if isinstance(found, list) else [found]
    calls = [call for item in items if (call := _call(item, names))]
    return calls if len(calls) == len(items) else []


def _call(item: Any, names: Collection[str]) -> JSON | None:
    match item:
        case {"name": str(name), "arguments": arguments} | {"name": str(name), "parameters": arguments} if (
            name in names
        ):
            text: str = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            return {"id": "", "type": "function", "function": {"name": name, "arguments": text}}
        case _:
            return None


def unfenced_json(text: str) -> str:
    """JSON without the fence that a model put around it."""
    match = _FENCED_JSON.fullmatch(text)
    return match.group("inside") if match else text


def instructions(tools: Sequence[Mapping[str, Any]]) -> str:
    """What the system prompt says in place of `tools`."""
    lines = [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
    return _INSTRUCTIONS + "\n".join(lines)


def with_instructions(messages: Sequence[JSON], text: str) -> list[JSON]:
    """At the end of the system prompt: user messages stay as they are."""
    first = messages[0] if messages else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def spell_out(messages: Sequence[JSON]) -> list[JSON]:
    """The transcript for an endpoint without tools: calls as the blocks that asked for them, results as user text."""
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
