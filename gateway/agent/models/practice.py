"""The model that needs no network and no key: fixed rules that drive every feature, so that a newcomer can try them all."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gateway.agent.models.interface import JSON, Answer, ModelRequest, OnToken, ToolCall, Usage
from gateway.agent.tokens import Tokens
from gateway.texts.quoting import as_quoted

Arguments = Callable[[re.Match[str], JSON], JSON]


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeTrick:
    """`arguments` gets the match and the tool as it is offered. `example` is what the help shows."""

    example: str
    pattern: re.Pattern[str]
    tool: str
    arguments: Arguments
    announcement: str = ""


def _trick(example: str, pattern: str, tool: str, arguments: Arguments, announcement: str = "") -> PracticeTrick:
    compiled = re.compile(pattern, re.IGNORECASE | re.DOTALL)
    return PracticeTrick(example=example, pattern=compiled, tool=tool, arguments=arguments, announcement=announcement)


def _remember(match: re.Match[str], _tool: JSON) -> JSON:
    text = (match.group("told") or match.group(0)).strip()
    kind = "preference" if "prefer" in text.lower() else "fact"
    return {"action": "save", "text": text, "kind": kind}


def _write_file(match: re.Match[str], _tool: JSON) -> JSON:
    content = match.group("content") or "A note from the practice model.\n"
    return {"action": "write", "path": match.group("path") or "practice.md", "content": content}


def _save_skill(match: re.Match[str], _tool: JSON) -> JSON:
    content = match.group("content") or "# Greeting\n\n1. Say hello.\n2. Ask what the day brings.\n"
    return {"action": "save", "name": match.group("name") or "greeting", "content": content}


def _remind(match: re.Match[str], tool: JSON) -> JSON:
    every = "every " if match.group("every") else ""
    unit = (match.group("unit") or "minutes")[0].lower()
    task = match.group("task").strip() or "something"
    return {
        "action": _known_action(tool, "add", "create"),
        "name": task[:40],
        "schedule": f"{every}{match.group('number') or 1}{unit}",
        "prompt": f"Remind the user: {task}",
    }


def _known_action(tool: JSON, *names: str) -> str:
    """Returns the first of the names that the tool's own schema knows."""
    parameters: JSON = tool.get("parameters") or {}
    properties: JSON = parameters.get("properties") or {}
    action: JSON = properties.get("action") or {}
    known: list[str] = action.get("enum") or list(names)
    return next((name for name in names if name in known), names[0])


def _question(_match: re.Match[str], _tool: JSON) -> JSON:
    return {"question": "Which colour do you like best?", "options": ["Red", "Green", "Blue"]}


