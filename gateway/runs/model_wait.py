"""Lets a run sleep while its model is away, and wakes the others once it answers."""

from gateway.agent.models.interface import StartsSlowly
from gateway.observe.logging import get_logger
from gateway.runs.claimed_run import ClaimedRun
from gateway.runs.farewell import next_try
from gateway.runs.outages import GIVE_UP_MINUTES, GIVE_UP_MS
from gateway.runs.services import Services
from gateway.texts import say
from sessions import runs
from sessions.db.engine import ReadsAndWrites
from sessions.outbox_body import OutboxBody
from sessions.records import Run, RunKind

log = get_logger(__name__)


class ModelWait:
    """Waits for the model of one claim of a run."""

    def __init__(self, services: Services, database: ReadsAndWrites, claim: ClaimedRun) -> None:
        self._services = services
        self._database = database
        self._claim = claim

    @property
    def may_sleep(self) -> bool:
        """Returns whether the run may wait for a model that is away. A call of a program and the terminal get an error instead: somebody
        waits at the other end.
        """
        run = self._claim.run
        return run.kind is not RunKind.CALL and (
            run.route is not None or run.deployment is not None or run.kind is not RunKind.CHAT
        )

    def known_away(self, model: str | None, run: Run) -> str | None:
        """Returns why it is useless to ask the model now; None: ask. A run that /retry has woken asks all the same."""
        woken = self._claim.run.fence > 1 and run.away_since is None
        return None if woken or not self.may_sleep else self._services.outages.known(model, self._services.clock())

    async def mark_back(self, model: str | None, run: Run) -> None:
        """Wakes the runs that sleep because the model was away, also where another process found it away."""
        slept = run.away_since is not None and run.wake_at is not None
        if self._services.outages.mark_back(model) or slept:
            asked = self._services.model()
            # All that slept come at once now; a model that was just started would be away again.
            if slept and isinstance(asked, StartsSlowly):
                asked.start_slowly(model)
            woken = await self._database.write(runs.wake_all, model)
            log.info("model.reached", model=model, woken=woken)

    async def sleep(self, run: Run, model: str | None) -> int | None:
        """Puts the run to sleep until the next try of the model. Returns when that is; None: it has waited long enough."""
        now, since = self._services.clock(), run.away_since
        if since is not None and self._services.standstills.elapsed(since, now) >= GIVE_UP_MS:
            return None
        notice = None
        if run.kind is RunKind.CHAT and run.route is not None:
            notice = OutboxBody(text=say("model.unreachable", minutes=GIVE_UP_MINUTES))
        wake_at = self._services.outages.next_try(model, now)
        await self._database.write(runs.sleep, self._claim.now(), now, wake_at=wake_at, model=model, notice=notice)
        return wake_at

    async def put_off(self, model: str | None, *, attempts: int) -> None:
        """Puts off a farewell that cannot be given now."""
        now = self._services.clock()
        wake_at = next_try(self._claim.run, now)
        await self._database.write(runs.sleep, self._claim.now(), now, wake_at=wake_at, model=model, attempts=attempts)
