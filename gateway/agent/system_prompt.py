"""Makes the system prompt: what the model is told about the gateway (platform, person, time, conduct), joined with all other parts.

It is cut to a budget, at the end of a block, line or sentence.
The text about the gateway is in `prompts/gateway.md`. Lines about tools that the agent does not have are left out; the last block, about
safety, is always sent. `prompt.py` builds the whole request, in which the system prompt is the first message.
"""

import re
from collections.abc import Callable, Collection, Sequence

from gateway.agent.prompts import load_prompt
from sessions.records import Source

Cost = Callable[[str], int]
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")


_TOOL_LINE = re.compile(r"^\[(?P<name>\w+)(?P<small> small)?\] ")
"""Marks a line that is sent only when its tool is offered; `small`: the line that replaces it in a small window. The mark itself is not sent, because
small models copy lists of names into their answers. A small model is not asked to save what it hears: it would claim to, and folds save it."""
_ABILITIES = {
    "memory": "save notes",
    "files": "keep or send files",
    "schedule": "set reminders",
    "web_fetch": "open web pages",
    "process": "run commands",
}
_MARKDOWN = "What you write is sent as it is and shown as Markdown; tables are hard to read there."
_CHATS = {Source.TELEGRAM: "Telegram", Source.DISCORD: "Discord", Source.SLACK: "Slack", Source.WHATSAPP: "WhatsApp"}
_PLACES: dict[str, tuple[str, str]] = {
    **{source: (f"a chat on {name}", _MARKDOWN) for source, name in _CHATS.items()},
    Source.WHATSAPP: ("a chat on WhatsApp", "Write plain text with little formatting: bold and lists at most."),
    Source.CLI: ("a terminal", "What you write is shown as Markdown, about 80 characters wide."),
    Source.API: ("a program's conversation", "Write Markdown unless another form is asked for."),
    Source.THREAD: ("a program's conversation", "Write Markdown unless another form is asked for."),
    Source.JOB: (
        "a job that runs on a schedule",
        "Nobody reads along: do the task, then write the result as Markdown.",
    ),
}


def gateway_blocks(
    source: str, session_key: str, *, person: str, tools: Collection[str], small: bool = False
) -> tuple[str, ...]:
    """Returns the blocks for a session, safety last. `person`: the name of the person in the chat; empty: unknown, or several people.
    `tools`: names of the tools that are sent; a line about any other tool is left out, and the last block says what cannot be done without it.
    """
    place, formatting = _PLACES.get(source, (f"a chat on {source.title()}", _MARKDOWN))
    is_group = ":group:" in session_key or ":channel:" in session_key
    # People choose their names themselves: on one line, a name cannot add lines of its own to the system prompt.
    who = " ".join(person.split())[:80] or ("several people" if is_group else "one person")
    values = {"{who}": who, "{place}": f"{place}, in a group" if is_group else place, "{formatting}": formatting}
    blocks = load_prompt("gateway").split("\n\n")
    for placeholder, value in values.items():
        blocks[0] = blocks[0].replace(placeholder, value)
    blocks[-1] += _cannot(tools)
    return tuple(kept for block in blocks if (kept := _without_missing(block, tools, small=small)))


def _cannot(tools: Collection[str]) -> str:
    """Returns the sentence about what the agent cannot do here: a small model promises a reminder that nothing will send."""
    missing = [what for name, what in _ABILITIES.items() if name not in tools]
    if not missing:
        return ""
    *first, last = missing
    what = f"{', '.join(first)} or {last}" if first else last
    return f" You cannot {what} here: say so when you are asked, and never claim it."


def _without_missing(block: str, tools: Collection[str], *, small: bool) -> str:
    lines = block.splitlines()
    about = [found for line in lines if (found := _TOOL_LINE.match(line))]
    if about and not tools:
        return ""
    in_two_forms = {found["name"] for found in about if found["small"]}
    kept = [
        line
        for line in lines
        if (found := _TOOL_LINE.match(line)) is None
        or (found["name"] in tools and (found["name"] not in in_two_forms or bool(found["small"]) == small))
    ]
    return "\n".join(_TOOL_LINE.sub("", line) for line in kept)


def core(agent: str, layered: Sequence[str], gateway: Sequence[str], budget: int, cost: Cost) -> str:
    """Returns the part of the system prompt that stays the same from turn to turn: who the agent is, what the caller has added
    (`layered`), and the blocks about the gateway.

    When it costs more than `budget`, blocks about the gateway are left out first, from the end, then the agent's last sentences. The last
    block (safety) and `layered` always stay.
    """
    agent, (*others, safety) = agent.strip(), gateway
    while others and cost(_joined([agent, *layered, *others, safety])) > budget:
        others.pop()
    # The agent's own text is cut last: it says who it is, the others only what the gateway offers.
    left = budget - cost(_joined([*layered, *others, safety]))
    return _joined([whole_sentences(agent, left, cost), *layered, *others, safety])


def whole_sentences(text: str, budget: int, cost: Cost) -> str:
    """Returns the beginning of the text, up to the last sentence or line that fits; empty when none does."""
    if cost(text) <= budget:
        return text
    ends = [match.start() for match in _SENTENCE.finditer(text)]
    return next((text[:end] for end in reversed(ends) if cost(text[:end]) <= budget), "")


def newest_lines(lines: Sequence[str], budget: int, cost: Cost) -> list[str]:
    """Returns the newest lines that fit, in their order. A line is never cut."""
    kept: list[str] = []
    for line in reversed(lines):
        budget -= cost(line) + 1  # the line break
        if budget < 0:
            break
        kept.insert(0, line)
    return kept


def _joined(blocks: Sequence[str]) -> str:
    return "\n\n".join(block for block in blocks if block.strip())
