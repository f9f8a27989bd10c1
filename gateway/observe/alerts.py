"""Checks the conditions of which the owner is told. Pure.

A silent platform, late replies, undelivered messages, a failing model, unusual tokens, a refused configuration.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MINUTE_MS = 60_000
SILENT_MS = 5 * MINUTE_MS
INBOX_LATE_MS = 10 * MINUTE_MS
OUTBOX_LATE_MS = 5 * MINUTE_MS
FAILING_SHARE = 0.2
FAILING_CALLS = 5
"""Fewer calls say nothing about a model."""
CALLS_MS = 10 * MINUTE_MS
TOKENS_MS = 30 * MINUTE_MS
UNUSUAL_TIMES = 5
UNUSUAL_TOKENS = 100_000
"""Fewer tokens in half an hour are never unusual."""


class Condition(StrEnum):
    PLATFORM_SILENT = "platform_silent"
    REPLIES_LATE = "replies_late"
    DEAD_LETTERS = "dead_letters"
    MODEL_FAILING = "model_failing"
    TOKENS_UNUSUAL = "tokens_unusual"
    CONFIG_REFUSED = "config_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A condition that holds. `about`: the platform, or whatever tells two alerts of one condition apart. `details` fill in its text."""

    condition: Condition
    about: str = ""
    details: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemReading:
    """The values by which the conditions are judged. Times are epoch milliseconds. `silent_since`: for each platform that is not
    connected. `usual_tokens`: in half an hour, over the last week; None while that is not known.
    """

    now: int
    silent_since: Mapping[str, int] = field(default_factory=dict[str, int])
    oldest_unread: int | None = None
    oldest_due: int | None = None
    undelivered: Mapping[str, int] = field(default_factory=dict[str, int])
    calls: int = 0
    failed_calls: int = 0
    tokens: int = 0
    usual_tokens: float | None = None
    refused_problems: int = 0


def alerts(reading: SystemReading) -> Iterator[Alert]:
    """Yields an alert for each condition that holds now."""
    for platform, since in reading.silent_since.items():
        if reading.now - since > SILENT_MS:
            minutes = str((reading.now - since) // MINUTE_MS)
            yield Alert(
                condition=Condition.PLATFORM_SILENT, about=platform, details={"platform": platform, "minutes": minutes}
            )
    if _is_late(reading.oldest_unread, reading.now, INBOX_LATE_MS) or _is_late(
        reading.oldest_due, reading.now, OUTBOX_LATE_MS
    ):
        yield Alert(condition=Condition.REPLIES_LATE)
    for platform, count in reading.undelivered.items():
        if count:
            yield Alert(
                condition=Condition.DEAD_LETTERS, about=platform, details={"platform": platform, "count": str(count)}
            )
    if reading.calls >= FAILING_CALLS and reading.failed_calls > FAILING_SHARE * reading.calls:
        yield Alert(
            condition=Condition.MODEL_FAILING,
            details={"failed": str(reading.failed_calls), "calls": str(reading.calls)},
        )
    if reading.usual_tokens is not None and reading.tokens > max(UNUSUAL_TOKENS, UNUSUAL_TIMES * reading.usual_tokens):
        yield Alert(condition=Condition.TOKENS_UNUSUAL, details={"tokens": f"{reading.tokens:,}"})
    if reading.refused_problems:
        yield Alert(condition=Condition.CONFIG_REFUSED, details={"count": str(reading.refused_problems)})


def _is_late(since: int | None, now: int, most: int) -> bool:
    return since is not None and now - since > most


@dataclass(slots=True)
class _Second:
    at: int
    calls: int = 0
    failed: int = 0
    tokens: int = 0


class RecentCalls:
    """The model's calls of the last half hour: how many failed, and how many tokens they took. Kept as sums of a second each, so a busy hour
    takes no more memory than a quiet one."""

    def __init__(self) -> None:
        self._seconds: deque[_Second] = deque()

    def add(self, now: int, *, failed: bool, tokens: int) -> None:
        at = now // 1_000 * 1_000
        if not self._seconds or self._seconds[-1].at != at:
            self._seconds.append(_Second(at))
        second = self._seconds[-1]
        second.calls += 1
        second.failed += failed
        second.tokens += tokens
        while now - self._seconds[0].at > TOKENS_MS:
            self._seconds.popleft()

    def clear(self) -> None:
        """Forgets all calls: what an earlier model did says nothing about the one that was chosen now."""
        self._seconds.clear()

    def counts(self, now: int) -> tuple[int, int]:
        """Returns the number of calls in the last ten minutes, and how many of them failed."""
        recent = [second for second in self._seconds if now - second.at <= CALLS_MS]
        return sum(second.calls for second in recent), sum(second.failed for second in recent)

    def tokens(self, now: int) -> int:
        """Returns the tokens of the last half hour."""
        return sum(second.tokens for second in self._seconds if now - second.at <= TOKENS_MS)
