"""Slack. This file says what there is; the client library is imported by `adapter` and what it uses."""

from adapters.registry import Manifest, Needed
from adapters.slack.app_manifest import create_link
from sessions.keys import Platform

MANIFEST = Manifest(
    platform=Platform.SLACK,
    title="Slack",
    adapter="adapters.slack.adapter:Slack",
    config="adapters.slack.config:SlackConfig",
    config_keys=("bot_token", "app_token", "mode", "signing_secret", "suggested_prompts", "api_base"),
    sdk="slack_bolt",
    extra="slack",
    needed=(
        Needed(key="app_token", why="mode socket needs it: the app-level token, xapp-...", mode="socket"),
        Needed(key="bot_token", why="write the bot's token, or enabled: false"),
        Needed(key="signing_secret", why="mode http needs it: without it anybody could write as Slack", mode="http"),
    ),
    webhook_mode="http",
    start="/hermes start",
    setup_steps=(
        f"Open this page, choose the workspace, and press Create: {create_link()}",
        "Basic Information → App-Level Tokens → Generate, with connections:write: that is app_token.",
        "Install App: the Bot User OAuth Token is bot_token.",
    ),
)