TRICKS: tuple[PracticeTrick, ...] = (
    _trick(
        "remember that I live in Oslo",
        r"(?:please )?(?:remember|note)(?: that)?[: ]+(?P<told>.+)|(?:I prefer|my name is) .+",
        "memory",
        _remember,
    ),
    _trick(
        "forget Oslo",
        r"forget(?: that| about)? (?P<what>.+)",
        "memory",
        lambda m, _: {"action": "forget", "text": m["what"]},
    ),
    _trick(
        "list what is in your memory",
        r"list .*\bmemory\b|what do you (?:know|remember)",
        "memory",
        lambda _match, _tool: {"action": "list"},
    ),
    _trick(
        "search Oslo",
        r"(?:search(?: for)?|what did (?:we|I) say about) (?P<query>.+?)\??$",
        "session_search",
        lambda m, _: {"query": m["query"]},
        "I look through our conversations.",
    ),
    _trick(
        "write a file notes.md: buy milk",
        r"write (?:a |the )?file\b(?: (?:named |called )?(?P<path>[\w./-]*\w))?(?:\s*(?::| with| saying)\s*(?P<content>.+))?",
        "files",
        _write_file,
    ),
    _trick(
        "list files",
        r"(?:list|show)(?: me)?(?: the| my| your)? files",
        "files",
        lambda _match, _tool: {"action": "list", "path": "."},
    ),
    _trick(
        "read the file notes.md",
        r"read (?:the )?file (?P<path>\S+)",
        "files",
        lambda m, _: {"action": "read", "path": m["path"]},
    ),
    _trick(
        "send me the file notes.md",
        r"send (?:me )?(?:the )?file (?P<path>\S+)",
        "files",
        lambda m, _: {"action": "send", "path": m["path"]},
    ),
    _trick(
        "delete the file notes.md",
        r"delete (?:the )?file (?P<path>\S+)",
        "files",
        lambda m, _: {"action": "delete", "path": m["path"]},
    ),
    _trick(
        "save a skill greeting: say hello in Norwegian",
        r"save (?:a |the )?skill\b(?: (?:named |called )?(?P<name>[\w-]+))?(?:\s*:\s*(?P<content>.+))?",
        "skill",
        _save_skill,
    ),
    _trick(
        "list skills",
        r"(?:list|show)(?: me)?(?: the| my| your)? skills",
        "skill",
        lambda _match, _tool: {"action": "list"},
    ),
    _trick("ask me something", r"ask me\b", "ask_human", _question),
    _trick(
        "remind me in 2 minutes to stretch",
        r"remind me (?P<every>every )?(?:in )?(?P<number>\d+)? ?(?P<unit>[smhd]\w*)?(?: to| about|:)? ?(?P<task>.*)",
        "schedule",
        _remind,
    ),
    _trick(
        "fetch https://example.org",
        r"(?:fetch|open) (?P<url>https?://\S+)",
        "web_fetch",
        lambda m, _: {"url": m["url"]},
    ),
    _trick(
        "run the command uname -a",
        r"run (?:the )?command (?P<command>.+)",
        "process",
        lambda m, _: {"action": "start", "command": m["command"]},
    ),
)

BOTH_AT_ONCE = tuple(
    next(trick for trick in TRICKS if trick.example == example)
    for example in ("list files", "list what is in your memory", "list skills", "search Oslo")
)

_WITHOUT_TOOLS = ("what do you know about me", "call two tools at once", "count to 20 slowly", "write a long answer")


def help_text(offered: Collection[str], callers: Collection[str] = ()) -> str:
    """`callers`: those of the offered tools that are a caller's own."""
    examples = [trick.example for trick in TRICKS if trick.tool in offered]
    lines = "\n".join(
        f"- `{example}`" for example in (*(f"call {name}" for name in callers), *examples, *_WITHOUT_TOOLS)
    )
    return (
        "I am the practice model: fixed rules, no real AI, no network. With me you can try what this gateway does. "
        f"Write for example:\n\n{lines}\n\n"
        "While I count slowly you can write more, which I then read, or stop me with `/stop`. `/help` lists the commands."
    )


_SECTION = """## Part {number}

This answer is long on purpose: it shows how text arrives bit by bit, and how it is split where a chat allows only so much.

- a **bold** word, an *italic* one and `code`
- a [link](https://example.org) and ~~something struck out~~
  - a point below a point

1. first
2. second

> A quotation of two lines,
> to see how it is set.

| fruit | pieces |
|---|---:|
| apples | {apples} |
| pears | {pears} |

```python
def part() -> int:
    return {number}
```
"""


def long_answer() -> str:
    sections = [_SECTION.format(number=number, apples=number * 3, pears=number + 7) for number in range(1, 11)]
    return "# A long answer of the practice model\n\n" + "\n".join(sections) + "\nThat was all of it."


NAME = "practice"
PAUSE_SECONDS = 0.015
SLOW_SECONDS = 0.3
MOST_NUMBERS = 300
SHOWN_CHARACTERS = 1_500
WINDOW = 128_000

