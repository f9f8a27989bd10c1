"""Rows of the tables as frozen dataclasses. A change goes through the database."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from sys import intern
from typing import TYPE_CHECKING, Any, Self, cast

from sessions.keys import Address, ChatKind
from sessions.messages import Piece
from sessions.outbox_body import OutboxBody
from sessions.stored_files import StoredFile

JSON = dict[str, Any]
_LISTS = frozenset({"layered", "tools"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The same from the HTTP schema to the model's request. Empty fields are not stored.

    `layered`: system messages on top of the agent's own. `tools`: the caller's own, whose calls go back to the caller.
    `sampling`: what the endpoint gets as it is (temperature, tool_choice and the like).
    """

    model: str | None = None
    system_prompt: str | None = None
    layered: tuple[str, ...] = ()
    tools: tuple[JSON, ...] = ()
    response_format: JSON | None = None
    sampling: JSON = field(default_factory=dict[str, Any])
    max_output_tokens: int | None = None

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset(tool["function"]["name"] for tool in self.tools)

    @property
    def forces_tool(self) -> bool:
        """True when `tool_choice` demands one of the caller's tools: the gateway's own are not offered then."""
        return self.sampling.get("tool_choice") not in (None, "auto", "none")

    def over(self, other: Self) -> Self:
        """Returns these options, completed by those of `other`."""
        return replace(other, **self.to_stored())

    def to_stored(self) -> JSON:
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Ignores keys that it does not know."""
        known: JSON = {each.name: stored[each.name] for each in fields(cls) if stored.get(each.name)}
        for name in _LISTS & known.keys():
            known[name] = tuple(known[name])
        return cls(**known)


if TYPE_CHECKING:  # the words of the tables are used by commands that open no database
    from sqlalchemy import RowMapping


class Source(StrEnum):
    """Where a session was opened. A platform of another package is a source of its own name."""

    CLI = "cli"
    TELEGRAM = "telegram"
    DISCORD = "discord"
    WHATSAPP = "whatsapp"
    SLACK = "slack"
    API = "api"
    THREAD = "thread"
    JOB = "job"


class EndReason(StrEnum):
    USER = "user"
    IDLE = "idle"
    DAILY = "daily"
    COMPRESSED = "compressed"


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class MessageState(StrEnum):
    """Only rows of tool results are ever anything but done."""

    DONE = "done"
    PENDING = "pending"
    STARTED = "started"
    UNKNOWN = "unknown"


class RunKind(StrEnum):
    CHAT = "chat"
    CALL = "call"  # a chat completion or response: one request, one answer
    JOB = "job"
    FAREWELL = "farewell"


class RunStatus(StrEnum):
    RUNNING = "running"
    WAITING = "waiting_on_human"
    COMPLETED = "completed"
    ERROR = "error"


class StopReason(StrEnum):
    DONE = "done"
    CANCELLED = "cancelled"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: str
    session_key: str
    source: str
    user_id: str | None
    agent: str
    model: str | None
    model_config: str | None
    system_prompt: str | None
    title: str | None
    started_at: int
    ended_at: int | None
    end_reason: EndReason | None
    last_user_at: int | None
    parent_session_id: str | None
    message_count: int
    tool_call_count: int
    input_tokens: int
    output_tokens: int
    ns: str

    @classmethod
    def from_row(cls, row: "RowMapping") -> Self:
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__}
        values["end_reason"] = EndReason(row["end_reason"]) if row["end_reason"] else None
        return cls(**values)

    @property
    def chosen_model(self) -> str | None:
        """The model that was chosen for this session; None: the configured one."""
        return settings_of(self.model_config).get("model")


@dataclass(slots=True)
class Derived:
    """What others have computed from a message. It is kept as long as the message is; a message that was changed is another object."""

    in_requests: Any = None
    """How requests show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row of the journal. `tool_calls` is as the model sent it; `content` of a user in a group begins with `[name] `."""

    id: int
    session_id: str
    run_id: str | None
    role: Role
    content: str | None
    tool_calls: list[dict[str, Any]] | None
    tool_call_id: str | None
    tool_name: str | None
    token_count: int | None
    created_at: int
    sender: str | None
    attachments: tuple[StoredFile, ...]
    state: MessageState
    idem_key: str | None
    derived: Derived = field(init=False, compare=False, repr=False, default_factory=Derived)

    @classmethod
    def from_row(cls, row: "RowMapping") -> Self:
        return cls(
            id=row["id"],
            session_id=intern(row["session_id"]),  # hundreds of messages that are kept share these two
            run_id=intern(row["run_id"]) if row["run_id"] else None,
            role=ROLES[row["role"]],
            content=row["content"],
            tool_calls=_json(row["tool_calls"]),
            tool_call_id=row["tool_call_id"],
            tool_name=row["tool_name"],
            token_count=row["token_count"],
            created_at=row["created_at"],
            sender=row["sender"],
            attachments=tuple(map(StoredFile.from_stored, _json(row["attachments"]) or ())),
            state=_STATES[row["state"]],
            idem_key=row["idem_key"],
        )


ROLES = {role.value: role for role in Role}
_STATES = {state.value: state for state in MessageState}
"""Read from these, because calling an enum takes as long as the rest of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A row to append."""

    role: Role
    content: str | None = None
    run_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    token_count: int | None = None
    sender: str | None = None
    attachments: tuple[StoredFile, ...] = ()
    state: MessageState = MessageState.DONE
    idem_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where the answer goes. Captured when the message is admitted. `respond_to`: see Outbound."""

    address: Address
    reply_to: str | None = None
    respond_to: str = ""

    def to_json(self) -> str:
        a = self.address
        stored = [a.platform, a.kind, a.chat_id, a.thread_id, self.reply_to]
        return json.dumps([*stored, self.respond_to] if self.respond_to else stored)

    @classmethod
    def from_json(cls, text: str) -> Self:
        platform, kind, chat_id, thread_id, reply_to, *respond_to = json.loads(text)
        address = Address(platform=platform, kind=ChatKind(kind), chat_id=chat_id, thread_id=thread_id)
        return cls(address=address, reply_to=reply_to, respond_to=respond_to[0] if respond_to else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    id: str
    session_id: str
    session_key: str
    kind: RunKind
    status: RunStatus
    stop_reason: StopReason | None
    error: str | None
    fence: int
    attempts: int
    steps: int
    input_tokens: int
    output_tokens: int
    worked_ms: int
    route: Route | None
    options: CallOptions
    error_code: str | None  # why it failed, in a word for programs, where there is one
    withheld: bool  # a part of the answer, or all of it, by the service's content filter
    deployment: str | None
    thread_id: str | None
    created_at: int
    updated_at: int
    lease_owner: str | None
    lease_until: int | None
    wake_at: int | None
    preview: str | None
    noted: tuple[str, ...]
    away_since: int | None = None
    away_ms: int = 0  # how long nobody had worked on it when it was claimed; stands in no row

    @classmethod
    def from_row(cls, row: "RowMapping") -> Self:
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__ if name not in _NO_COLUMNS}
        values["kind"] = RunKind(row["kind"])
        values["status"] = RunStatus(row["status"])
        values["stop_reason"] = StopReason(row["stop_reason"]) if row["stop_reason"] else None
        values["route"] = Route.from_json(row["route"]) if row["route"] else None
        stored: dict[str, Any] = _json(row["options"]) or {}
        values["options"] = CallOptions.from_stored(stored)
        values["error_code"], values["withheld"] = stored.get("error_code"), bool(stored.get("withheld"))
        values["noted"] = tuple(json.loads(row["noted"])) if row["noted"] else ()
        return cls(**values)


