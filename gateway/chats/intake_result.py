"""What became of an event of a platform, for the runner that delivered it."""

from dataclasses import dataclass
from enum import StrEnum


class IntakeOutcome(StrEnum):
    """What became of an event."""

    IGNORED = "ignored"  # its sender has no access, or it changes nothing
    STRANGER = "stranger"  # its sender may be paired
    CHAT_CHANGED = "chat_changed"  # it says something of the chat: an id, a message taken back, that we joined
    TAKEN = "taken"  # a message, a command, a tap, an edit
    JOINED = "joined"  # a message for a run that was at work already


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeResult:
    """`run_id`: the run that the message joined."""

    outcome: IntakeOutcome
    run_id: str | None = None
