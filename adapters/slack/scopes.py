"""What the app asks of a workspace: permissions, and the events that it hears. The manifest in the documentation is tested against both."""

NEEDED = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "chat:write",
        "commands",
        "groups:history",
        "im:history",
        "im:write",
        "mpim:history",
        "users:read",
    }
)
"""Without one of these it cannot do its work."""

USED = frozenset({"assistant:write", "channels:read", "files:read", "files:write", "groups:read", "reactions:write"})
"""Without one of these something is missing: status and live answers, files, the mark on what was read."""

EVENTS = frozenset(
    {
        "agent_session_stopped",
        "app_home_opened",
        "app_mention",
        "app_uninstalled",
        "channel_left",
        "group_left",
        "member_joined_channel",
        "message.channels",
        "message.groups",
        "message.im",
        "message.mpim",
        "tokens_revoked",
    }
)
COMMAND = "/hermes"
COMMANDS = frozenset(
    [
        "new",
        "reset",
        "stop",
        "status",
        "resume",
        "sessions",
        "title",
        "retry",
        "undo",
        "memory",
        "forget",
        "jobs",
        "model",
        "usage",
        "approve",
        "deny",
        "help",
        "start",
    ]
)
"""What the gateway understands behind `/`. Slack's clients send nothing that begins with `/` but their own commands and ours."""
