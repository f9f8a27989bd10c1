"""Shows a chat that the agent works: typing, a growing preview, a reaction on messages that came meanwhile. All of it may be lost."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace

from adapters.base import Activity, Adapter, DeliveryError, ShowsDrafts, ShowsStatus, TryLater
from gateway.chats.sending import RateLimiter
from gateway.chats.shown_run import Preview, ShownRun, Stage, Status, WrittenText, message_by_id
from gateway.observe.logging import get_logger
from gateway.runs.live import LiveEvent, LiveEvents
from sessions.errors import StateError
from sessions.keys import Address, ChatKind
from sessions.messages import Inbound
from sessions.records import Run, RunKind, RunStatus

log = get_logger(__name__)

READ = "👀"
SOON_SECONDS = 0.4
"""An answer that is there by then needs no announcement, which would only make it wait for its turn."""
PROGRESS_AFTER_DM_SECONDS = 10.0
PROGRESS_AFTER_GROUP_SECONDS = 30.0
REUSED_FOR_SECONDS = 60.0
LEFT_SECONDS = 60.0
"""How long a preview stays whose run has ended without anything to send."""
REFUSED_SECONDS = 5.0
"""How long nothing is shown after the platform has not taken it."""
_TICK = 0.25

Keep = Callable[[str, str | None, Sequence[str]], Awaitable[None]]


async def _nowhere(_: str, __: str | None, ___: Sequence[str]) -> None: ...


async def _never(_: str) -> bool:
    return False


class Presence:
    """Shows the runs of one platform in their chats. `keep` stores the preview of a run and the messages marked as read. `is_waiting`
    tells whether a run waits for a person.
    """

    def __init__(
        self,
        adapter: Adapter,
        pacer: RateLimiter,
        live: LiveEvents,
        *,
        keep: Keep = _nowhere,
        is_waiting: Callable[[str], Awaitable[bool]] = _never,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._adapter = adapter
        self._pacer = pacer
        self._keep = keep
        self._is_waiting = is_waiting
        self._clock = clock
        self._sleep = sleep
        self._shown: dict[str, ShownRun] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._unlisten = live.listen("*", self._on_live_event)

    def close(self) -> None:
        self._unlisten()
        for shown in self._shown.values():
            if shown.task is not None:
                shown.task.cancel()
        for task in self._closing:
            task.cancel()

    def restore(self, runs: Sequence[Run], now: int) -> None:
        """Takes over what an earlier process has shown. Erases previews that no answer, sent or still to come, will replace."""
        for run in runs:
            if run.route is None or run.route.address.platform != self._adapter.platform:
                continue
            if (shown := self._shown.get(run.id)) is None:
                began = self._clock() - (now - run.created_at) / 1000
                shown = self._shown[run.id] = ShownRun(run_id=run.id, route=run.route, began=began, stage=Stage.CLOSED)
                shown.noted += [message_by_id(run.route.address, name) for name in run.noted]
            if shown.preview_id is None and run.preview is not None:
                shown.preview = Preview(id=run.preview)
            if shown.preview_id is None:  # nothing that the answer could still take the place of
                shown.cleared.set()
            if shown.stage is not Stage.WRITING and run.status is not RunStatus.RUNNING:
                self._end(run.id, shown)

    def _on_live_event(self, event: LiveEvent) -> None:
        if event.kind == "begun":
            self._begin(event.run)
            return
        shown = self._shown.get(event.run_id)
        if shown is not None:
            self._apply_event(shown, event)

    def _apply_event(self, shown: ShownRun, event: LiveEvent) -> None:
        match event.kind:
            case "begun" | "heading":
                shown.heading = event.text
            case "token":
                shown.written.add(event.text)
            case "afresh":
                shown.written.text = ""
            case "tool":
                shown.written = WrittenText(tool=event.text)
            case "tool_done":
                shown.written.tool = ""
            case "ended":
                self._end(event.run_id, shown)
            case "said":
                shown.written.whole = True
            case "answered":  # from here on it is another answer, which is shown once this one has arrived
                shown.written.text = shown.heading = ""
                shown.close()
            case "turned":
                shown.route = getattr(event.run, "route", None) or shown.route

    def _begin(self, run: Run | None) -> None:
        if run is None or run.route is None or run.route.address.platform != self._adapter.platform:
            return
        if run.kind is RunKind.JOB:  # nobody waits for it, and it may have nothing to say
            return
        shown = ShownRun(run_id=run.id, route=run.route, began=self._clock())
        if (before := self._shown.get(run.id)) is not None:  # it goes on, and so does what is shown of it
            before.close()
            shown.preview, shown.noted = before.preview, before.noted
            shown.status = replace(before.status, sent_at=0.0) if before.status else None
            before.cleared.set()
        self._start(run.id, shown)

    def _start(self, run_id: str, shown: ShownRun) -> None:
        self._shown[run_id] = shown
        shown.task = asyncio.create_task(self._show(shown))

    def _end(self, run_id: str, shown: ShownRun) -> None:
        shown.stage = Stage.ENDED
        self._end_status(run_id, shown)
        # Kept while there is a preview for the answer to replace, or a reaction to remove.
        if shown.preview_id is None and not shown.noted and not shown.calling.locked():
            del self._shown[run_id]
        else:
            self._run_in_background(self._clear_when_answered(run_id, shown))

    def clear_statuses(self, ended: Sequence[Run]) -> None:
        """Clears the statuses that an earlier process may have left beside the chats of these runs, which are over or wait."""
        if isinstance(self._adapter, ShowsStatus):
            for run in ended:
                if run.route is not None:
                    self._run_in_background(self._clear_status(self._adapter, run.route.address, run.id))

    def _end_status(self, run_id: str, shown: ShownRun) -> None:
        if isinstance(self._adapter, ShowsStatus) and shown.status is not None:
            shown.status = None
            self._run_in_background(self._clear_status(self._adapter, shown.route.address, run_id))

    async def _clear_status(self, adapter: ShowsStatus, address: Address, run_id: str) -> None:
        waits = await self._is_waiting(run_id)
        for pause in (0.0, 1.0, 5.0, 15.0):
            await self._sleep(pause)
            if any(other.route.address == address and other.stage is Stage.WRITING for other in self._shown.values()):
                return  # somebody works there again
            # Tried for some time: a status that stays says that somebody works who does not.
            try:
                await adapter.status(address, Activity.WAITING if waits else Activity.IDLE)
            except TryLater as error:
                await self._sleep(error.after or 0)
            except DeliveryError as error:
                log.debug("status.refused", error=str(error))
                return
            else:
                return

    def _run_in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _clear_when_answered(self, run_id: str, shown: ShownRun) -> None:
        """Waits until the answer was sent, which may replace the preview, then erases what is left of it."""
        async with shown.calling:
            pass  # a call that is on its way may still create the preview that has to be cleared
        if shown.preview_id is not None or shown.noted:
            await self._wait_until_cleared(shown)
        if self._shown.get(run_id) is shown and not (shown.preview and shown.preview.taken):
            await self.clear(run_id)
        await self._remove_reactions(shown)

    async def _remove_reactions(self, shown: ShownRun) -> None:
        """Removes the reactions from messages that were marked as read."""
        bearing, shown.noted[:] = list(shown.noted), []
        for inbound in bearing:
            while not self._pacer.try_turn(inbound.address):
                await self._sleep(_TICK)
            await self._react(inbound, None)
        if bearing:
            await self._store_shown(shown)

    async def _wait_until_cleared(self, shown: ShownRun) -> None:
        # There may be no answer at all: after this time the preview goes by itself.
        left = asyncio.ensure_future(self._sleep(LEFT_SECONDS))
        left.add_done_callback(lambda _: shown.cleared.set())
        try:
            await shown.cleared.wait()
        finally:
            left.cancel()

    # --- while it works ---

    async def _show(self, shown: ShownRun) -> None:
        await self._sleep(SOON_SECONDS)
        while shown.stage is Stage.WRITING:
            if self._clock() >= shown.paused_until:
                try:
                    await self._send_typing(shown)
                    await self._send_status(shown)
                    await self._update_preview(shown)
                except DeliveryError as error:
                    self._pause_after_refusal(shown, error)
            await self._sleep(_TICK)

    def _pause_after_refusal(self, shown: ShownRun, error: DeliveryError) -> None:
        log.debug("preview.refused", error=str(error))
        shown.paused_until = self._clock() + REFUSED_SECONDS
        if isinstance(error, TryLater) and error.after:
            self._pacer.hold(error.after, shown.route.address)

    async def _send_typing(self, shown: ShownRun) -> None:
        adapter, address = self._adapter, shown.route.address
        if adapter.typing_every is None or self._clock() < shown.type_at:
            return
        if shown.preview is not None and shown.preview.text:  # it grows, which says as much
            return
        if self._pacer.try_turn(address):
            shown.type_at = self._clock() + adapter.typing_every
            await adapter.typing(address)

    async def _send_status(self, shown: ShownRun) -> None:
        adapter, now = self._adapter, self._clock()
        if not isinstance(adapter, ShowsStatus):
            return
        text = shown.written.progress()
        shown_status = shown.status
        if shown_status is not None and text == shown_status.text and now < shown_status.sent_at + adapter.status_every:
            return
        if self._pacer.try_turn(shown.route.address):
            shown.status = Status(text=text, sent_at=now)
            await adapter.status(shown.route.address, Activity.WORKING, text)

    async def _update_preview(self, shown: ShownRun) -> None:
        adapter, address = self._adapter, shown.route.address
        wanted, before = self._preview_text(shown), shown.preview
        if not isinstance(adapter, ShowsDrafts) or not wanted or not self._must_draw(adapter, before, wanted):
            return
        if not self._pacer.try_turn(address, edit=True):
            return
        async with shown.calling:  # the final message takes the same lock, so no edit overtakes it
            if shown.stage is not Stage.WRITING:  # the answer may have come while this edit waited for the lock
                return
            known, quoted, silent = (
                shown.preview_id,
                self._quoted_message(shown),
                wanted != shown.heading + shown.written.text,
            )
            try:
                name = await adapter.draft(address, known, wanted, reply_to=quoted, silent=silent)
            except TryLater as error:
                if error.ambiguous and known is None:
                    shown.preview = Preview(id=None, unsure=True)
                raise
            now = self._clock()
            if before is not None and name == known:
                shown.preview = replace(before, text=wanted, drawn_at=now)
            else:
                shown.preview = Preview(id=name, text=wanted, drawn_at=now, under=quoted, rang=not silent)
                await self._store_shown(shown)

    def _must_draw(self, adapter: ShowsDrafts, preview: Preview | None, wanted: str) -> bool:
        """Returns True when the preview differs from what is shown, or is about to fade. A preview without a known id is left alone."""
        if preview is None:
            return True
        is_stale = preview.text is not None and self._clock() > preview.drawn_at + adapter.draft_renew_every
        return not preview.unsure and (preview.text != wanted or is_stale)

    async def _store_shown(self, shown: ShownRun) -> None:
        try:
            await self._keep(shown.run_id, shown.preview_id, [inbound.message_id for inbound in shown.noted])
        except StateError as error:
            log.warning("preview.not_noted", run_id=shown.run_id, error=str(error))

    def _preview_text(self, shown: ShownRun) -> str:
        """Returns the text so far, empty while it may still become `NO_REPLY`; a line of progress when there is no text for long."""
        if not shown.written.may_be_silence:
            return shown.heading + shown.written.text
        progress_after = (
            PROGRESS_AFTER_DM_SECONDS if shown.route.address.kind is ChatKind.DM else PROGRESS_AFTER_GROUP_SECONDS
        )
        if self._clock() - shown.began < progress_after or isinstance(self._adapter, ShowsStatus):
            return ""
        return f"_{shown.written.progress()}_"

    def _quoted_message(self, shown: ShownRun) -> str | None:
        return None if shown.route.address.kind is ChatKind.DM else shown.route.reply_to

    # --- around the final message ---

    async def take_preview(self, run_id: str, reply_to: str | None) -> str | None:
        """Returns the id of the preview that the answer replaces; None where the answer has to be a new message."""
        shown = self._shown.get(run_id)
        if shown is None:
            return None
        shown.close()
        async with shown.calling:  # an edit that is on its way must not arrive after the answer
            if shown.preview is None:
                return None
            preview = shown.preview = replace(shown.preview, taken=True)
            # After a long run nobody looks any more, and an edit rings no bell: only a new message is noticed.
            is_quick = self._clock() - shown.began <= REUSED_FOR_SECONDS
            fits = preview.rang and preview.under in {None, reply_to}
            return preview.id if is_quick and fits else None

    def mark_final(self, run_id: str) -> None:
        """Notes that the preview has become the answer."""
        if (shown := self._shown.get(run_id)) is not None:
            shown.preview = None

    async def clear(self, run_id: str) -> None:
        """Erases the preview of a run whose answer was sent, or never will be."""
        shown = self._shown.pop(run_id, None)
        if shown is None:
            return
        has_ended = shown.stage is Stage.ENDED
        shown.close()
        shown.cleared.set()
        if not has_ended:  # that was the answer to a part of it
            rest = ShownRun(run_id=run_id, route=shown.route, began=self._clock(), noted=shown.noted)
            rest.written, rest.status = replace(shown.written), shown.status
            rest.preview = shown.preview if shown.preview and shown.preview.unsure else None
            self._start(run_id, rest)
        async with shown.calling:
            if shown.preview_id is not None and isinstance(self._adapter, ShowsDrafts):
                await self._erase_preview(self._adapter, shown, shown.preview_id)

    async def _erase_preview(self, adapter: ShowsDrafts, shown: ShownRun, draft: str) -> None:
        await self._pacer.wait_for_turn(shown.route.address)
        try:
            await adapter.erase_draft(shown.route.address, draft)
        except DeliveryError as error:  # the next start tries it once more
            log.debug("draft.left", error=str(error))
        else:
            shown.preview = None
            await self._store_shown(shown)

    def end_without_answer(self, run_ids: Sequence[str]) -> None:
        """Erases the previews of runs that were stopped. A preview that shows a part of an answer stays, as a message will replace it."""
        for run_id in run_ids:
            shown = self._shown.get(run_id)
            if shown is not None and (shown.stage is Stage.ENDED or shown.written.may_be_silence):
                shown.stage = Stage.ENDED
                self._run_in_background(self._stop(run_id, shown))

    async def _stop(self, run_id: str, shown: ShownRun) -> None:
        self._end_status(run_id, shown)
        await self.clear(run_id)
        await self._remove_reactions(shown)

    def mark_read(self, inbound: Inbound, run_id: str) -> None:
        """Puts a reaction on a message that joined this run while it was at work."""
        shown = self._shown.get(run_id)
        if shown is not None:
            self._run_in_background(self._mark_read(shown, inbound))

    async def _mark_read(self, shown: ShownRun, inbound: Inbound) -> None:
        while not self._pacer.try_turn(inbound.address):
            if shown.stage is not Stage.WRITING:
                return
            await self._sleep(_TICK)
        async with shown.calling:
            if shown.stage is Stage.WRITING:
                shown.noted.append(inbound)
                await self._store_shown(shown)
                await self._react(inbound, READ)

    async def _react(self, inbound: Inbound, emoji: str | None) -> None:
        try:
            await self._adapter.react(inbound.address, inbound.message_id, emoji)
        except DeliveryError as error:  # not permitted here: then nothing
            log.debug("reaction.refused", error=str(error))
