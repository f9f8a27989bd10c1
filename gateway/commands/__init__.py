"""Slash commands in chats. They act at once, also while a run is active."""

from gateway.commands.base import Chat, Command, Parsed, parse
from gateway.commands.registry import COMMANDS, MENU, execute, find, hint

__all__ = ["COMMANDS", "MENU", "Chat", "Command", "Parsed", "execute", "find", "hint", "parse"]
