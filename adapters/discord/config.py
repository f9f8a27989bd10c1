"""The keys of `platforms.discord`, besides those that every platform has."""

from pydantic import BaseModel, ConfigDict, SecretStr

from adapters.section import NO_SECRET, Url


class DiscordConfig(BaseModel):
    """What the adapter has to know."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    token: SecretStr = NO_SECRET
    """The bot's token from the developer portal. Who has it can read and write as the bot."""
    gateway_url: Url = ""
    """The websocket that belongs to api_base. Empty: Discord's own."""
    api_base: Url = "https://discord.com/api/v10"
    """Where the API is."""
