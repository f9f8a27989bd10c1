"""What the practice model does with each tool, and its fixed texts."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from gateway.agent.models.interface import JSON

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

_WITHOUT_TOOLS = (
    "what do you know about me",
    "call two tools at once",
    "count to 20 slowly",
    "write a long answer",
)


def help_text(offered: Collection[str]) -> str:
    examples = [trick.example for trick in TRICKS if trick.tool in offered]
    lines = "\n".join(f"- `{example}`" for example in (*examples, *_WITHOUT_TOOLS))
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
