"""Telegram's fake ships with the package, for people's own bots: adapters/testing/."""

from adapters.testing.telegram_world import TelegramChat, TelegramMessage, User, auto_entities

__all__ = ["TelegramChat", "TelegramMessage", "User", "auto_entities"]
