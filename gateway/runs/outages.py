"""Which models are known to be away, so that not every conversation finds that out for itself."""

from dataclasses import dataclass

SHORTEST_PAUSE_MS = 10_000
LONGEST_PAUSE_MS = 60_000
LOOK_MS = 60_000
"""How long one look may take before somebody else may look."""
GIVE_UP_MS = 30 * 60_000
GIVE_UP_MINUTES = GIVE_UP_MS // 60_000


@dataclass(slots=True)
class _Outage:
    since: int
    next_look: int
    why: str


class ModelOutages:
    """Of this process, by the name that was wanted; None is the configured model. Somebody looks again after a pause that grows."""

    def __init__(self) -> None:
        self._outages: dict[str | None, _Outage] = {}

    def known(self, model: str | None, now: int) -> str | None:
        """Why there is no use in asking now; None: ask. Of several who ask when it is time, one is told to."""
        outage = self._outages.get(model)
        if outage is None:
            return None
        if now < outage.next_look <= now + LOOK_MS:  # later than that: the clock was set back
            return outage.why
        outage.next_look = now + LOOK_MS
        return None

    def away(self, model: str | None, why: str, now: int) -> None:
        """It could not be reached."""
        outage = self._outages.setdefault(model, _Outage(since=now, next_look=now, why=why))
        outage.why = why
        outage.next_look = now + min(max(SHORTEST_PAUSE_MS, (now - outage.since) // 4), LONGEST_PAUSE_MS)

    def next_look(self, model: str | None, now: int) -> int:
        """When whoever sleeps should look again."""
        outage = self._outages.get(model)
        wanted = now + SHORTEST_PAUSE_MS if outage is None else outage.next_look
        return min(max(wanted, now + SHORTEST_PAUSE_MS // 10), now + LONGEST_PAUSE_MS)

    def answered(self, model: str | None) -> bool:
        """It has answered. True when it was away before."""
        return self._outages.pop(model, None) is not None
