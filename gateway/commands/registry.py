"""All commands, in the order of the help."""

import difflib

from sqlalchemy import Connection

from gateway.agent.models.practice import NAME as PRACTICE
from gateway.commands import conversation, jobs, notes, work
from gateway.commands.base import Command, CommandContext, Parsed
from gateway.texts import say
from sessions.db.sql import lock


def _help(_: Connection, chat: CommandContext, __: str) -> str:
    lines = [f"/{command.name}{' ' + command.usage if command.usage else ''} – {command.about}" for command in COMMANDS]
    # The two helps name each other: `help` without the slash is the practice model's own.
    return "\n".join([*lines, *([say("command.practice_help")] if chat.default_model == PRACTICE else [])])


COMMANDS = (
    Command(
        name="new",
        about="start afresh; the old conversation is kept",
        function=conversation.new,
        for_allowed=True,
        begins=True,
        aliases=("reset",),
    ),
    Command(name="stop", about="end what I am doing", function=work.stop, for_allowed=True),
    Command(name="status", about="what I am doing, and in which conversation", function=work.status),
    Command(
        name="resume",
        usage="[number or title]",
        about="go back to an earlier conversation",
        function=conversation.resume,
        for_allowed=True,
    ),
    Command(name="sessions", about="the conversations of this chat", function=conversation.sessions),
    Command(name="title", usage="TEXT", about="name this conversation", function=conversation.title),
    Command(
        name="retry",
        about="answer the last message once more",
        function=conversation.retry,
        for_allowed=True,
        ends=True,
    ),
    Command(
        name="undo",
        about="take back the last exchange",
        usage="[N]",
        function=conversation.undo,
        for_allowed=True,
    ),
    Command(name="memory", about="what I have noted down here", function=notes.notes),
    Command(name="forget", usage="N", about="forget one of the notes", function=notes.forget, for_allowed=True),
    Command(
        name="jobs",
        usage="[pause|resume|run|delete ID]",
        about="what I do by myself, and when",
        function=jobs.show,
        for_allowed=True,
        shows_alone=True,
    ),
    Command(
        name="model",
        usage="[name]",
        about="see or change the model",
        function=work.model,
        for_allowed=True,
        shows_alone=True,
    ),
    Command(name="usage", about="what this conversation has used", function=work.usage),
    Command(name="approve", about="allow what I asked about", function=work.approve, for_allowed=True),
    Command(name="deny", usage="[reason]", about="do not allow it", function=work.deny, for_allowed=True),
    Command(name="help", about="this list", function=_help),
)
_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}

MENU = tuple(_BY_NAME[name] for name in ("new", "stop", "status", "resume", "retry", "memory", "jobs", "title", "help"))
"""Those that a platform's own menu offers."""


def find(name: str) -> Command | None:
    return _BY_NAME.get(name)


def execute(conn: Connection, chat: CommandContext, parsed: Parsed) -> str:
    """Runs the command. Returns its reply; empty when its effect is reply enough. An unknown name gets a hint."""
    command = find(parsed.name)
    if command is None:
        return hint(parsed.name)
    lock(conn, chat.session_key)  # a message that arrives now must not see half of what the command does
    return command.function(conn, chat, parsed.argument)


def hint(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.6)
    if near:
        return say("command.unknown", command=f"/{name}", near=f"/{near[0]}")
    return say("command.unknown_far", command=f"/{name}")
