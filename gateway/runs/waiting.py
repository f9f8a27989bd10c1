"""What a run waits for: the answer of a person, and a model that is away. Both are stored before the wait, so they outlive the process."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from gateway.agent.loop import Result
from gateway.agent.tools.registry import HumanQuestion
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.runs.farewell import next_try
from gateway.runs.replies import Announcement, approval_card, question_card
from gateway.texts import say
from sessions import asks, outbox, runs
from sessions.db.engine import ReadsAndWrites
from sessions.messages import Content
from sessions.records import AskKind, Message, Run, RunKind

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

    def known(self, model: str | None, now: int) -> str | None:
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


class ClaimedRun:
    """`run`: as it was when it was claimed."""

    def __init__(self, run: Run, app: App) -> None:
        self.run = run
        self.app = app
        self._since = app.clock()

    def now(self) -> Run:
        """Returns the run with the time that it was worked on until now."""
        worked = self.app.standstills.elapsed(self._since, self.app.clock())
        return replace(self.run, worked_ms=self.run.worked_ms + worked)


log = get_logger(__name__)

APPROVED = Result(content="approved")
_NOBODY = Result(content="[not done: it needs the approval of a person, and nobody can be asked here]")


class Questions:
    """Asks for one claim of a run. Its methods take the run as it was seen last."""

    def __init__(
        self,
        app: App,
        database: ReadsAndWrites,
        announcement: Announcement,
        claim: ClaimedRun,
    ) -> None:
        self.app = app
        self._database = database
        self._announcement = announcement
        self._claim = claim
        self.parked = False

    async def ask(self, run: Run, call: Message, asking: HumanQuestion) -> None:
        card = question_card(asking.question, asking.options)
        await self._park(run, call, asking.question, options=asking.options, kind=AskKind.QUESTION, card=card)

    async def approval(self, run: Run, call: Message, arguments: str) -> Result | None:
        """Returns `APPROVED` when this very call was approved, None when it is being asked now, else what the model is told."""
        is_quiet_job = run.kind is RunKind.JOB and run.route is None and run.deployment is None
        if is_quiet_job or run.kind is RunKind.FAREWELL:
            return _NOBODY
        # The approval is for these very arguments: a call that the model has changed since is asked about anew.
        digest = hashlib.sha256(f"{call.tool_name}\0{arguments}".encode()).hexdigest()
        ask = await self._database.read(asks.of_call, run.id, call.tool_call_id or "")
        if ask is None or ask.answered_at is None or ask.args_hash != digest:
            exact = f"{call.tool_name} {arguments}"
            card = approval_card(exact)
            await self._park(
                run, call, exact, options=("approve", "deny"), kind=AskKind.APPROVAL, card=card, args_hash=digest
            )
            return None
        if ask.approved:
            return APPROVED
        return Result(content=f"[denied by {ask.answered_by or 'the user'}: {ask.answer or 'no reason given'}]")

    async def _park(
        self,
        run: Run,
        call: Message,
        question: str,
        *,
        options: Sequence[str],
        kind: AskKind,
        card: Content,
        args_hash: str | None = None,
    ) -> None:
        """Parks the run, unless something came in meanwhile: that may be the answer, so it is taken in and the model decides again."""
        shown = self._announcement.prepended_to(card) if run.route else None
        self.parked = await self._database.write(
            self._announcement.marking_announced(_parked, shown),
            self._claim.now(),
            call,
            question,
            self.app.clock(),
            options=options,
            kind=kind,
            args_hash=args_hash,
            card=shown,
        )
        if self.parked:
            log.debug("ask.asked", run_id=run.id, kind=kind.value)
        else:  # `park` refuses while something is unread, in the transaction that would park
            await self._database.write(self._withdraw, call)

    def _withdraw(self, conn: Connection, call: Message) -> None:
        now, run = self.app.clock(), self._claim.now()
        runs.tool_done(conn, run, call.id, "[not asked: a new message arrived first; it follows]", now)
        runs.take_in_new_messages(conn, run, now)


def _parked(conn: Connection, run: Run, call: Message, question: str, now: int, **more: Any) -> bool:
    """Parks the run in one transaction, and tells callers in other places that they are held up."""
    if not runs.park(conn, run, call, question, now, **more):
        return False
    for row in runs.held_up(conn, run):
        if row.route is not None:
            key = f"held_up:{row.dedup_key}"
            outbox.put(
                conn, row.route, Content(text=say("ask.held_up")), now, dedup_key=key, session_key=row.session_key
            )
    return True


class ModelWait:
    """Waits for the model of one claim of a run."""

    def __init__(self, app: App, database: ReadsAndWrites, claim: ClaimedRun) -> None:
        self.app = app
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
        return None if woken or not self.may_sleep else self.app.outages.known(model, self.app.clock())

    async def mark_back(self, model: str | None, run: Run) -> None:
        """Wakes the runs that sleep because the model was away, also where another process found it away."""
        slept = run.away_since is not None and run.wake_at is not None
        if self.app.outages.mark_back(model) or slept:
            if slept:  # all that slept come at once now; a model that was just started would be away again
                self.app.model.start_slowly(model)
            woken = await self._database.write(runs.wake_all, model)
            log.info("model.reached", model=model, woken=woken)

    async def sleep(self, run: Run, model: str | None) -> int | None:
        """Puts the run to sleep until the next try of the model. Returns when that is; None: it has waited long enough."""
        now, since = self.app.clock(), run.away_since
        if since is not None and self.app.standstills.elapsed(since, now) >= GIVE_UP_MS:
            return None
        notice = None
        if run.kind is RunKind.CHAT and run.route is not None:
            notice = Content(text=say("model.unreachable", minutes=GIVE_UP_MINUTES))
        wake_at = self.app.outages.next_try(model, now)
        await self._database.write(runs.sleep, self._claim.now(), now, wake_at=wake_at, model=model, notice=notice)
        return wake_at

    async def put_off(self, model: str | None, *, attempts: int) -> None:
        """Puts off a farewell that cannot be given now."""
        now = self.app.clock()
        wake_at = next_try(self._claim.run, now)
        await self._database.write(runs.sleep, self._claim.now(), now, wake_at=wake_at, model=model, attempts=attempts)
