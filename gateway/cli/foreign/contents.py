"""The common form of a conversation that is imported from another program."""

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import DBAPIError

from sessions.export import ImportedMessage, ImportedSession
from sessions.keys import ChatKind, InvalidKey, Platform, SessionKey
from sessions.records import EndReason, Role, Source

OWN_PLATFORMS = frozenset(Platform)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMessage:
    """`at`: epoch milliseconds."""

    role: Role
    content: str
    at: int
    tool_calls: Sequence[dict[str, Any]] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignConversation:
    """`platform`: one of ours, else the conversation becomes one of the terminal. `name`: what the other program calls it; the id of ours is
    made of it, so that a second import knows it again."""

    program: str
    name: str
    started_at: int
    messages: Sequence[ForeignMessage]
    platform: str = ""
    kind: ChatKind = ChatKind.DM
    chat_id: str = ""
    title: str | None = None
    model: str | None = None

    @property
    def id(self) -> str:
        began = datetime.fromtimestamp(self.started_at / 1000, UTC)
        # From what stays the same over there, so that a second import finds the session again.
        digest = hashlib.sha256(f"{self.program}:{self.name}".encode()).hexdigest()
        return f"{began:%Y%m%d_%H%M%S}_{digest[:8]}"

    def as_import(self) -> ImportedSession:
        """Returns an ended session of the same place here; the next message there begins a new one, and /resume goes back."""
        key = self._key()
        last = self.messages[-1].at if self.messages else self.started_at
        users = [message.at for message in self.messages if message.role is Role.USER]
        return ImportedSession(
            id=self.id,
            session_key=str(key),
            source=key.platform or key.scope,
            title=self.title,
            model=self.model,
            started_at=self.started_at,
            ended_at=max(last, self.started_at),
            end_reason=EndReason.USER,
            last_user_at=max(users, default=None),
            messages=[
                ImportedMessage(
                    role=message.role,
                    content=message.content or None,
                    tool_calls=list(message.tool_calls) or None,
                    tool_call_id=message.tool_call_id,
                    tool_name=message.tool_name,
                    created_at=message.at,
                )
                for message in self.messages
            ],
        )

    def _key(self) -> SessionKey:
        if self.platform in OWN_PLATFORMS:
            try:
                kind, chat = self.kind, self.chat_id or None
                return SessionKey.parse(str(SessionKey(agent="main", scope=self.platform, kind=kind, chat_id=chat)))
            except InvalidKey:
                pass
        return SessionKey(agent="main", scope=Source.CLI, chat_id=self.id)


@dataclass(slots=True, kw_only=True)
class HomeContents:
    """`notes`: what the other program remembers. `left_out`: what was not taken, in words."""

    conversations: list[ForeignConversation] = field(default_factory=list[ForeignConversation])
    notes: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])


@contextmanager
def leaving_out(found: HomeContents, what: str) -> Generator[None]:
    """What another program has written in an odd way is left out, and named; everything else is taken."""
    try:
        yield
    except (ArithmeticError, AttributeError, DBAPIError, LookupError, RecursionError, TypeError, ValueError) as error:
        found.left_out.append(f"{what}: it makes no sense here ({type(error).__name__})")


def text_of(content: Any) -> str:
    """Returns the text of a message whose content may be parts."""
    if isinstance(content, str):
        return content
    parts: list[Any] = content if isinstance(content, list) else []  # pyright: ignore[reportUnknownVariableType]  # of another program
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def notes_in(markdown: str) -> list[str]:
    """Returns each item or paragraph that says something."""
    lines = [line.strip().lstrip("-*").strip() for line in markdown.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]