_SPEAKER = re.compile(r"^\[[^\]\n]{1,80}\] ")
_COUNT = re.compile(r"count (?:up )?to (\d+)", re.IGNORECASE)
_SLOWLY = re.compile(r"count\b.*\bslowly\b", re.IGNORECASE)
_HELP = re.compile(r"(?:help(?: me)?|\?|what can (?:you do|i try)\b.*)\W*$", re.IGNORECASE)
_LONG = re.compile(r"(?:write|give me|show me) (?:a )?(?:very )?(?:long|markdown)\b", re.IGNORECASE)
_REMINDER = re.compile(r"Remind the user: (.+)", re.DOTALL)
_KNOW = re.compile(r"what do you (?:know|remember)", re.IGNORECASE)
_ASKING = re.compile(
    r"(?:what|where|who|whom|which|when|how|do|am|is|are)\b.*\b(?:I|me|my|mine|we|us|our)\b.*", re.IGNORECASE
)
_BOTH = re.compile(r"call two tools", re.IGNORECASE)
_CALL = re.compile(r"(?:call|use)\s+(?:the\s+tool\s+)?`?([\w-]+)`?\s*(\{.*\})?\s*$", re.IGNORECASE | re.DOTALL)
_OBSERVATION = re.compile(r"^\W*(o\d+ .+)$", re.MULTILINE)
_NOTE_HEAD = re.compile(r"^o\d+ \S+ \w+: (?:that )?")
_SWAPPED = {"i": "you", "me": "you", "my": "your", "mine": "yours", "am": "are", "i'm": "you're", "myself": "yourself"}
_MOST_NOTES = 5
_NUMBERED_LINE = re.compile(r"^\W*(\d+)\W+(.*)$", re.MULTILINE)
_TELLING = re.compile(
    r"[^.!?\n]*\b(?:I prefer|I like|I live|my name is|we decided|remember that)\b[^.!?\n]*[.!?]?", re.IGNORECASE
)


class PracticeModel:
    """`Model` without a model. The same request gets the same answer. `pause`: seconds between streamed words."""

    def __init__(
        self,
        *,
        pause: float = PAUSE_SECONDS,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        tokens: Tokens | None = None,
    ) -> None:
        self.tokens = tokens or Tokens()
        self._pause = pause
        self._sleep = sleep

    is_near = False
    """It serves everybody at once."""

    def describe(self) -> str:
        return "practice (no real AI, no network)"

    def window(self, model: str | None = None) -> int:  # noqa: ARG002 there is but one
        return WINDOW

    def left_out(self, fields: Collection[str], model: str | None = None) -> Collection[str]:  # noqa: ARG002 there is but one
        return fields

    async def learn_window(self, model: str | None = None) -> None:
        """Does nothing: the window is known."""

    async def warm_up(self) -> None:
        """Does nothing: there is nothing to load."""

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def start_slowly(self, model: str | None = None) -> None:
        """Does nothing: it is never away."""

    async def ask(self, request: ModelRequest, on_token: OnToken | None = None) -> Answer:
        text, calls = _answer_to(request)
        whole = text
        if request.max_output_tokens is not None and not request.response_format:
            text = self.tokens.clip(text, request.max_output_tokens, marker="")
        if on_token:
            pause = SLOW_SECONDS if _SLOWLY.match(last_user_text(request.messages)) else self._pause
            await self._stream(text, on_token, pause)
        asked = self.tokens.messages(request.messages) + self.tokens.tools(request.tools)
        written = text + "".join(call.name + call.arguments for call in calls)
        return Answer(
            text=text,
            tool_calls=calls,
            finish_reason="tool_calls" if calls else "stop" if text == whole else "length",
            usage=Usage(input_tokens=asked, output_tokens=self.tokens.text(written), estimated=True),
            model=NAME,
        )

    async def _stream(self, text: str, on_token: OnToken, pause: float) -> None:
        for word in re.findall(r"\S+\s*|\s+", text):
            on_token(word)
            if pause:
                await self._sleep(pause)


def last_user_text(messages: Sequence[JSON]) -> str:
    """Returns what the user wrote last, without the context block before it and the name in groups."""
    users = [message for message in messages if message["role"] == "user"]
    content: Any = users[-1].get("content") if users else ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in cast(list[JSON], content))
    text = str(content or "")
    _, block, after = text.partition("\n\n")
    return _SPEAKER.sub("", after if block else text).strip()


