"""The part of the system prompt that tells the model about the gateway: platform, person, time, conduct.

The text is in `prompts/gateway.md`. Lines about tools that the agent does not have are left out; the last block, about safety, is
always sent.
"""

import re
from collections.abc import Collection

from gateway.agent.prompts import load_prompt
from sessions.records import Session, Source

_TOOL_LINE = re.compile(r"^- (?P<name>\w+): ")
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


def gateway_blocks(session: Session, person: str, tools: Collection[str]) -> tuple[str, ...]:
    """Returns the blocks for this session, safety last. `person`: the name of the person in the chat; empty: unknown, or several people.
    `tools`: names of the agent's tools; a line about any other tool is left out.
    """
    place, formatting = _PLACES.get(session.source, (f"a chat on {session.source.title()}", _MARKDOWN))
    is_group = ":group:" in session.session_key or ":channel:" in session.session_key
    # People choose their names themselves: on one line, a name cannot add lines of its own to the system prompt.
    who = " ".join(person.split())[:80] or ("several people" if is_group else "one person")
    values = {"{who}": who, "{place}": f"{place}, in a group" if is_group else place, "{formatting}": formatting}
    blocks = load_prompt("gateway").split("\n\n")
    for placeholder, value in values.items():
        blocks[0] = blocks[0].replace(placeholder, value)
    return tuple(kept for block in blocks if (kept := _without_missing(block, tools)))


def _without_missing(block: str, tools: Collection[str]) -> str:
    lines = block.splitlines()
    is_about_tools = any(map(_TOOL_LINE.match, lines))
    if is_about_tools and not tools:
        return ""
    return "\n".join(line for line in lines if (found := _TOOL_LINE.match(line)) is None or found["name"] in tools)