_NO_COLUMNS = frozenset({"away_ms", "error_code", "withheld"})
"""Fields of a run without a column of their own: how it ended is rarely of interest, and stands among its options."""


class AskKind(StrEnum):
    QUESTION = "question"
    APPROVAL = "approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    id: int
    run_id: str
    tool_call_id: str
    kind: AskKind
    question: str
    options: tuple[str, ...]
    args_hash: str | None
    created_at: int
    answered_at: int | None
    answer: str | None
    answered_by: str | None
    approved: bool | None  # what was decided, whatever the words were; None for a question, and before

    @classmethod
    def from_row(cls, row: "RowMapping") -> Self:
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__}
        values["kind"] = AskKind(row["kind"])
        values["options"] = tuple(_json(row["options"]) or ())
        return cls(**values)

    @property
    def text(self) -> str:
        """The question as a caller reads it, with its options numbered."""
        return "\n".join([self.question, *(f"{number}. {option}" for number, option in enumerate(self.options, 1))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One sentence of memory. `src`: the ids of the messages that it is from; `asked_as`: questions that it answers, for the index."""

    id: int
    ns: str
    kind: str
    text: str
    cause: str | None
    happened: str | None
    said_at: int
    src: tuple[int, ...]
    session_id: str | None
    supersedes: int | None
    closed_by: int | None
    closed_at: int | None
    weight: int
    asked_as: tuple[str, ...]

    @classmethod
    def from_row(cls, row: "RowMapping") -> Self:
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__}
        values["src"] = tuple(json.loads(row["src"] or "[]"))
        values["asked_as"] = tuple(json.loads(row["asked_as"] or "[]"))
        return cls(**values)

    @property
    def said(self) -> tuple[str, str]:
        """What it is found by, beside the questions."""
        return (self.text, self.cause or "")


class OutState(StrEnum):
    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    UNKNOWN = "unknown"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutRow:
    """`body` is a Piece once it is rendered."""

    id: int
    dedup_key: str
    platform: str
    chat: str
    address: Route
    session_key: str
    run_id: str | None
    body: OutboxBody | Piece
    rendered: bool
    state: OutState
    part: int
    attempts: int
    doubts: int
    due_at: int
    created_at: int
    last_error: str | None

    @classmethod
    def from_row(cls, row: "RowMapping") -> Self:
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__}
        values["address"] = Route.from_json(row["address"])
        values["rendered"] = bool(row["rendered"])
        values["body"] = json.loads(row["body"]) if row["rendered"] else OutboxBody.from_json(row["body"])
        values["state"] = OutState(row["state"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    id: int
    deployment: str
    run_id: str | None
    thread_id: str | None
    kind: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def from_row(cls, row: "RowMapping") -> Self:
        return cls(**{**{name: row[name] for name in cls.__slots__}, "data": json.loads(row["data"])})


def settings_of(stored: str | None) -> dict[str, Any]:
    """Returns what `model_config` of a session holds; nothing where an import has put something else there."""
    try:
        found: Any = json.loads(stored or "{}")
    except ValueError:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


BYTES_PER_TOKEN = 4


def size_in_bytes(text: str) -> int:
    return (
        len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    )  # a lone surrogate is no reason to fail


def estimated_tokens(*texts: str | None) -> int:
    return -(-sum(size_in_bytes(text) for text in texts if text) // BYTES_PER_TOKEN)
