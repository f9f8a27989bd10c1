"""The app that a workspace makes for the gateway: what it is called, which permissions it asks for, which events it hears."""

import json
from typing import Any
from urllib.parse import quote

from adapters.slack.scopes import COMMAND, EVENTS, NEEDED, USED

_CREATE = "https://api.slack.com/apps?new_app=1&manifest_json="

APP: dict[str, Any] = {
    "display_information": {
        "name": "hermes",
        "description": "An assistant with a memory",
        "background_color": "#1d1c1d",
    },
    "features": {
        "agent_view": {"agent_description": "An assistant with a memory. It answers here and where it is mentioned."},
        "app_home": {
            "home_tab_enabled": True,
            "messages_tab_enabled": True,
            "messages_tab_read_only_enabled": False,
        },
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
