"""The tools of the agent, one file for each."""

import re
from collections.abc import Collection
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points

BUILT = ("memory", "session_search", "skill", "files", "schedule", "ask_human", "web_fetch", "process")
"""The names that work in this version. Other names that the configuration knows give a warning."""
WITH_SETTINGS = ("web_search",)
"""Tools that other sections of the configuration switch on."""
ENTRY_POINTS = "hermes_gateway.tools"


@cache
def of_other_packages() -> tuple[str, ...]:
    """The names of tools that other packages bring; nothing of them is imported."""
    return tuple(sorted({entry.name for entry in entry_points(group=ENTRY_POINTS)} - set(BUILT)))


def mcp_tool_name(server: str, tool: str, servers: Collection[str], taken: Collection[str] = ()) -> str:
    """Returns the name under which a tool of an MCP server is offered: `<server>_<tool>`, as the endpoints of models take it. It has a mark at
    its end where it would be too long, one of ours or of those that are `taken`, or would pass for one of another server."""
    plain = f"{server}_{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    others = [other for other in servers if len(other) > len(server)]
    is_free = name not in taken and name not in (*BUILT, *WITH_SETTINGS, *of_other_packages())
    if is_free and len(name) <= _NAME_CHARS and not any(name.startswith(f"{other}_") for other in others):
        return name
    return f"{name[: _NAME_CHARS - 9]}_{sha256(plain.encode()).hexdigest()[:8]}"


_NAME_CHARS = 64
