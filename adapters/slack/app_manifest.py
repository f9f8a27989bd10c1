"""The app that a workspace makes for the gateway: what it is called, which permissions it asks for, which events it hears."""

import json
from typing import Any
from urllib.parse import quote

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


_CREATE = "https://api.slack.com/apps?new_app=1&manifest_json="

APP: dict[str, Any] = {
    "display_information": {
        "name": "hermes",
        "description": "An assistant with a memory",
        "background_color": "#1d1c1d",
    },
    "features": {
        "agent_view": {"agent_description": "An assistant with a memory. It answers here and where it is mentioned."},
        "app_home": {"home_tab_enabled": True, "messages_tab_enabled": True, "messages_tab_read_only_enabled": False},
        "bot_user": {"display_name": "hermes", "always_online": True},
        "slash_commands": [
            {
                "command": COMMAND,
                "description": "new, stop, status, resume, retry, memory, title, help",
                "usage_hint": "[command]",
                "should_escape": False,
            }
        ],
        "shortcuts": [
            {
                "name": "Ask hermes about it",
                "type": "message",
                "callback_id": "ask",
                "description": "Gives this message to hermes, which answers you alone",
            }
        ],
    },
    "oauth_config": {"scopes": {"bot": sorted(NEEDED | USED)}},
    "settings": {
        "event_subscriptions": {"bot_events": sorted(EVENTS)},
        "interactivity": {"is_enabled": True},
        "org_deploy_enabled": False,
        "socket_mode_enabled": True,
        "token_rotation_enabled": False,
    },
}
"""The same as docs/platforms/slack-manifest.yaml, for people who paste."""


def create_link() -> str:
    """Returns the address of Slack's page for a new app with this manifest filled in."""
    return _CREATE + quote(json.dumps(APP, separators=(",", ":")), safe="")
