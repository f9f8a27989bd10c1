"""Shows a chat that the agent works: typing, a status, a preview that grows with the answer, a reaction on messages that came meanwhile.

What a chat is shown of a run has three stages:

| stage   | what is shown                              | until                                                              |
|---------|--------------------------------------------|--------------------------------------------------------------------|
| WRITING | typing, status, preview                    | the answer is on its way (CLOSED), or nobody works any more (ENDED) |
| CLOSED  | the preview, which the answer may replace  | that answer has arrived and the run goes on (WRITING, anew), or ENDED |
| ENDED   | the preview and reactions                  | the answer has arrived, or none comes: `_end` clears what is left   |

Typing, status and words may be lost. The id of the preview and of messages with a reaction are stored, so that the next process clears
them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from adapters.base import Activity, Adapter, DeliveryError, ShowsDrafts, ShowsStatus, TryLater
from gateway.chats.sending import RateLimiter
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.runs.live import NO_REPLY, LiveEvent
from gateway.texts import say
from sessions import runs
from sessions.errors import StateError
from sessions.keys import Address, ChatKind, Sender
from sessions.messages import Inbound
from sessions.records import Route, Run, RunKind, RunStatus

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
_NAMED_TOOLS = frozenset({"session_search", "memory", "process", "schedule"})
"""Tools with a line of progress of their own."""


class Stage(Enum):
    WRITING = auto()
    CLOSED = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A preview message. `id` None: the platform removes it by itself. `unsure`: it may have arrived, and its id is unknown."""

    id: str | None
    unsure: bool = False
    text: str | None = None
    drawn_at: float = 0.0
    under: str | None = None  # the message that it was put under
    rang: bool = True  # it was noticed as a message is
    taken: bool = False  # the answer is about to take its place


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status that a chat shows, and when it was sent."""

    text: str
    sent_at: float


@dataclass(slots=True)
class WrittenText:
    """What the agent has written in this step, or the tool that it uses."""

    text: str = ""
    tool: str = ""
    whole: bool = False  # the text is that of a step that has ended

    def add(self, text: str) -> None:
        self.text, self.whole = ("" if self.whole else self.text) + text, False

    @property
    def may_be_silence(self) -> bool:
        """Returns True for no text, and for text that may still become `NO_REPLY`."""
        text = self.text.strip()
        return not text or NO_REPLY.startswith(text[: len(NO_REPLY)])

    def progress(self) -> str:
        """Returns the line that says what the agent does while there is no text."""
        name = self.tool if self.tool in _NAMED_TOOLS else "tool_generic" if self.tool else "thinking"
        return say(f"progress.{name}")


@dataclass(slots=True)
class ShownRun:
    """What a chat is shown of one run, from when work on it begins, or goes on, to its next answer."""

    run_id: str
    route: Route
    began: float
    stage: Stage = Stage.WRITING
    written: WrittenText = field(default_factory=WrittenText)
    heading: str = ""  # what stands above the words
    preview: Preview | None = None
    status: Status | None = None  # None: nothing stands beside the chat
    noted: list[Inbound] = field(default_factory=list[Inbound])  # the messages with our reaction
    type_at: float = 0.0
    paused_until: float = 0.0
    task: asyncio.Task[None] | None = None
    cleared: asyncio.Event = field(default_factory=asyncio.Event)  # the answer has arrived, or none comes
    calling: asyncio.Lock = field(default_factory=asyncio.Lock)  # so that the last call is the one that counts

    @property
    def preview_id(self) -> str | None:
        return self.preview.id if self.preview else None

    def close(self) -> None:
        if self.stage is Stage.WRITING:
            self.stage = Stage.CLOSED


class Presence:
    """Shows the runs of one platform in their chats."""

    def __init__(
        self,
        app: App,
        adapter: Adapter,
        pacer: RateLimiter,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.app = app
        self._adapter = adapter
        self._pacer = pacer
        self._monotonic = monotonic
        self._sleep = sleep
        self._shown: dict[str, ShownRun] = {}
        self._background: set[asyncio.Task[None]] = set()
        self.shows = True
        """False: another process shows this platform's runs."""
        self._unlisten = app.live.listen("*", self._on_live_event)

    def close(self) -> None:
        self._unlisten()
        for shown in self._shown.values():
            if shown.task is not None:
                shown.task.cancel()
        for task in self._background:
            task.cancel()

    def restore(self, shown_before: Sequence[Run], now: int) -> None:
        """Takes over what an earlier process has shown. Erases previews that no answer, sent or still to come, will replace."""
        for run in shown_before:
            if run.route is None or run.route.address.platform != self._adapter.platform:
                continue
            address = run.route.address
            if (shown := self._shown.get(run.id)) is None:
                began = self._monotonic() - (now - run.created_at) / 1000
                shown = self._shown[run.id] = ShownRun(run_id=run.id, route=run.route, began=began, stage=Stage.CLOSED)
                # Nothing but place and id is needed to take a reaction off.
                shown.noted += [
                    Inbound(dedup_key="", address=address, sender=Sender(id=""), message_id=number)
                    for number in run.noted
                ]
            if shown.preview_id is None and run.preview is not None:
                shown.preview = Preview(id=run.preview)
            if shown.preview_id is None:  # nothing that the answer could still take the place of
                shown.cleared.set()
            if shown.stage is not Stage.WRITING and run.status is not RunStatus.RUNNING:
                self._end(shown)

    def clear_statuses(self, ended: Sequence[Run]) -> None:
        """Clears the statuses that an earlier process may have left beside the chats of these runs, which are over or wait."""
        if isinstance(self._adapter, ShowsStatus):
            for run in ended:
                if run.route is not None:
                    self._run_in_background(self._clear_status(self._adapter, run.route.address, run.id))

    # --- from stage to stage ---

    def _on_live_event(self, event: LiveEvent) -> None:
        if not self.shows:
            return
        if event.kind == "begun":
            self._begin(event.run)
            return
        shown = self._shown.get(event.run_id)
        if shown is None:
            return
        match event.kind:
            case "heading":
                shown.heading = event.text
            case "token":
                shown.written.add(event.text)
            case "afresh":
                shown.written.text = ""
            case "tool":
                shown.written = WrittenText(tool=event.text)
            case "tool_done":
                shown.written.tool = ""
            case "said":
                shown.written.whole = True
            case "turned":
                shown.route = getattr(event.run, "route", None) or shown.route
            case "answered":  # from here on it is another answer, which is shown once this one has arrived
                shown.written.text = shown.heading = ""
                shown.close()
            case "ended":
                self._end(shown)
            case "gap":  # the answer itself comes from the database
                pass

    def _begin(self, run: Run | None) -> None:
        if run is None or run.route is None or run.route.address.platform != self._adapter.platform:
            return
        if run.kind is RunKind.JOB:  # nobody waits for it, and it may have nothing to say
            return
        shown = ShownRun(run_id=run.id, route=run.route, began=self._monotonic())
        if (before := self._shown.get(run.id)) is not None:  # it goes on, and so does what is shown of it
            before.close()
            shown.preview = before.preview
            shown.noted, before.noted = before.noted, []
            shown.status = replace(before.status, sent_at=0.0) if before.status else None
            before.cleared.set()
        self._start(shown)

    def _start(self, shown: ShownRun) -> None:
        self._shown[shown.run_id] = shown
        shown.task = asyncio.create_task(self._show(shown))

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
            is_quick = self._monotonic() - shown.began <= REUSED_FOR_SECONDS
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
        shown.cleared.set()
        if shown.stage is not Stage.ENDED:  # that was the answer to a part of it
            shown.close()
            rest = ShownRun(run_id=run_id, route=shown.route, began=self._monotonic(), status=shown.status)
            rest.noted, shown.noted = shown.noted, []
            rest.written = replace(shown.written)
            rest.preview = shown.preview if shown.preview and shown.preview.unsure else None
            self._start(rest)
        await self._erase_preview(shown)

    def end_without_answer(self, run_ids: Sequence[str]) -> None:
        """Erases the previews of runs that were stopped. A preview that shows a part of an answer stays, as a message will replace it."""
        for run_id in run_ids:
            shown = self._shown.get(run_id)
            if shown is not None and (shown.stage is Stage.ENDED or shown.written.may_be_silence):
                shown.cleared.set()
                self._end(shown)

    def _end(self, shown: ShownRun) -> None:
        """Ends what is shown of a run: the status now, preview and reactions once its answer has arrived (`cleared`)."""
        if shown.stage is Stage.ENDED:
            return
        shown.stage = Stage.ENDED
        if isinstance(self._adapter, ShowsStatus) and shown.status is not None:
            shown.status = None
            self._run_in_background(self._clear_status(self._adapter, shown.route.address, shown.run_id))
        self._run_in_background(self._clear_when_answered(shown))

    async def _clear_when_answered(self, shown: ShownRun) -> None:
        async with shown.calling:
            pass  # a call that is on its way may still create the preview that has to be cleared
        if shown.preview_id is not None or shown.noted:
            # There may be no answer at all: after this time the preview goes by itself.
            left = asyncio.ensure_future(self._sleep(LEFT_SECONDS))
            left.add_done_callback(lambda _: shown.cleared.set())
            try:
                await shown.cleared.wait()
            finally:
                left.cancel()
        if self._shown.get(shown.run_id) is shown and not (shown.preview and shown.preview.taken):
            del self._shown[shown.run_id]
            await self._erase_preview(shown)
        bearing, shown.noted = shown.noted, []
        for inbound in bearing:
            while not self._pacer.try_turn(inbound.address):
                await self._sleep(_TICK)
            await self._react(inbound, None)
        if bearing:
            await self._store_shown(shown)

    async def _erase_preview(self, shown: ShownRun) -> None:
        async with shown.calling:
            if shown.preview_id is None or not isinstance(self._adapter, ShowsDrafts):
                return
            await self._pacer.wait_for_turn(shown.route.address)
            try:
                await self._adapter.erase_draft(shown.route.address, shown.preview_id)
            except DeliveryError as error:  # the next start tries it once more
                log.debug("draft.left", error=str(error))
            else:
                shown.preview = None
                await self._store_shown(shown)

    async def _clear_status(self, adapter: ShowsStatus, address: Address, run_id: str) -> None:
        waits = await self.app.database.read(runs.is_waiting, run_id)
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
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _store_shown(self, shown: ShownRun) -> None:
        try:
            noted = [inbound.message_id for inbound in shown.noted]
            await self.app.database.write(runs.keep_shown, shown.run_id, shown.preview_id, noted)
        except StateError as error:
            log.warning("preview.not_noted", run_id=shown.run_id, error=str(error))

    # --- while it works ---

    async def _show(self, shown: ShownRun) -> None:
        await self._sleep(SOON_SECONDS)
        while shown.stage is Stage.WRITING:
            if self._monotonic() >= shown.paused_until:
                try:
                    await self._show_working(shown)
                    await self._show_preview(shown)
                except DeliveryError as error:
                    log.debug("preview.refused", error=str(error))
                    shown.paused_until = self._monotonic() + REFUSED_SECONDS
                    if isinstance(error, TryLater) and error.after:
                        self._pacer.pause(error.after, shown.route.address)
            await self._sleep(_TICK)

    async def _show_working(self, shown: ShownRun) -> None:
        """Shows typing, except beside a preview that grows, which says as much; and the status, where the platform has one."""
        adapter, address = self._adapter, shown.route.address
        grows = shown.preview is not None and bool(shown.preview.text)
        is_due = adapter.typing_every is not None and self._monotonic() >= shown.type_at and not grows
        if is_due and self._pacer.try_turn(address):
            shown.type_at = self._monotonic() + (adapter.typing_every or 0)
            await adapter.typing(address)
        if isinstance(adapter, ShowsStatus):
            now, text, before = self._monotonic(), shown.written.progress(), shown.status
            is_fresh = before is not None and text == before.text and now < before.sent_at + adapter.status_every
            if not is_fresh and self._pacer.try_turn(address):
                shown.status = Status(text=text, sent_at=now)
                await adapter.status(address, Activity.WORKING, text)

    async def _show_preview(self, shown: ShownRun) -> None:
        """Shows the text so far, nothing while it may still become `NO_REPLY`; a line of progress when there is no text for long."""
        adapter, address, before = self._adapter, shown.route.address, shown.preview
        if not isinstance(adapter, ShowsDrafts):
            return
        in_dm, words = address.kind is ChatKind.DM, shown.heading + shown.written.text
        wanted = words
        if shown.written.may_be_silence:
            after = PROGRESS_AFTER_DM_SECONDS if in_dm else PROGRESS_AFTER_GROUP_SECONDS
            if isinstance(adapter, ShowsStatus) or self._monotonic() - shown.began < after:  # a status says it, too
                return
            wanted = f"_{shown.written.progress()}_"
        if before is not None:
            fades = before.text is not None and self._monotonic() > before.drawn_at + adapter.draft_renew_every
            if before.unsure or (before.text == wanted and not fades):
                return
        if not self._pacer.try_turn(address, edit=True):
            return
        async with shown.calling:  # the final message takes the same lock, so no edit overtakes it
            if shown.stage is not Stage.WRITING:  # the answer may have come while this edit waited for the lock
                return
            known, quoted, silent = shown.preview_id, None if in_dm else shown.route.reply_to, wanted != words
            try:
                name = await adapter.draft(address, known, wanted, reply_to=quoted, silent=silent)
            except TryLater as error:
                if error.ambiguous and known is None:
                    shown.preview = Preview(id=None, unsure=True)
                raise
            now = self._monotonic()
            if before is not None and name == known:
                shown.preview = replace(before, text=wanted, drawn_at=now)
            else:
                shown.preview = Preview(id=name, text=wanted, drawn_at=now, under=quoted, rang=not silent)
                await self._store_shown(shown)

    def mark_read(self, inbound: Inbound, run_id: str) -> None:
        """Puts a reaction on a message that joined this run while it was at work."""
        if (shown := self._shown.get(run_id)) is not None:
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
