"""Slash commands in chats. They act at once, also while a run is active."""

from gateway.commands.base import COMMANDS, ChatContext, Command, Parsed, parse
from gateway.commands.chat_commands import DECIDING, MENU, execute, find, hint

__all__ = ["COMMANDS", "DECIDING", "MENU", "ChatContext", "Command", "Parsed", "execute", "find", "hint", "parse"]
