"""Discord. This file says what there is; the client library is imported by `adapter` and what it uses."""

from adapters.registry import Manifest, Needed
from sessions.keys import ChatKind, Platform

MANIFEST = Manifest(
    platform=Platform.DISCORD,
    title="Discord",
    adapter="adapters.discord.adapter:Discord",
    config="adapters.discord.config:DiscordConfig",
    config_keys=("token", "gateway_url", "api_base"),
    sdk="discord",
    extra="discord",
    needed=(Needed(key="token", why="write the bot's token, or enabled: false"),),
    start="start",
    setup_steps=(
        "Open discord.com/developers/applications → New Application, and choose a name.",
        "Bot → Privileged Gateway Intents: switch Message Content Intent on, and save.",
        "Bot → Reset Token, and paste the token.",
    ),
    chat_kinds=(ChatKind.DM, ChatKind.CHANNEL),
)
