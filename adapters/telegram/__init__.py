"""Telegram. This file says what there is; the client library is imported by `adapter` alone."""

import sys

from adapters.registry import Manifest, Needed
from sessions.keys import Platform

# The client library imports httpx, and that its own command line, with rich and pygments 5 MB, unless there is none.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # how Python notes that there is none

MANIFEST = Manifest(
    platform=Platform.TELEGRAM,
    title="Telegram",
    adapter="adapters.telegram.adapter:Telegram",
    config="adapters.telegram.config:TelegramConfig",
    config_keys=("token", "mode", "webhook_secret", "webhook_url", "api_base"),
    sdk="telegram",
    extra="telegram",
    needed=(
        Needed(key="token", why="write the bot's token, or enabled: false"),
        Needed(
            key="webhook_secret",
            why="mode webhook needs it: without it anybody could write as Telegram",
            mode="webhook",
        ),
    ),
    webhook_mode="webhook",
    setup_steps=("Open t.me/BotFather, send /newbot, and choose a name.", "Paste the token that it gives you."),
)
