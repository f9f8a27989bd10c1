"""What a chat sees while the agent works: typing, a preview that grows, one reaction on what came in meanwhile. All of it may be lost."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import structlog

from adapters.base import Adapter, DeliveryError, Reacts, ShowsDrafts, ShowsTyping
from gateway.pacing import Pacer
from gateway.runs.live import Live, Moment
from gateway.texts import say
from sessions.keys import ChatKind
from sessions.messages import Inbound
from sessions.records import Route, Run

log = structlog.get_logger(__name__)

READ = "👀"
SILENT = "NO_REPLY"
QUIET_DM_SECONDS = 10.0
QUIET_GROUP_SECONDS = 30.0
REUSED_FOR_SECONDS = 60.0
LEFT_SECONDS = 60.0
"""How long a preview stays whose run has ended without anything to send."""
_TICK = 0.25
_PROGRESS = frozenset({"session_search", "memory", "web_fetch", "process", "schedule"})


@dataclass(slots=True)
class _Shown:
    """One run in one chat."""

    route: Route
    began: float
    text: str = ""
    tool: str = ""
    draft: str | None = None
    drawn: str | None = None
    drawn_at: float = 0.0
    typed_at: float = 0.0
    noted: list[Inbound] = field(default_factory=list[Inbound])
    task: asyncio.Task[None] | None = None
    over: bool = False
    cleared: asyncio.Event = field(default_factory=asyncio.Event)
    calling: asyncio.Lock = field(default_factory=asyncio.Lock)  # so that the last call is the one that counts


class Presence:
    """One per platform; hears of every run and shows those of its own chats."""

    def __init__(
        self,
        adapter: Adapter,
        pacer: Pacer,
        live: Live,
        *,
        clock: Callable[[], float] = time.monotonic,
        tick: float = _TICK,
        left: float = LEFT_SECONDS,
    ) -> None:
        self._adapter = adapter
        self._pacer = pacer
        self._clock = clock
        self._tick = tick
        self._left = left
        self._shown: dict[str, _Shown] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._unlisten = live.listen("*", self._hear)

    def close(self) -> None:
        self._unlisten()
        for shown in self._shown.values():
            if shown.task is not None:
                shown.task.cancel()
        for task in self._closing:
            task.cancel()

    def _hear(self, moment: Moment) -> None:
        if moment.kind == "begun":
            self._begin(moment.run)
            return
        shown = self._shown.get(moment.run_id)
        if shown is None:
            return
        match moment.kind:
            case "token":
                shown.text += moment.text
            case "afresh":
                shown.text = ""
            case "tool":
                shown.tool, shown.text = moment.text, ""
            case "tool_done":
                shown.tool = ""
            case "ended":
                self._end(moment.run_id, shown)

    def _begin(self, run: Run | None) -> None:
        if run is None or run.route is None or run.route.address.platform is not self._adapter.platform:
            return
        shown = _Shown(route=run.route, began=self._clock())
        if (before := self._shown.get(run.id)) is not None:  # it goes on, and so does what is shown of it
            before.over, shown.draft, shown.drawn = True, before.draft, before.drawn
            before.cleared.set()
        self._shown[run.id] = shown
        shown.task = asyncio.create_task(self._show(shown))

    def _end(self, run_id: str, shown: _Shown) -> None:
        shown.over = True
        self._beside(self._leave(run_id, shown))

    def _beside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _leave(self, run_id: str, shown: _Shown) -> None:
        async with shown.calling:
            for inbound in shown.noted:
                await self._react(inbound, None)
        if shown.draft is not None:  # the answer takes it, if there is one
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._left):
                    await shown.cleared.wait()
        if self._shown.get(run_id) is shown:
            await self.clear(run_id)

    # --- while it works ---

    async def _show(self, shown: _Shown) -> None:
        while not shown.over:
            await self._type(shown)
            await self._draw(shown)
            await asyncio.sleep(self._tick)

    async def _type(self, shown: _Shown) -> None:
        adapter, address, now = self._adapter, shown.route.address, self._clock()
        if (
            not isinstance(adapter, ShowsTyping)
            or shown.drawn
            or (shown.typed_at and now < shown.typed_at + adapter.typing_every)
        ):
            return
        if self._pacer.turn_now(address):
            shown.typed_at = now
            try:
                await adapter.typing(address)
            except DeliveryError as error:
                log.debug("typing.failed", error=str(error))

    async def _draw(self, shown: _Shown) -> None:
        adapter, address = self._adapter, shown.route.address
        wanted = self._wanted(shown)
        stale = shown.drawn is not None and self._clock() > shown.drawn_at + getattr(
            adapter, "draft_renew_every", float("inf")
        )
        if not isinstance(adapter, ShowsDrafts) or not wanted or (wanted == shown.drawn and not stale):
            return
        if not self._pacer.turn_now(address, edit=True):
            return
        try:
            async with shown.calling:
                if shown.over:
                    return
                shown.draft = await adapter.draft(address, shown.draft, wanted, reply_to=self._quoted(shown))
            shown.drawn, shown.drawn_at = wanted, self._clock()
        except DeliveryError as error:
            log.debug("draft.failed", error=str(error))
            self._pacer.hold(getattr(error, "after", None) or 5.0, address)

    def _wanted(self, shown: _Shown) -> str:
        """The text so far, once it cannot turn out to be silence; a line of progress when there is none for long."""
        text = shown.text.strip()
        if text and not SILENT.startswith(text[: len(SILENT)]):
            return shown.text
        quiet = QUIET_DM_SECONDS if shown.route.address.kind is ChatKind.DM else QUIET_GROUP_SECONDS
        if self._clock() - shown.began < quiet:
            return ""
        name = shown.tool if shown.tool in _PROGRESS - {"web_fetch"} else "tool_generic" if shown.tool else "thinking"
        return f"_{say(f'progress.{name}')}_"

    def _quoted(self, shown: _Shown) -> str | None:
        return None if shown.route.address.kind is ChatKind.DM else shown.route.reply_to

    # --- around the final message ---

    async def take(self, run_id: str) -> str | None:
        """The preview that the answer turns into; a long run's answer is a new message, so that somebody notices."""
        shown = self._shown.get(run_id)
        if shown is None:
            return None
        shown.over = True
        async with shown.calling:  # an edit that is on its way must not arrive after the answer
            is_quick = self._clock() - shown.began <= REUSED_FOR_SECONDS
            return shown.draft if is_quick else None

    def became(self, run_id: str) -> None:
        """The preview is the answer now."""
        if (shown := self._shown.get(run_id)) is not None:
            shown.draft = None

    async def clear(self, run_id: str) -> None:
        shown = self._shown.pop(run_id, None)
        if shown is None:
            return
        shown.over = True
        shown.cleared.set()
        if shown.draft and isinstance(self._adapter, ShowsDrafts):
            try:
                await self._adapter.erase_draft(shown.route.address, shown.draft)
            except DeliveryError as error:
                log.debug("draft.left", error=str(error))

    async def noted(self, inbound: Inbound, run_id: str) -> None:
        """The message is read and will be taken into account."""
        shown = self._shown.get(run_id)
        if shown is not None:
            self._beside(self._note(shown, inbound))

    async def _note(self, shown: _Shown, inbound: Inbound) -> None:
        async with shown.calling:
            if not shown.over:
                shown.noted.append(inbound)
                await self._react(inbound, READ)

    async def _react(self, inbound: Inbound, emoji: str | None) -> None:
        if isinstance(self._adapter, Reacts):
            try:
                await self._adapter.react(inbound.address, inbound.message_id, emoji)
            except DeliveryError as error:  # not permitted here: then nothing
                log.debug("reaction.refused", error=str(error))
