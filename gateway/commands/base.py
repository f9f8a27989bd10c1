"""What a command is: a function inside one transaction, so that it acts once, together with its answer."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from gateway.texts import format_short_time, say
from sessions import spending
from sessions.errors import DayLimitReached
from sessions.keys import SessionKey
from sessions.records import Route, Source
from sessions.runs import Opening
from sessions.spending import NO_LIMIT, DayLimit

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAccount:
    """As whom a person is counted: a name of `people`, or `<platform>:<id>`; empty: as nobody, in the terminal. `limit`: of each day."""

    who: str = ""
    may_approve: bool = True
    limit: DayLimit = NO_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatContext:
    """Where a command was given, and by whom. `of_source`: the terminal, where every session has a key of its own: its sessions are listed
    by their source. `moved`: is called with the key of the session that is resumed. `platform_title`: returns how people write the name of
    a platform.
    """

    key: SessionKey
    now: int
    user: str = ""
    route: Route | None = None
    opening: Opening = field(default_factory=Opening)
    timezone: str = "UTC"
    default_model: str = ""
    of_source: Source | None = None
    moved: Callable[[str], None] = lambda _: None
    platform_title: Callable[[str], str] = str.title
    account: ChatAccount = ChatAccount()

    @property
    def session_key(self) -> str:
        """The key as it is stored."""
        return str(self.key)

    def format_time(self, moment: int) -> str:
        """Returns a past or coming time (epoch milliseconds) as people here say it."""
        return format_short_time(moment, self.now, self.timezone)

    def day_limit(self, conn: Connection) -> str | None:
        """Returns the sentence for whoever has used what they may use today, which is recorded; None: they may go on."""
        try:
            spending.require(conn, self.account.who, self.account.limit, self.now)
        except DayLimitReached as reached:
            spending.record_reached(conn, reached, self.now)
            return say(f"limits.day_{reached.which}", limit=f"{reached.most:,}")
        return None


CommandFunction = Callable[[Connection, ChatContext, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`usage`: what follows the name. `for_allowed`: not for everybody present in an open group. `shows_alone`: without an argument it only
    shows something, which everybody may see. `decides`: it decides about an approval. `ends`: it ends the run at work; when there is none, everybody may use it. `begins`: what
    follows the name is said in the conversation that the command opens.
    """

    name: str
    about: str
    function: CommandFunction
    usage: str = ""
    for_allowed: bool = False
    shows_alone: bool = False
    decides: bool = False
    ends: bool = False
    begins: bool = False
    aliases: tuple[str, ...] = ()

    def is_for_allowed(self, argument: str, *, at_work: bool) -> bool:
        return self.for_allowed and bool(argument or not self.shows_alone) and (at_work or not self.ends)


COMMANDS: list[Command] = []
"""All commands, in the order of the help."""


def command(name: str, about: str, **more: Any) -> Callable[[CommandFunction], CommandFunction]:
    """Declares the function below as a command; `more`: further fields of `Command`."""

    def declare(function: CommandFunction) -> CommandFunction:
        COMMANDS.append(Command(name=name, about=about, function=function, **more))
        return function

    return declare


@dataclass(frozen=True, slots=True)
class Parsed:
    name: str
    argument: str


def parse(text: str) -> Parsed | None:
    """Returns the command in a text; None for text that only looks like one: `/etc/hosts is broken` goes to the agent."""
    match = _COMMAND.fullmatch(text.strip())
    return Parsed(match[1].lower(), (match[2] or "").strip()) if match else None
