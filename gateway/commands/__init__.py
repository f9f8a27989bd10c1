"""Slash commands in chats. They act at once, also while a run is active."""

from gateway.commands.base import COMMANDS, ChatAccount, ChatContext, Command, Parsed, parse
from gateway.commands.chat_commands import MENU, execute, find, hint

__all__ = ["COMMANDS", "MENU", "ChatAccount", "ChatContext", "Command", "Parsed", "execute", "find", "hint", "parse"]
