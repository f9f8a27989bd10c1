"""Holds what a chat has been shown of one run: its stage, preview, status line, text so far and marked messages."""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto

from gateway.runs.live import NO_REPLY
from gateway.texts import say
from sessions.keys import Address, Sender
from sessions.messages import Inbound
from sessions.records import Route

_NAMED_TOOLS = frozenset({"session_search", "memory", "process", "schedule"})
"""Tools with a line of progress of their own."""


class Stage(Enum):
    """How far what is shown of a run has come."""

    WRITING = auto()  # what the agent writes is shown
    CLOSED = auto()  # nothing more is shown: the answer, or a part of it, is on its way
    ENDED = auto()  # nobody works on the run any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A preview message. `id` None: the platform removes it by itself. `unsure`: it may have arrived, and its id is unknown."""

    id: str | None
    unsure: bool = False
    text: str | None = None
    drawn_at: float = 0.0
    under: str | None = None  # the message that it was put under
    rang: bool = True  # it was noticed as a message is
    taken: bool = False  # the answer is about to take its place


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status that a chat shows, and when it was sent."""

    text: str
    sent_at: float


@dataclass(slots=True)
class WrittenText:
    """What the agent has written in this step, or the tool that it uses."""

    text: str = ""
    tool: str = ""
    whole: bool = False  # the text is that of a step that has ended

    def add(self, text: str) -> None:
        self.text, self.whole = ("" if self.whole else self.text) + text, False

    @property
    def may_be_silence(self) -> bool:
        """Returns True for no text, and for text that may still become `NO_REPLY`."""
        text = self.text.strip()
        return not text or NO_REPLY.startswith(text[: len(NO_REPLY)])

    def progress(self) -> str:
        """Returns the line that says what the agent does while there is no text."""
        name = self.tool if self.tool in _NAMED_TOOLS else "tool_generic" if self.tool else "thinking"
        return say(f"progress.{name}")


@dataclass(slots=True)
class ShownRun:
    """One run in one chat."""

    run_id: str
    route: Route
    began: float
    stage: Stage = Stage.WRITING
    written: WrittenText = field(default_factory=WrittenText)
    heading: str = ""  # what stands above the words
    preview: Preview | None = None
    status: Status | None = None  # None: nothing stands beside the chat
    noted: list[Inbound] = field(default_factory=list[Inbound])
    type_at: float = 0.0
    paused_until: float = 0.0
    task: asyncio.Task[None] | None = None
    cleared: asyncio.Event = field(default_factory=asyncio.Event)
    calling: asyncio.Lock = field(default_factory=asyncio.Lock)  # so that the last call is the one that counts

    @property
    def preview_id(self) -> str | None:
        return self.preview.id if self.preview else None

    def close(self) -> None:
        if self.stage is Stage.WRITING:
            self.stage = Stage.CLOSED


def message_by_id(address: Address, message_id: str) -> Inbound:
    """Returns a message with nothing but its address and id, for a reaction to it."""
    return Inbound(dedup_key="", address=address, sender=Sender(id=""), message_id=message_id)
