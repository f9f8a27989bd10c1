"""Telegram's fake ships with the package, for people's own bots: adapters/testing/."""

from adapters.testing.telegram_world import Chat, Message, User, auto_entities

__all__ = ["Chat", "Message", "User", "auto_entities"]
