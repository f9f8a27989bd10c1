"""The tick of resets: every few seconds it reads the sessions that have become due and resets them.

`sessions/policy.py` decides which are due, `sessions/resets.py` carries the reset out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.context import App, every
from gateway.observe.logging import get_logger
from sessions import resets
from sessions.policy import ResetPolicy, due, due_before
from sessions.resets import DueSession, OpenSession, ResetOutcome
from sessions.runs import farewells

log = get_logger(__name__)

EVERY_SECONDS = 5.0
PAGE = 1_000
TOGETHER = 100
"""How many sessions are reset in one transaction: more would hold up other writers."""
FULL_SCAN_MS = 3_600_000
"""Every hour all sessions are read again."""
OWED_MS = 20_000


@dataclass(slots=True)
class _LastScan:
    version: int = -1
    at: int = 0
    before: int = 0


class Resets:
    """Resets due sessions. `tick` reads only those that became old enough since the last tick: of a hundred thousand the few that are
    due.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self._seen: dict[ResetPolicy, int] = {}
        self._last_scan = _LastScan()
        self._held_off: dict[str, OpenSession] = {}
        self._logged: set[str] = set()

    @every(EVERY_SECONDS, "resets")
    async def tick(self) -> None:
        now = self.app.clock()
        if self._last_scan.version < 0:  # the statements are compiled now, and not when many sessions are due
            await self._carry_out((), now)
        # All sessions are read again after a reload, now and then, and where the clock was set back.
        last_scan = self._last_scan
        if last_scan.version != self.app.resets.version or not 0 <= now - last_scan.at < FULL_SCAN_MS:
            self._seen.clear()
            last_scan.version, last_scan.at = self.app.resets.version, now
        held, self._held_off = list(self._held_off), {}
        found = await self.app.database.read(resets.still_open, held) if held else []
        found += await self._new(now)
        wanted: list[DueSession] = []
        for session in {each.id: each for each in found}.values():
            reason = due(session.last_user_at, self.app.resets.policy(session.session_key), now)
            if reason is not None:
                says_farewell = self.app.resets.says_farewell
                wanted.append(DueSession(session=session, reason=reason, says_farewell=says_farewell))
        for start in range(0, len(wanted), TOGETHER):
            await self._carry_out(wanted[start : start + TOGETHER], now)
        for run in await self.app.database.read(farewells.owed):
            if run.id not in self._logged and now - run.created_at > OWED_MS:
                self._logged.add(run.id)
                log.info("session.farewell_owed", session_key=run.session_key, run_id=run.id)

    async def _new(self, now: int) -> list[OpenSession]:
        """Returns the sessions that became old enough since the last tick."""
        found: list[OpenSession] = []
        for policy in self.app.resets.rules.policies():
            before, since = due_before(policy, now), self._seen.get(policy, 0)
            if before is None or before <= since:
                continue
            after = (-1, "")
            while page := await self.app.database.read(resets.silent_since, since, before, limit=PAGE, after=after):
                found += page
                after = (page[-1].last_user_at, page[-1].id)
                if len(page) < PAGE:
                    break
            self._seen[policy] = before
        return found

    async def _carry_out(self, wanted: Sequence[DueSession], now: int) -> None:
        outcomes = await self.app.database.write(resets.carry_out, wanted, now)
        for each in wanted:
            outcome = outcomes[each.session.id]
            if outcome in resets.ENDS:
                log.info("session.reset", session_key=each.session.session_key, reason=each.reason.value)
            # Whoever has written since is not due any more; what is only held off is tried again with the next tick.
            elif outcome is not ResetOutcome.CHANGED:
                self._held_off[each.session.id] = each.session
