"""What the agent can do by itself, one file for each tool."""

BUILT = ("memory", "session_search", "skill", "files", "ask_human")
"""The names that work in this version. Other names that the configuration knows give a warning."""
