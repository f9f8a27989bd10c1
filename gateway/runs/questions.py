"""Asks a person for a run: a question of the agent, or the approval of a tool call. The run is parked until the answer comes."""

import hashlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from gateway.agent.loop import Result
from gateway.agent.tools.registry import HumanQuestion
from gateway.observe.logging import get_logger
from gateway.runs.announcements import Announcement
from gateway.runs.claimed_run import ClaimedRun
from gateway.runs.replies import approval_card, question_card
from gateway.runs.services import Services
from gateway.texts import say
from sessions import asks, outbox, runs
from sessions.db.engine import ReadsAndWrites
from sessions.outbox_body import OutboxBody
from sessions.records import AskKind, Message, Run, RunKind

log = get_logger(__name__)

APPROVED = Result(content="approved")
_NOBODY = Result(content="[not done: it needs the approval of a person, and nobody can be asked here]")


class Questions:
    """Asks for one claim of a run. Its methods take the run as it was seen last."""

    def __init__(
        self,
        services: Services,
        database: ReadsAndWrites,
        announcement: Announcement,
        claim: ClaimedRun,
    ) -> None:
        self._services = services
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
        card: OutboxBody,
        args_hash: str | None = None,
    ) -> None:
        """Parks the run, unless something came in meanwhile: that may be the answer, so it is taken in and the model decides again."""
        shown = self._announcement.prepended_to(card) if run.route else None
        self.parked = await self._database.write(
            self._announcement.marking_announced(_parked, shown),
            self._claim.now(),
            call,
            question,
            self._services.clock(),
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
        now, run = self._services.clock(), self._claim.now()
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
                conn, row.route, OutboxBody(text=say("ask.held_up")), now, dedup_key=key, session_key=row.session_key
            )
    return True
