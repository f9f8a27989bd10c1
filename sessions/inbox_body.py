"""Converts the body of an inbox row to JSON and back: the messages that it adds to the journal, and the options of the run that it starts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from sessions.records import CallOptions, NewMessage, Role
from sessions.stored_files import StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxMessage:
    """One message for the journal: of a user, or (`tool_call_id`) the result of a tool of the caller."""

    content: str
    role: Role = Role.USER
    sender: str | None = None
    attachments: tuple[StoredFile, ...] = ()
    tool_call_id: str | None = None

    def for_journal(self, run_id: str) -> NewMessage:
        return NewMessage(
            role=self.role,
            content=self.content,
            run_id=run_id,
            sender=self.sender,
            attachments=self.attachments,
            tool_call_id=self.tool_call_id,
        )

    def to_stored(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"content": self.content}
        if self.role is not Role.USER:
            stored["role"] = self.role
        if self.sender is not None:
            stored["sender"] = self.sender
        if self.attachments:
            stored["attachments"] = [file.to_stored() for file in self.attachments]
        if self.tool_call_id is not None:
            stored["tool_call_id"] = self.tool_call_id
        return stored

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            content=str(stored.get("content") or ""),
            role=Role(stored.get("role", Role.USER)),
            sender=stored.get("sender"),
            attachments=tuple(map(StoredFile.from_stored, stored.get("attachments") or ())),
            tool_call_id=stored.get("tool_call_id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxBody:
    """The body of a row. `options`: of the run that a queued row starts. `ask`: the question that the row has answered. `changed`: the id
    of what a request has made.
    """

    messages: tuple[InboxMessage, ...] = ()
    options: CallOptions = field(default_factory=CallOptions)
    ask: int | None = None
    changed: str | None = None

    def to_json(self) -> str:
        more: dict[str, Any] = {"ask": self.ask, "changed": self.changed}
        options = {**self.options.to_stored(), **{name: value for name, value in more.items() if value is not None}}
        stored: dict[str, Any] = {"messages": [message.to_stored() for message in self.messages]}
        return json.dumps({**stored, "options": options}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the body. An empty text means that everything was taken out."""
        stored: Mapping[str, Any] = json.loads(text) if text else {}
        options: Mapping[str, Any] = stored.get("options") or {}
        messages: Sequence[Mapping[str, Any]] = stored.get("messages", ())
        return cls(
            messages=tuple(map(InboxMessage.from_stored, messages)),
            options=CallOptions.from_stored(options),
            ask=options.get("ask"),
            changed=options.get("changed"),
        )
