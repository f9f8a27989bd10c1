"""Tool calls that a model writes into its text, because its endpoint has no tools or because it does not know better.

Three ways are understood: a fenced block, `<tool_call>…</tool_call>`, and JSON objects that are calls, wherever they stand.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.agent.models.interface import JSON
from gateway.agent.models.json_tool_calls import MAY_OPEN, Offered, broken_call, calls_in, first_object, may_be_call

_OPENING = re.compile(r"^[ \t]*```[ \t]*(?P<lang>\w*)[ \t]*\n|<tool_call>", re.MULTILINE)
_MAYBE_OPENING = re.compile(
    r"(?:^[ \t]*`{1,3}[ \t]*\w*[ \t]*|<[a-z_]{0,10}|\bt(?:o(?:o(?:l(?:_[cal]{0,4})?\s*)?)?)?)\Z", re.MULTILINE
)
_INSIDE_JSON = re.compile(r'(?:["\]}]\s*:|[\[{,])\s*\Z')
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


class TextToolCallFilter:
    """Holds back what may become a tool call and lets the rest of the text through as it arrives.

    `anywhere=False`: as with an endpoint that has real tools, a call with nothing in it counts only where it opens the answer.
    """

    def __init__(self, offered: Offered, *, anywhere: bool) -> None:
        self.text = ""
        self.calls: list[JSON] = []
        self._offered = offered
        self._anywhere = anywhere
        self._rest = ""
        self._in_code = False
        self._begun = False
        self._ends_with_call = False

    def restart(self) -> None:
        """Forgets all text before: the answer begins anew."""
        self.text, self._rest, self.calls = "", "", []
        self._in_code = self._begun = self._ends_with_call = False

    def finish(self) -> str:
        return self.feed("", last=True)

    def feed(self, piece: str, *, last: bool = False) -> str:
        start = len(self.text)
        # The line break behind a call would be left over as an empty answer.
        self._rest += piece.lstrip("\n") if self._ends_with_call and not self._rest else piece
        while self._rest and self._step(last):
            pass
        return self.text[start:]

    def _step(self, last: bool) -> bool:
        """Takes one piece of text or one block. Returns False when more has to arrive first."""
        if not self._offered:
            return self._let_through(len(self._rest))
        if self._in_code:
            return self._code(last)
        # A list of calls is recognised only as a whole, so an answer that begins with one is held back to its end.
        if not self._begun and not self.calls and self._rest.lstrip().startswith("["):
            return last and self._decide(self._rest, len(self._rest))
        opening, written = _OPENING.search(self._rest), MAY_OPEN.search(self._rest)
        if written is not None and (opening is None or written.start() < opening.start()):
            return self._let_through(written.start()) if written.start() else self._object(written, last)
        if opening is None:
            maybe = None if last else _MAYBE_OPENING.search(self._rest)
            return self._let_through(maybe.start() if maybe else len(self._rest))
        if opening.start():
            return self._let_through(opening.start())
        return self._block(opening, last)

    def _object(self, written: re.Match[str], last: bool) -> bool:
        """Reads text that begins with a brace, which may open a call."""
        open_end = written.end() == len(self._rest) and not last
        # Behind a comma, bracket or key the object is a part of JSON that is already being shown.
        if _INSIDE_JSON.search(self.text) or not self._is_candidate(written, open_end):
            return self._let_through(written.end("brace"))
        if open_end and not written["end"]:
            return False
        found, end = first_object(self._rest[written.start("brace") :])
        if end:
            return self._decide(json.dumps(found), written.start("brace") + end)
        return last and self._decide(self._rest, len(self._rest))

    def _is_candidate(self, written: re.Match[str], open_end: bool) -> bool:
        if written["key"] is None:
            return open_end
        if not written["end"]:
            return open_end and may_be_call(written["key"], self._offered, whole=False)
        return may_be_call(written["key"], self._offered, whole=True)

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
        """Reads a block in some programming language, which is text to its end."""
        closed = _CLOSING.search(self._rest)
        if closed is None:
            return self._let_through(len(self._rest) if last else self._rest.rfind("\n") + 1)
        self._in_code = False
        return self._let_through(closed.end())

    def _decide(self, inside: str, end: int) -> bool:
        found = calls_in(inside, self._offered)
        # JSON that is whole and no call is an example; broken JSON with a tool's name was meant as a call.
        if not found and (broken := broken_call(inside, self._offered)) is not None and not _is_json(inside):
            found = [broken]
        if not found or not self._counts(found):
            return self._let_through(end)
        self.calls += found
        self._ends_with_call = True
        self._rest = self._rest[end:].lstrip("\n")
        return True

    def _counts(self, found: Sequence[JSON]) -> bool:
        """Returns whether a call counts. After some words, an empty call is more likely an example of one."""
        says_something = all(call["function"]["arguments"] not in {"", "{}"} for call in found)
        return self._anywhere or not self._begun or says_something

    def _let_through(self, end: int) -> bool:
        piece = self._rest[:end]
        self.text += piece
        self._begun = self._begun or bool(piece.strip())
        self._rest = self._rest[end:]
        self._ends_with_call = self._ends_with_call and end == 0
        return end > 0


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


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
