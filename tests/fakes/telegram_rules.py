"""Telegram's fake ships with the package, for people's own bots: adapters/testing/."""

from adapters.testing.telegram_rules import text_problems

__all__ = ["text_problems"]
