"""Records when the configuration was last reloaded, and what was refused after that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sessions.clock import Clock, iso, now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedConfig:
    at: int
    problems: tuple[str, ...]


class ReloadStatus:
    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self.since = clock()
        self.last_refused: RefusedConfig | None = None

    def taken(self) -> None:
        self.since, self.last_refused = self._clock(), None

    def refused(self, problems: Sequence[str]) -> None:
        self.last_refused = RefusedConfig(at=self._clock(), problems=tuple(problems))

    def part(self) -> dict[str, Any]:
        """Returns what the status shows of reloads."""
        found: dict[str, Any] = {"since": iso(self.since)}
        if (refused := self.last_refused) is not None:
            found["refused"] = {"at": iso(refused.at), "problems": list(refused.problems)}
        return found
