"""Sends the rows of the outbox, in order for each chat and within the platform's limits, until the platform has them or they are given up."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from adapters.base import Adapter, DeliveryError, SendsOnce, TryLater, Unauthorized, Undeliverable
from gateway.chats.approvals import CardEdit, edit_of
from gateway.chats.chat_changes import notify_undelivered
from gateway.chats.intake import Intake
from gateway.chats.presence import Presence
from gateway.chats.sending import RateLimiter, RowSender, SentRow, is_edit
from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import outbox, runs
from sessions.errors import LeaseLost, StateError
from sessions.leases import of_platform
from sessions.messages import Piece
from sessions.records import OutRow, OutState
from sessions.topics import Topic, Touch, ids_of

log = get_logger(__name__)

LEASE_MS = 120_000
RECOVER_SECONDS = 2.0
"""How often it is looked for messages whose sending was cut off."""
TOO_OLD_MS = 24 * 3_600_000
POLL_SECONDS = 1.0
IN_HAND = 50
"""Chats that wait for their turn: as many as a platform takes in a second or two."""
_BACKOFF = (1, 2, 5, 10, 30, 60, 120, 300)
_GRACE_SECONDS = 10
_UNAUTHORIZED_SECONDS = 30

EDITS = 3
"""How often a preview is tried to be made the answer, while the chat takes other calls; then the answer is a new message."""
PROBE_PAUSES = (2, 5, 10, 20, 30, 60)
"""Seconds until a chat is probed again that took no call. The last one is repeated."""
TRY_PAUSES = (2, 15, 60)
"""Seconds until a message is sent again that may have arrived, although the chat takes other calls."""
BLIND_PAUSES = (30, 60, 300)
"""The same on a platform that has no harmless call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """`due_at`: when the row is tried again, in epoch milliseconds. `doubtful`: the message may have arrived."""

    due_at: int
    doubtful: bool = False
    gives_up: bool = False


def retry_decision(
    row: OutRow, error: TryLater, now: int, *, edits: bool = False, can_probe: bool = True
) -> RetryDecision:
    """Decides when a row is tried again that the platform has not taken. An edit that is made twice does no harm, so it is never in doubt.
    A message that may have arrived is tried again at most FURTHER_TRIES times, after a pause, which is longer where no probe tells whether the chat
    can be reached. Everything else is tried until it is too old.
    """
    doubtful = error.ambiguous and not edits
    if doubtful and row.doubts >= outbox.FURTHER_TRIES:
        return RetryDecision(due_at=now, doubtful=True, gives_up=True)
    seconds = error.after if error.after is not None else _BACKOFF[min(row.attempts, len(_BACKOFF) - 1)]
    if doubtful:
        pauses = TRY_PAUSES if can_probe else BLIND_PAUSES
        seconds = max(seconds, pauses[min(row.doubts, len(pauses) - 1)])
    return RetryDecision(due_at=now + min(round(seconds * 1_000), outbox.LONGEST_WAIT_MS), doubtful=doubtful)