def _answer_to(request: ModelRequest) -> tuple[str, tuple[ToolCall, ...]]:
    if request.response_format:
        return _as_asked(request), ()
    if request.messages and request.messages[-1]["role"] == "tool":
        return _results_in_words(request.messages), ()
    said = last_user_text(request.messages)
    # Before the tricks: `what do you know` is also the pattern of one that calls the memory tool, which the prompt makes unnecessary.
    if _KNOW.match(said) and _remembered(request.messages):
        return _known(request.messages), ()
    wanted = request.sampling.get("tool_choice")
    usable = request.tools if wanted != "none" else ()
    offered: dict[str, JSON] = {tool["function"]["name"]: tool["function"] for tool in usable}
    callers = [name for name in offered if name in request.callers_tools]
    if (call := _call_of_caller(said, request.messages, offered, callers, wanted)) is not None:
        return "", (call,)
    if _BOTH.match(said):
        return _both_at_once(request.messages, offered)
    for trick in TRICKS:
        if (match := trick.pattern.match(said)) and trick.tool in offered:
            return trick.announcement, _calls(request.messages, [(trick, match)], offered)
    return _in_words(said, request.messages, offered, callers), ()


def _call_of_caller(
    said: str, messages: Sequence[JSON], offered: dict[str, JSON], callers: Sequence[str], wanted: Any
) -> ToolCall | None:
    """Returns the call of a caller's own tool: of one that is named (`call weather {"city": "Oslo"}`), or that the request asks for."""
    named, arguments = match.groups() if (match := _CALL.match(said)) else ("", None)
    if named not in callers:
        arguments = None
        if isinstance(wanted, dict):
            function: JSON = cast(JSON, wanted).get("function") or {}
            named = function.get("name", "")
        elif wanted == "required":
            named = callers[0] if callers else ""
    if named not in callers:
        return None
    smallest = json.dumps(_smallest(offered[named].get("parameters") or {"type": "object"}), ensure_ascii=False)
    return _call(_free_id(len(messages), _ids_of(messages)), named, arguments or smallest)


def _in_words(said: str, messages: Sequence[JSON], offered: dict[str, JSON], callers: Sequence[str]) -> str:
    if reminder := _REMINDER.match(said):
        return f"You wanted to be reminded: {reminder[1]}"
    if _HELP.match(said):
        return help_text(offered, callers)
    if counted := _COUNT.match(said):
        return "\n".join(str(number) for number in range(1, min(int(counted.group(1)), MOST_NUMBERS) + 1))
    if _LONG.match(said):
        return long_answer()
    if _KNOW.match(said):
        return _known(messages)
    if _ASKING.match(said) and (notes := _remembered(messages)):
        return _from_notes(said, notes)
    return (
        "I am the practice model of this gateway: a handful of fixed rules, no real AI. "
        f"I understood that you wrote:\n\n{as_quoted(said[:SHOWN_CHARACTERS] or '(nothing)')}\n\n"
        "Write `help` to see what you can try. `hermes setup` connects a real model."
    )


def _remembered(messages: Sequence[JSON]) -> list[str]:
    """Returns the observations that the system prompt contains."""
    system = "\n".join(str(message.get("content")) for message in messages if message["role"] == "system")
    return _OBSERVATION.findall(system)


def _known(messages: Sequence[JSON]) -> str:
    known = _remembered(messages)
    if not known:
        return "I know nothing about you yet. Try: remember that I live in Oslo"
    return "This is what my memory holds:\n\n" + "\n".join(f"- {line}" for line in known)


def _from_notes(question: str, notes: Sequence[str]) -> str:
    """Returns the notes that share a word with the question, else the newest ones, as sentences that address the person."""
    asked = {word[:5] for word in re.findall(r"\w{4,}", question.casefold())} - {"what", "where", "which", "when"}
    sentences = [_NOTE_HEAD.sub("", note).strip() for note in notes]
    about = [each for each in sentences if asked & {word[:5] for word in re.findall(r"\w{4,}", each.casefold())}]
    chosen = [
        re.sub(r"[\w']+", lambda word: _SWAPPED.get(word.group().casefold(), word.group()), sentence).rstrip(".")
        for sentence in (about or sentences)[-_MOST_NOTES:]
    ]
    return f"From my notes: {'; '.join(chosen)}."


