"""Slash commands in chats. They act at once, also while a run is active."""

from gateway.commands.base import Command, CommandContext, Parsed, parse
from gateway.commands.registry import COMMANDS, MENU, execute, find, hint

__all__ = ["COMMANDS", "MENU", "Command", "CommandContext", "Parsed", "execute", "find", "hint", "parse"]
