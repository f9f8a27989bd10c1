"""What the Telegram adapter has to know. The gateway builds it from its own configuration."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramConfig:
    token: str = field(repr=False)
    mode: Literal["polling", "webhook"] = "polling"
    webhook_secret: str = field(default="", repr=False)
    webhook_url: str = ""
    api_base: str = "https://api.telegram.org"

    def __post_init__(self) -> None:
        if self.mode == "webhook" and not (self.webhook_secret and self.webhook_url):
            raise ValueError("Telegram's webhook mode needs webhook_secret and webhook_url")
