"""One claim of a run, and how long the run is worked on under it."""

from dataclasses import replace

from gateway.runs.services import Services
from sessions.records import Run


class ClaimedRun:
    """`run`: as it was when it was claimed."""

    def __init__(self, run: Run, services: Services) -> None:
        self.run = run
        self._services = services
        self._since = services.clock()

    def now(self) -> Run:
        """Returns the run with the time that it was worked on until now."""
        worked = self._services.standstills.elapsed(self._since, self._services.clock())
        return replace(self.run, worked_ms=self.run.worked_ms + worked)
