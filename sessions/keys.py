"""Where a message comes from, and the session key that follows from it."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self


class Platform(StrEnum):
    """Our own platforms. Other packages bring more: wherever a platform is named, any word of small letters may stand."""

    TELEGRAM = "telegram"
    DISCORD = "discord"
    SLACK = "slack"
    WHATSAPP = "whatsapp"


class ChatKind(StrEnum):
    DM = "dm"
    GROUP = "group"
    CHANNEL = "channel"


class DmScope(StrEnum):
    OWNER = "owner"
    PER_USER = "per_user"
    SHARED = "shared"


class InvalidKey(ValueError):
    """The text is not a session key. The message says which part is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A place on a platform to which a message can be sent. `chat_id` and `thread_id` are the platform's own ids."""

    platform: str
    kind: ChatKind
    chat_id: str
    thread_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """`id` is the platform's stable id; `name` is for display only and never decides anything."""

    id: str
    name: str = ""
    is_bot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRules:
    owner: str | None = None
    dm_scope: DmScope = DmScope.OWNER
    group_sessions_per_user: bool = False
    thread_sessions: bool = False
    agent: str = "main"


_AGENT = re.compile(r"[A-Za-z0-9_-]+")
_PHONE = re.compile(
    r"(?:whatsapp:)?\+?([0-9().\s/-]*[0-9][0-9().\s/-]*)(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?", re.ASCII
)
_PLATFORM = re.compile(r"[a-z][a-z0-9_-]*")
_NO_PLATFORM = frozenset({"api", "thread", "cli", "job", "response"})


def whatsapp_id(raw: str) -> str:
    """A WhatsApp number in one spelling, whatever its notation. Other ids (groups, business-scoped ids) are not
    changed."""
    match = _PHONE.fullmatch(raw.strip())
    if match is None:
        return raw
    digits = re.sub(r"[^0-9]", "", match[1])
    # 00 and + both mean: with the country code.
    return digits.removeprefix("00") or digits


def _encode(value: str) -> str:
    # The percent sign first, or it would be encoded twice.
    return value.replace("%", "%25").replace(":", "%3A")


def _decode(value: str) -> str:
    return re.sub(r"%(25|3A)", lambda m: "%" if m[1] == "25" else ":", value)


def _part(value: str, what: str) -> str:
    if not value:
        raise InvalidKey(f"{what} is empty")
    return value


