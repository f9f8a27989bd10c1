"""Topics of what a transaction has changed. Listeners of `Database.listen` get them after its commit."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Topic(StrEnum):
    """The kinds of changes; beside each, what `Touch.id` names."""

    SESSION = "session"  # a session: it is new, or has new or other rows
    REWRITTEN = "rewritten"  # a session: rows that a mirror may have written already were changed or removed
    GONE = "gone"  # a session: it was deleted
    KEY = "key"  # a session key: another session is its active one now, or none
    INBOX = "inbox"  # a session key: there is work for it
    OUTBOX = "outbox"  # a platform: there is something to send
    STARTED = "started"  # the dedup key of an inbox row: see RunStarted
    STEP = "step"  # a run: an answer or a result of one of its steps was committed
    SENT = "sent"  # a row of the outbox: it was delivered
    RUN = "run"  # a run: it ended, or waits for a person
    STOPPED = "stopped"  # a run: a person stopped it
    EVENTS = "events"  # a deployment: it has new events
    PEOPLE = "people"  # a platform: its known people have changed
    FAREWELL = "farewell"  # a run: see FarewellBegun
    MEMORY = "memory"  # a namespace of the memory
    HOLDER = "holder"  # a lease of `holders`: it was given up
    WORK = "work"  # nothing: there are jobs that the process which made them has no place for
    LOOK = "look"  # nothing: every two seconds on PostgreSQL, since what other processes have told may be lost
    FILES = "files"  # a namespace of shared files, or the skills: files were deleted, or a skill has changed
    PROCESS = "process"  # a process that the agent has started: it is to end, or to tell what it has printed; or it has


@dataclass(frozen=True, slots=True)
class Touch:
    """One thing that has changed. Equal touches of one transaction are told once."""

    topic: Topic
    id: str


@dataclass(frozen=True, slots=True)
class RunStarted(Touch):
    """A run has taken the message with this dedup key: as its first one, or (`ask_id`) as the answer to its question."""

    run_id: str
    ask_id: int | None

    @classmethod
    def by(cls, dedup_key: str, run_id: str, *, ask_id: int | None = None) -> Self:
        return cls(Topic.STARTED, dedup_key, run_id, ask_id)


@dataclass(frozen=True, slots=True)
class FarewellBegun(Touch):
    """A session of this key has a farewell to give."""

    session_key: str

    @classmethod
    def by(cls, run_id: str, session_key: str) -> Self:
        return cls(Topic.FAREWELL, run_id, session_key)


def ids_of(topic: Topic, touched: Iterable[Touch]) -> list[str]:
    """Returns the ids of what was touched of this topic."""
    return [touch.id for touch in touched if touch.topic is topic]
