"""Remembers which models are away, and when each is tried again. What a run that sleeps meanwhile stores is in `sessions/runs/waiting.py`.

An outage is of what was asked for: the wanted model and all its fallbacks have failed. It has a time of the day, because people are told of it,
outlives a reload that replaces the model, and its end wakes the runs that sleep. What the endpoint knows of each model (`_KnownModel` in
`gateway/agent/models/chat_completions.py`) is another thing: a model rests while its fallback answers, and then nothing is away; its
slow start limits calls that are under way. Neither can be told from the other.
"""

from dataclasses import dataclass

SHORTEST_PAUSE_MS = 10_000
LONGEST_PAUSE_MS = 60_000
TRY_MS = 60_000
"""How long one try may take before another run may try."""
GIVE_UP_MS = 30 * 60_000
GIVE_UP_MINUTES = GIVE_UP_MS // 60_000


@dataclass(slots=True)
class _Outage:
    since: int
    next_try_at: int
    why: str


class ModelOutages:
    """The models that this process found away, by the name that was wanted; None is the configured model. The pause between two tries
    grows.
    """

    def __init__(self) -> None:
        self._outages: dict[str | None, _Outage] = {}

    def why_not_to_ask(self, model: str | None, now: int) -> str | None:
        """Returns why it is useless to ask now; None: ask. Of several callers at the time of a try, one gets None."""
        outage = self._outages.get(model)
        if outage is None:
            return None
        if now < outage.next_try_at <= now + TRY_MS:  # later than that: the clock was set back
            return outage.why
        outage.next_try_at = now + TRY_MS
        return None

    def current(self) -> tuple[int, str] | None:
        """Returns since when a model has been away, and why; the longest outage of several. None: all answer, as far as is known."""
        longest = min(self._outages.values(), key=lambda outage: outage.since, default=None)
        return None if longest is None else (longest.since, longest.why)

    def mark_away(self, model: str | None, why: str, now: int) -> None:
        """Notes that the model could not be reached."""
        outage = self._outages.setdefault(model, _Outage(since=now, next_try_at=now, why=why))
        outage.why = why
        # A quarter of the outage so far: a short one ends soon, a long one is not asked about every ten seconds.
        outage.next_try_at = now + min(max(SHORTEST_PAUSE_MS, (now - outage.since) // 4), LONGEST_PAUSE_MS)

    def next_try(self, model: str | None, now: int) -> int:
        """Returns when a sleeping run should try the model again."""
        outage = self._outages.get(model)
        wanted = now + SHORTEST_PAUSE_MS if outage is None else outage.next_try_at
        return min(max(wanted, now + SHORTEST_PAUSE_MS // 10), now + LONGEST_PAUSE_MS)

    def mark_back(self, model: str | None) -> bool:
        """Notes that the model has answered. Returns True when it was away before."""
        return self._outages.pop(model, None) is not None
