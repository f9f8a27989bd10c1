"""The tools of the agent, one file for each."""

from functools import cache
from importlib.metadata import entry_points

BUILT = ("memory", "session_search", "skill", "files", "schedule", "ask_human", "web_fetch", "process")
"""The names that work in this version. Other names that the configuration knows give a warning."""
ENTRY_POINTS = "hermes_gateway.tools"


@cache
def of_other_packages() -> tuple[str, ...]:
    """The names of tools that other packages bring; nothing of them is imported."""
    return tuple(sorted({entry.name for entry in entry_points(group=ENTRY_POINTS)} - set(BUILT)))
