"""Discord. The adapter is not built yet; its section is known, so that a configuration can be written."""

from adapters.registry import Manifest, Needed
from sessions.keys import ChatKind, Platform

MANIFEST = Manifest(
    platform=Platform.DISCORD,
    title="Discord",
    adapter="",
    config="adapters.discord.config:DiscordConfig",
    config_keys=("token", "gateway_url", "api_base"),
    sdk="discord",
    extra="discord",
    needed=(Needed(key="token", why="write the bot's token, or enabled: false"),),
    chat_kinds=(ChatKind.DM, ChatKind.CHANNEL),
)