MAIN_DEPLOYMENT = "dep_main"
OWNER_NAMESPACE = "agent:main"
"""The memory of the owner: of their DMs on all platforms, the terminal and the threads of the main agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """The unit of memory, ordering and reset. Build one with `of`, `api`, `thread`, `cli` or `job`; `str` is what is stored.

    `scope` is a platform, `api`, `response`, `thread`, `cli` or `job`; the other fields are decoded ids.
    """

    agent: str
    scope: str
    kind: ChatKind | None = None
    chat_id: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    api_key: str | None = None

    @classmethod
    def of(cls, address: Address, sender: Sender, rules: KeyRules) -> Self:
        """The key of a message on a chat platform."""
        whatsapp = address.platform == Platform.WHATSAPP
        # Direct messages to a channel: each topic is one person's, whatever the rules say.
        private = address.platform == Platform.TELEGRAM and address.kind is ChatKind.CHANNEL
        with_thread = address.thread_id is not None and (private or rules.thread_sessions)
        thread = _part(address.thread_id or "", "thread id") if with_thread else None
        if address.kind is ChatKind.DM:
            chat = whatsapp_id(address.chat_id) if whatsapp else cls._dm_partner(sender, rules)
            if chat is not None:
                _part(chat, "chat id")
            return cls(agent=rules.agent, scope=address.platform, kind=ChatKind.DM, chat_id=chat, thread_id=thread)
        user = _part(sender.id, "user id") if rules.group_sessions_per_user else None
        if user is not None and whatsapp:
            user = whatsapp_id(user)
        return cls(
            agent=rules.agent,
            scope=address.platform,
            kind=address.kind,
            chat_id=_part(address.chat_id, "chat id"),
            thread_id=thread,
            user_id=user,
        )

    @staticmethod
    def _dm_partner(sender: Sender, rules: KeyRules) -> str | None:
        if rules.dm_scope is DmScope.SHARED:
            return None
        # The owner's key needs no id: agent:main:telegram:dm.
        if rules.dm_scope is DmScope.OWNER and rules.owner is not None and sender.id == rules.owner:
            return None
        return _part(sender.id, "user id")

    @classmethod
    def api(cls, key_name: str, session_id: str, *, agent: str = "main") -> Self:
        if not _AGENT.fullmatch(key_name):
            raise InvalidKey(f"the API key's name {key_name!r} may hold letters, digits, _ and - only")
        return cls(agent=agent, scope="api", api_key=key_name, chat_id=_part(session_id, "session id"))

    @classmethod
    def response(cls, key_name: str, response_id: str, *, agent: str = "main") -> Self:
        """Of a chain of responses, by its first."""
        return replace(cls.api(key_name, response_id, agent=agent), scope="response")

    @classmethod
    def thread(cls, agent: str, thread_id: str) -> Self:
        return cls(agent=agent, scope="thread", chat_id=_part(thread_id, "thread id"))

    @classmethod
    def cli(cls, session_id: str) -> Self:
        return cls(agent="main", scope="cli", chat_id=_part(session_id, "session id"))

    @classmethod
    def job(cls, job_id: str) -> Self:
        return cls(agent="main", scope="job", chat_id=_part(job_id, "job id"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidKey. `parse(str(key)) == key` for every key."""
        match text.split(":", 3):
            # Split three times only: what follows the scope has a form of its own.
            case ["agent", agent, scope, rest] if _AGENT.fullmatch(agent):
                pass
            case _:
                raise InvalidKey(f"{text!r} is no session key; one looks like agent:main:telegram:dm")
        if scope not in _NO_PLATFORM and _PLATFORM.fullmatch(scope):
            return cls._parse_platform(agent, scope, rest)
        if scope == "api":
            name, _, session_id = rest.partition(":")
            return cls.api(name, session_id, agent=agent)
        if scope == "response":
            name, _, response_id = rest.partition(":")
            return cls.response(name, response_id, agent=agent)
        if scope in {"thread", "cli", "job"}:
            return cls(agent=agent, scope=scope, chat_id=_part(_decode(rest), f"the {scope}'s id"))
        raise InvalidKey(f"{text!r}: {scope!r} is neither a platform nor one of api, response, thread, cli, job")

    @classmethod
    def _parse_platform(cls, agent: str, platform: str, rest: str) -> Self:
        kind_name, *encoded = rest.split(":")
        try:
            kind = ChatKind(kind_name)
        except ValueError:
            raise InvalidKey(f"{kind_name!r} is none of {', '.join(ChatKind)}") from None
        ids = [_part(_decode(part), "an id") for part in encoded]
        chat = thread = user = None
        match [kind, *ids]:
            case [ChatKind.DM]:
                pass
            case [ChatKind.DM, chat]:
                pass
            case [ChatKind.DM, "thread", thread]:
                pass
            case [_, chat, "thread", thread, "user", user]:
                pass
            case [_, chat, "thread", thread]:
                pass
            case [_, chat, "user", user]:
                pass
            case [_, chat]:
                pass
            case _:
                raise InvalidKey(f"{rest!r} does not follow <kind>:<chat>[:thread:<thread>][:user:<user>]")
        return cls(agent=agent, scope=platform, kind=kind, chat_id=chat, thread_id=thread, user_id=user)

    @property
    def platform(self) -> str | None:
        """None for sessions that no chat platform carries."""
        return None if self.kind is None else self.scope

    @property
    def deployment(self) -> str | None:
        """The deployment of an HTTP thread; None for every other session."""
        if self.scope != "thread":
            return None
        return MAIN_DEPLOYMENT if self.agent == "main" else self.agent

    @property
    def namespace(self) -> str:
        """Where the memory of this session lives.

        The owner's DMs, the terminal and the threads of `main` share one; another deployment has its own; every group, channel
        and foreign DM has its own, common to its threads, but for direct messages to a Telegram channel: there each thread is a person.
        """
        if self.scope in {"cli", "thread"} or (self.kind is ChatKind.DM and self.chat_id is None):
            return f"agent:{self.agent}"
        if self.scope == Platform.TELEGRAM and self.kind is ChatKind.CHANNEL:
            return str(self)
        return str(replace(self, thread_id=None))

    def __str__(self) -> str:
        head = f"agent:{self.agent}:{self.scope}"
        if self.scope in {"api", "response"}:
            return f"{head}:{self.api_key}:{self.chat_id}"
        parts = [head] if self.kind is None else [head, self.kind]
        if self.chat_id is not None:
            parts.append(_encode(self.chat_id))
        if self.thread_id is not None:
            parts += ["thread", _encode(self.thread_id)]
        if self.user_id is not None:
            parts += ["user", _encode(self.user_id)]
        return ":".join(parts)


def is_of_terminal(session_key: str) -> bool:
    """Returns whether `hermes chat` works on this key itself, and no gateway does."""
    # The text is looked at first: parsing takes longer, and this is asked for each key of each commit.
    return ":cli:" in session_key[: len("agent:") + 80] and SessionKey.parse(session_key).scope == "cli"


def group_of(session_key: str) -> str:
    """Returns the group of a session key: an API key, a chat platform, a deployment, the terminal, or the jobs."""
    match session_key.split(":", 4):
        case [_, _, "api" | "response", key_name, *_]:
            return f"key:{key_name}"
        case [_, agent, "thread", *_]:
            return f"deployment:{agent}"
        case [_, _, scope, *_]:
            return scope
        case _:
            return ""
