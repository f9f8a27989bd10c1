"""The keys of `platforms.telegram`, besides those that every platform has."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, SecretStr, model_validator

from adapters.section import NO_SECRET, Url


class TelegramConfig(BaseModel):
    """What the adapter has to know."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    token: SecretStr = NO_SECRET
    """The bot's token from @BotFather. Who has it can read and write as the bot."""
    mode: Literal["polling", "webhook"] = "polling"
    """polling: the gateway asks Telegram, nothing needs to be reachable. webhook: Telegram calls api.public_url."""
    webhook_secret: SecretStr = NO_SECRET
    """Needed for webhook mode: proves that a call comes from Telegram. Letters, digits, _ and - only."""
    webhook_url: str = ""
    """Where Telegram is told to call."""
    api_base: Url = "https://api.telegram.org"
    """Where the Bot API is."""

    @model_validator(mode="after")
    def _webhook_is_complete(self) -> Self:
        if self.mode == "webhook" and not (self.webhook_secret.get_secret_value() and self.webhook_url):
            raise ValueError("Telegram's webhook mode needs webhook_secret and webhook_url")
        return self