class Probes:
    """Which rows need a probe, a harmless call to their chat, before they are sent again: a message whose send was cut off may have arrived,
    and is not risked twice where nothing can be reached. Rows that an earlier process left in doubt need one, too.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._remembers_ms = adapter.remembers_for * 1000 if isinstance(adapter, SendsOnce) else 0
        self._unanswered = Counter[int]()
        """Row → how many probes have failed since it got no answer. Also rows of edits, which are never in doubt."""
        self._edits_failed = Counter[int]()

    def needs_probe(self, row: OutRow, waited_ms: int) -> bool:
        """Returns whether this row needs a probe before it is sent again. Not while the platform itself recognises a repeated message."""
        doubted = row.state is OutState.UNKNOWN or row.doubts > 0 or row.id in self._unanswered
        return doubted and self._adapter.can_probe and waited_ms >= self._remembers_ms

    async def probe(self, row: OutRow) -> None:
        """Returns when the chat takes calls. Raises TryLater, with the pause until the next probe."""
        failed = self._unanswered[row.id]
        try:
            await self._adapter.probe(row.route.address)
        except TryLater as error:
            self._unanswered[row.id] += 1
            pause = PROBE_PAUSES[min(failed, len(PROBE_PAUSES) - 1)]
            raise TryLater(str(error), after=max(error.after or 0, pause)) from error
        except Unauthorized as error:  # the token, not this chat
            raise TryLater(str(error), after=_UNAUTHORIZED_SECONDS) from error
        except DeliveryError:  # refused: somebody has heard the call, so a message is heard too
            pass
        self._unanswered[row.id] = 0

    def failed(self, row: OutRow, error: TryLater, *, edits: bool) -> None:
        """Notes that a message or an edit got no answer, or that the platform asked to try it later."""
        chat_takes_calls = not error.ambiguous or row.id in self._unanswered
        if edits and chat_takes_calls:
            self._edits_failed[row.id] += 1
        if error.ambiguous:
            self._unanswered[row.id] = 0

    def edits_keep_failing(self, row: OutRow) -> bool:
        """Returns True when edits for this row fail again and again while the chat takes other calls."""
        return self._edits_failed[row.id] >= EDITS

    def forget(self, row: OutRow) -> None:
        self._unanswered.pop(row.id, None)
        self._edits_failed.pop(row.id, None)


class Delivery:
    """Delivers for one platform. `run` can be cancelled; a row that was being sent then is examined at the next start."""

    def __init__(self, app: App, adapter: Adapter, intake: Intake, pacer: RateLimiter, previews: Presence) -> None:
        self.app = app
        self._adapter = adapter
        self._intake = intake
        self._platform = str(adapter.platform)
        self._pacer = pacer
        self._previews = previews
        self._claims = 0
        self._busy: dict[str, int] = {}  # chats, and how many claims there had been when each last asked for its next
        self._probes = Probes(adapter)
        self._rows = RowSender(app, adapter)
        self._has_new_row = False  # this process put something in since the last claim
        self._recovers_at = 0.0
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.failure: str | None = None
        """Why nothing can be sent, in words for the operator."""
        self.failing_since = 0.0

    async def _owner_key(self) -> str | None:
        """Returns the key of the owner's own conversation with the bot, where undeliverable messages are reported; None while there is no
        owner.
        """
        key = (await self._intake.access(self._platform)).owner_key(self._platform)
        return None if key is None else str(key)

    def _on_commit(self, touched: frozenset[Touch]) -> None:
        if Touch(Topic.OUTBOX, self._platform) in touched:
            self._loop.call_soon_threadsafe(self._note_new_row)
        if stopped := ids_of(Topic.STOPPED, touched):
            self._loop.call_soon_threadsafe(self._previews.end_without_answer, stopped)

    def _note_new_row(self) -> None:
        self._has_new_row = True
        self._wake.set()

    async def run(self) -> None:
        """Claims one row of every free chat and starts sending. With more than `IN_HAND` chats at work it waits a little, to claim many at once."""
        unlisten = self.app.database.listen(self._on_commit, Topic.OUTBOX, Topic.STOPPED)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._wake.clear()
                    # Before anything is claimed: what was cut off may have arrived, and must not be sent as if new.
                    await self._recover()
                    # Rows that this process has just written need no query.
                    is_new, self._has_new_row = self._has_new_row, False
                    now = self.app.clock()
                    due = 0 if is_new else await self.app.database.read(outbox.next_due, self._platform, now)
                    if due is not None and due <= self.app.clock():
                        # Each claim is a transaction, and the platform takes no more anyway.
                        if len(self._busy) > IN_HAND:
                            await asyncio.sleep(POLL_SECONDS / 10)
                        self._claims += 1
                        for row in await self.app.database.write(self._claim):
                            self._busy[row.chat] = self._claims
                            group.create_task(self._deliver_chat(row))
                        due = self.app.clock() + 1_000
                    seconds = POLL_SECONDS * 30
                    if due is not None:
                        seconds = max((due - self.app.clock()) / 1000, POLL_SECONDS / 10)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await self._wake.wait()
        finally:
            unlisten()

    def wake(self) -> None:
        """Look for due rows now: another process may have added some."""
        self._wake.set()

    async def finish(self) -> None:
        """Returns when everything that is due was sent."""
        while True:
            due = await self.app.database.read(outbox.next_due, self._platform, self.app.clock())
            if not self._busy and (due is None or due > self.app.clock()):
                return
            await asyncio.sleep(POLL_SECONDS / 20)

    # --- transactions ---

    async def _recover(self) -> None:
        """Frees what was claimed and is sent by nobody any more: by a process that is gone, or by this one in an attempt that has failed."""
        if time.monotonic() < self._recovers_at:
            return
        busy = list(self._busy)
        if await self.app.database.read(self._left_claimed, busy) or not self._recovers_at:
            await self.app.database.write(self._free_left, busy, await self._owner_key())
        self._recovers_at = time.monotonic() + RECOVER_SECONDS

    def _left_claimed(self, conn: Connection, busy: Sequence[str]) -> list[int]:
        # Where gateways share a database, only the one that holds the platform sends.
        others_cannot_send = self.app.holders.is_shared
        return outbox.left_claimed(conn, self._platform, self.app.owner, busy, alone=others_cannot_send)

    def _free_left(self, conn: Connection, busy: Sequence[str], owner_key: str | None) -> None:
        outbox.release(conn, self._platform, self._left_claimed(conn, busy))
        now = self.app.clock()
        for row in outbox.interrupted(conn, self._platform, now):
            notify_undelivered(conn, row, row.last_error or "", now, owner_key=owner_key)

    def _claim(self, conn: Connection) -> list[OutRow]:
        return outbox.claim(
            conn, self._platform, self.app.owner, self.app.clock(), lease_ms=LEASE_MS, busy_chats=list(self._busy)
        )

    def _prepare(
        self, conn: Connection, row: OutRow, pieces: Sequence[Piece], *, edits: bool
    ) -> tuple[OutRow, Piece | CardEdit]:
        """Marks the row as being sent. `pieces`: what it was rendered to; empty if it was rendered before, or closes a card."""
        content: Piece | CardEdit
        if row.closes is not None:
            content = edit_of(conn, row, row.closes, self.app.clock(), self.app.timezone)
        elif row.piece is not None:
            content = row.piece
        else:
            return outbox.split(conn, row, pieces, edits=edits)
        (outbox.mark_editing if edits else outbox.mark_sending)(conn, row.id)
        return row, content

    def _mark_sent(self, conn: Connection, row: OutRow, sent: SentRow) -> OutRow | None:
        """Marks the row as sent and claims the next row of the chat."""
        now = self.app.clock()
        outbox.mark_sent(conn, row.id, sent.message_id, now)
        if sent.was_preview and row.run_id:
            runs.keep_preview(conn, row.run_id, None)
        more = outbox.claim(conn, self._platform, self.app.owner, now, lease_ms=LEASE_MS, limit=1, chat=row.chat)
        return more[0] if more else None

    def _mark_undeliverable(self, conn: Connection, row: OutRow, why: str, owner_key: str | None, gone: bool) -> None:
        outbox.give_up(conn, row.id, why)
        notify_undelivered(conn, row, why, self.app.clock(), owner_key=owner_key, chat_is_gone=gone)

    # --- one chat ---

    async def _deliver_chat(self, first: OutRow) -> None:
        row: OutRow | None = first
        try:
            while row is not None:
                row = await self._send(row)
        except Exception:  # one chat's trouble with the database must not end the others; its lease runs out
            log.exception("outbox.failed", platform=self._platform)
            await asyncio.sleep(POLL_SECONDS)
        finally:
            # A claim that came meanwhile has left this chat out, as it was busy; its other rows need one more.
            passed_by = self._busy.pop(first.chat) != self._claims
            if passed_by or row is not None:
                self._note_new_row()

    async def _send(self, row: OutRow) -> OutRow | None:
        waited = self.app.standstills.elapsed(row.created_at, self.app.clock())
        if waited > TOO_OLD_MS:
            await self._give_up(row, "it waited for more than a day")
            return None
        if row.doubts and waited > outbox.MAX_AGE_MS:
            await self._give_up(row, row.last_error or "it may have arrived")
            return None
        # The preview is closed before the turn is taken, so that no edit of it is planned behind its own answer.
        draft = None
        if row.run_id and not row.part:
            draft = await self._previews.take_preview(row.run_id, row.route.reply_to)
        if self._probes.edits_keep_failing(row):
            draft = None
        await self._pacer.wait_for_turn(row.route.address)
        if self._probes.needs_probe(row, waited):  # it may have arrived
            try:
                await self._pacer.wait_before_call()
                await self._probes.probe(row)
            except TryLater as error:  # so the message itself is not risked
                self._mark_failing(str(error))
                await self._wait_until(row, retry_decision(row, error, self.app.clock()), row.last_error or str(error))
                return None
            self._mark_working()
            await self._pacer.wait_for_turn(row.route.address)
        # To its end, for some seconds at most, even when this is cancelled: otherwise nobody would know whether the message arrived.
        attempt = asyncio.ensure_future(self._attempt(row, draft))
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            await asyncio.wait([attempt], timeout=_GRACE_SECONDS)
            attempt.cancel()
            raise

    async def _attempt(self, row: OutRow, draft: str | None) -> OutRow | None:
        edits = draft is not None or is_edit(row)
        try:
            # From this commit on, a crash leaves the row "sending": the next start examines it.
            row, content = await self.app.database.write(
                self._prepare, row, await self._rows.rendered(row), edits=edits
            )
            await self._pacer.wait_before_call()
            # A process that stood still may have lost its lease: another one sends by now.
            if not self.app.holders.is_held(of_platform(self._platform)):
                raise LeaseLost(f"{self._platform} is another process's.")
            sent = await self._rows.send(row, content, draft)
        except TryLater as error:
            await self._put_off(row, error, edits=edits)
        except Unauthorized as error:
            self._mark_failing(str(error))
            await self._put_off(row, TryLater(str(error), after=_UNAUTHORIZED_SECONDS))
        except Undeliverable as error:
            await self._give_up(row, str(error), gone=True)
        except StateError:
            # The database, not the message: `_deliver_chat` ends, and the row is examined when its lease runs out.
            raise
        except Exception as error:  # a bug in rendering or the library: this message waits, and the others go on
            log.exception("outbox.failed", platform=self._platform, row=row.id)
            await self._put_off(row, TryLater(f"{type(error).__name__}", after=60, ambiguous=True), edits=edits)
        else:
            # None: the preview cannot become this message; nothing was sent, so it goes out as a new one.
            return await (self._attempt(row, None) if sent is None else self._succeeded(row, sent))
        return None

    def _mark_failing(self, why: str) -> None:
        if self.failure is None:
            log.error("platform.not_sending", platform=self._platform, error=why)
            self.failing_since = time.time()
        self.failure = why

    def _mark_working(self) -> None:
        if self.failure is not None:
            log.info("platform.sending", platform=self._platform)
        self.failure = None

    async def _succeeded(self, row: OutRow, sent: SentRow) -> OutRow | None:
        self._mark_working()
        if sent.was_preview:
            self._previews.mark_final(row.run_id or "")
        self._probes.forget(row)
        self._busy[row.chat] = self._claims
        more = await self.app.database.write(self._mark_sent, row, sent)
        log.info("outbox.sent", platform=self._platform, row=row.id, run_id=row.run_id)
        self.app.metrics.message(self._platform, "out")
        if row.run_id is not None:
            self.app.metrics.replied(self._platform, max(0.0, (self.app.clock() - row.created_at) / 1000))
            await self._previews.clear(row.run_id)
        return more

    async def _put_off(self, row: OutRow, error: TryLater, *, edits: bool = False) -> None:
        if error.after is not None:  # the platform answers; it only wants fewer calls, or the message elsewhere
            self._pacer.pause(error.after, row.route.address)
        else:
            self._mark_failing(str(error))
        self._probes.failed(row, error, edits=edits)
        now = self.app.clock()
        decision = retry_decision(row, error, now, edits=edits, can_probe=self._adapter.can_probe)
        if decision.gives_up:
            await self._give_up(row, str(error))
            return
        await self._wait_until(row, decision, str(error))
        log.warning(
            "outbox.retried",
            platform=self._platform,
            row=row.id,
            error=str(error),
            retry_in=(decision.due_at - now) / 1000,
        )

    async def _wait_until(self, row: OutRow, decision: RetryDecision, error: str) -> None:
        await self.app.database.write(outbox.put_off, row.id, decision.due_at, error, ambiguous=decision.doubtful)
        self._wake.set()

    async def _give_up(self, row: OutRow, why: str, *, gone: bool = False) -> None:
        await self.app.database.write(self._mark_undeliverable, row, why, await self._owner_key(), gone)
        self._wake.set()
        self._probes.forget(row)
        log.warning("outbox.dead", platform=self._platform, row=row.id, error=why)
        if row.run_id is not None:
            await self._previews.clear(row.run_id)
