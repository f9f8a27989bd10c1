"""Telegram's fake ships with the package, for people's own bots: adapters/testing/."""

from adapters.testing.telegram import TelegramServer

__all__ = ["TelegramServer"]