def _both_at_once(messages: Sequence[JSON], offered: dict[str, JSON]) -> tuple[str, tuple[ToolCall, ...]]:
    chosen = [trick for trick in BOTH_AT_ONCE if trick.tool in offered][:2]
    if len(chosen) < 2:
        return "For that I need two tools, and here I have fewer.", ()
    matches = [(trick, match) for trick in chosen if (match := trick.pattern.match(trick.example))]
    return "I call two tools at once.", _calls(messages, matches, offered)


def _calls(
    messages: Sequence[JSON], chosen: Sequence[tuple[PracticeTrick, re.Match[str]]], offered: dict[str, JSON]
) -> tuple[ToolCall, ...]:
    taken = _ids_of(messages)
    calls: list[ToolCall] = []
    for trick, match in chosen:
        arguments = json.dumps(trick.arguments(match, offered[trick.tool]), ensure_ascii=False)
        key = _free_id(len(messages) + len(calls), taken)
        calls.append(_call(key, trick.tool, arguments))
    return tuple(calls)


def _call(key: str, name: str, arguments: str) -> ToolCall:
    raw = {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}
    return ToolCall(id=key, name=name, arguments=arguments, raw=raw)


def _ids_of(messages: Sequence[JSON]) -> set[Any]:
    return {call["id"] for message in messages for call in message.get("tool_calls") or ()}


def _free_id(number: int, taken: set[Any]) -> str:
    """Returns an unused call id, made from the transcript's length; a transcript that was cut may have used it before."""
    while (key := f"call_{number}") in taken:
        number += 1
    taken.add(key)
    return key


_OUTSIDE = re.compile(r"\[[^\n]*: data from outside, [^\n]*\]\n(.*)\n\[end \w+\]", re.DOTALL)


def _results_in_words(messages: Sequence[JSON]) -> str:
    """Returns the results of the last calls in plain words."""
    names = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    start = len(messages)
    while start and messages[start - 1]["role"] == "tool":
        start -= 1
    return "\n\n".join(_result(names.get(each["tool_call_id"], "tool"), each) for each in messages[start:])


def _result(name: str, message: JSON) -> str:
    text = str(message.get("content") or "").strip()
    if name == "ask_human":
        return f"You answered: {text.removeprefix('The person wrote: ') or 'nothing'}"
    if not text:
        return f"The tool `{name}` is done and had nothing to say."
    if found := _OUTSIDE.fullmatch(text):
        text = found[1]
    shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …"
    return f"The tool `{name}` answered:\n\n{as_quoted(shown)}"


def _as_asked(request: ModelRequest) -> str:
    """Returns the smallest JSON of the schema; for a fold also the sentences in which somebody tells about himself."""
    wanted: JSON = (request.response_format or {}).get("json_schema") or {}
    answer: Any = _smallest(wanted.get("schema") or {"type": "object"})
    if wanted.get("name") == "hermes_fold":
        answer = {**answer, "observations": _observations(str(request.messages[-1].get("content")))}
    return json.dumps(answer, ensure_ascii=False)


def _smallest(schema: JSON) -> Any:
    kinds: Any = schema.get("type")
    kind: object = cast(list[Any], kinds)[0] if isinstance(kinds, list) else kinds
    if kind == "object":
        properties: JSON = schema.get("properties") or {}
        required: list[str] = schema.get("required") or list(properties)
        return {name: _smallest(properties.get(name) or {}) for name in required}
    if kind == "string":
        allowed: list[str] = schema.get("enum") or [""]
        return allowed[0]
    simple: dict[object, Any] = {"array": [], "integer": 0, "number": 0, "boolean": False}
    return simple.get(kind)


def _observations(folded: str) -> list[JSON]:
    """Returns notes of the sentences in which somebody tells about himself."""
    found: list[JSON] = []
    for number, line in _NUMBERED_LINE.findall(folded):
        if "remember" in line.casefold():  # the tool has noted it already
            continue
        if match := _TELLING.search(line):
            sentence = match.group().rpartition(": ")[2].strip()
            kind = "decision" if "decided" in sentence else "preference" if "prefer" in sentence else "fact"
            found.append(
                {
                    "kind": kind,
                    "text": sentence,
                    "cause": None,
                    "happened": None,
                    "src": [int(number)],
                    "replaces": None,
                }
            )
    return found
