"""Rows of the tables as frozen dataclasses. A change goes through the database."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self, cast

from sessions import codec
from sessions.keys import Address, ChatKind
from sessions.messages import Attachment, Content, Piece

JSON = dict[str, Any]


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


if TYPE_CHECKING:  # the words of the tables are used by commands that open no database
    from sqlalchemy import RowMapping


@lru_cache
def _columns(shape: type[Any], but: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Returns the names of the columns that this class has as fields, and what takes their values from a row."""
    unread = {each.name for each in fields(shape) if not each.init or "no_column" in each.metadata}.union(but)
    names = tuple(each.name for each in fields(shape) if each.name not in unread)
    return names, cast(Callable[[Any], tuple[Any, ...]], itemgetter(*names))


class Record:
    """A row of a table as a dataclass, whose fields are named as the columns."""

    __slots__ = ()

    @classmethod
    def from_row(cls, row: "RowMapping", **instead: Any) -> Self:
        """`instead`: fields that are no columns, or not as the column is."""
        names, values = _columns(cls, tuple(instead))
        return cls(**dict(zip(names, values(row), strict=True)), **instead)


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
class Session(Record):
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
    announces: str | None = None  # the session before, which was reset, until the chat was told
    settled_to: int = 0  # messages up to this id do not change, as long as `rewrites` does not
    rewrites: int = 0

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
class Message(Record):
    """A message of the journal, from the inbox on. `tool_calls` is as the model sent it; `content` of a user in a group begins with
    `[name] `. `id`, `session_id` and `created_at` are known once it stands in the journal.
    """

    id: int = 0
    session_id: str = ""
    run_id: str | None = None
    role: Role = Role.USER
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    token_count: int | None = None
    created_at: int = 0
    sender: str | None = None
    attachments: tuple[Attachment, ...] = ()
    state: MessageState = MessageState.DONE
    idem_key: str | None = None
    derived: Derived = field(init=False, compare=False, repr=False, default_factory=Derived)


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
class Run(Record):
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
    restarts: tuple[int, ...] = ()
    who: str | None = None  # whose usage it counts as
    away_since: int | None = None
    # how long nobody had worked on it when it was claimed
    away_ms: int = field(default=0, metadata={"no_column": True})

    @classmethod
    def from_row(cls, row: "RowMapping", **instead: Any) -> Self:
        # How it ended is rarely of interest, and stands among its options.
        stored: dict[str, Any] = row["options"] or {}
        ended = {"error_code": stored.get("error_code"), "withheld": bool(stored.get("withheld"))}
        options = codec.shaped(CallOptions, stored) if stored else CallOptions()
        return super(Run, cls).from_row(row, options=options, **ended, **instead)


class InboxKind(StrEnum):
    MESSAGE = "message"
    ANSWER = "answer"
    COMMAND = "command"
    JOB = "job"


class InboxMode(StrEnum):
    TAKE_IN = "fold"  # the active run takes it in; "fold" is the stored word
    QUEUE = "queue"  # a run of its own, in order


class InboxOutcome(StrEnum):
    """What became of a row. It is set exactly once."""

    TAKEN_IN = "folded"  # a run took it in; "folded" is the stored word
    ANSWERED = "answered"
    EXECUTED = "executed"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow(Record):
    """What came in. `messages` is what goes into the journal; `options` is for the run that a queued row starts. `changed`: the id of what
    a request has made. `ask`: the question that the row has answered. `who`: the person or key that has sent it, as usage counts them.
    """

    dedup_key: str
    session_key: str
    messages: Sequence[Message] = ()
    options: CallOptions = field(default_factory=CallOptions)
    ask: int | None = None
    changed: str | None = None
    who: str | None = None
    kind: InboxKind = InboxKind.MESSAGE
    mode: InboxMode = InboxMode.TAKE_IN
    route: Route | None = None
    fingerprint: str | None = None
    run_id: str | None = None
    outcome: InboxOutcome | None = None
    left_at: int | None = None
    id: int = 0
    created_at: int = 0

    @classmethod
    def from_row(cls, row: "RowMapping", **instead: Any) -> Self:
        # `ask`, `changed` and `who` stand among the options. An empty body means that everything was taken out.
        body: dict[str, Any] = row["body"] or {}
        stored: dict[str, Any] = body.get("options") or {}
        known = {name: stored.get(name) for name in ("ask", "changed", "who")}
        said = body.get("messages")
        messages = codec.shaped(tuple[Message, ...], said) if said else ()
        options = codec.shaped(CallOptions, stored) if stored else CallOptions()
        return super(InboxRow, cls).from_row(row, messages=messages, options=options, **known, **instead)

    def body(self) -> dict[str, Any]:
        """Returns what is stored of `messages`, `options`, `ask`, `changed` and `who`."""
        more = {"ask": self.ask, "changed": self.changed, "who": self.who}
        options = self.options.to_stored() | {name: value for name, value in more.items() if value is not None}
        if not self.messages and not options:
            return {}
        return {"messages": codec.plain(tuple[Message, ...], tuple(self.messages)), "options": options}


class AskKind(StrEnum):
    QUESTION = "question"
    APPROVAL = "approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Record):
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

    @property
    def tool(self) -> str:
        """The name of the tool that asks for an approval."""
        return re.split("[: ]", self.question, maxsplit=1)[0]

    @property
    def text(self) -> str:
        """The question as a caller reads it, with its options numbered."""
        return "\n".join([self.question, *(f"{number}. {option}" for number, option in self.numbered.items())])

    @property
    def numbered(self) -> dict[str, str]:
        """The options by their numbers."""
        return {str(number): option for number, option in enumerate(self.options, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(Record):
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
class OutRow(Record):
    """What is to be sent: `content`, until it is rendered; then a `piece`. Or `closes`: the number of an ask whose card in the chat has to
    lose its buttons.
    """

    id: int
    dedup_key: str
    platform: str
    chat: str
    route: Route
    session_key: str
    run_id: str | None
    content: Content | None
    piece: Piece | None
    closes: int | None
    state: OutState
    part: int
    attempts: int
    doubts: int
    due_at: int
    created_at: int
    last_error: str | None

    @classmethod
    def from_row(cls, row: "RowMapping", **instead: Any) -> Self:
        body: dict[str, Any] = json.loads(row["body"])
        piece = body if row["rendered"] else None
        closes = None if piece is not None else body.get("closes")
        content = codec.shaped(Content, body) if piece is None and closes is None else None
        body_is = {"content": content, "piece": piece, "closes": closes}
        return super(OutRow, cls).from_row(row, route=row["address"], **body_is, **instead)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Record):
    id: int
    deployment: str
    run_id: str | None
    thread_id: str | None
    kind: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])


def settings_of(stored: str | None) -> dict[str, Any]:
    """Returns what `model_config` of a session holds; nothing where an import has put something else there."""
    try:
        found: Any = json.loads(stored or "{}")
    except ValueError:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


BYTES_PER_TOKEN = 4


def size_in_bytes(text: str) -> int:
    # A lone surrogate is no reason to fail.
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def estimated_tokens(*texts: str | None) -> int:
    return -(-sum(size_in_bytes(text) for text in texts if text) // BYTES_PER_TOKEN)
