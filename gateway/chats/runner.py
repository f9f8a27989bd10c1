"""Runs one platform: its adapter under supervision, its delivery, its presence, and its state."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from sqlalchemy import Connection

from adapters.base import (
    Adapter,
    CatchesUp,
    DeliveryError,
    HomePage,
    ReceivesWebhooks,
    ShowsHome,
    ShowsStatus,
    TryLater,
    Unauthorized,
)
from gateway.chats.access import ANYBODY, ChatAccess
from gateway.chats.delivery import Delivery
from gateway.chats.intake import Intake, IntakeOutcome
from gateway.chats.presence import Presence
from gateway.chats.sending import RateLimiter
from gateway.commands import MENU
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.runs.replies import approval_card, question_card, question_text
from gateway.texts import format_short_time, say
from sessions import asks, meta, outbox, runs, store
from sessions.clock import now_ms
from sessions.errors import StateError
from sessions.keys import Address, ChatKind, Sender
from sessions.leases import of_platform
from sessions.messages import Button, Inbound, InboundKind
from sessions.records import AskKind, RunStatus

log = get_logger(__name__)

SEND_OFF_SECONDS = 3
_BACKOFF = (1, 2, 5, 10, 30, 60)
_UNAUTHORIZED = (30, 60, 120, 300)
"""A token can be refused for a moment, too. A new one in the configuration counts at once."""
_STEADY_SECONDS = 60
_COMMANDS_AGAIN_SECONDS = 3_600
CHECK_SECONDS = 5
STANDBY_SECONDS = 0.5


_POSITION = "seen:{}"
"""The key of a platform's position among the values about the database: epoch milliseconds."""
NOTE_SECONDS = 1.0
SKEW_MS = 10_000
"""So much the clocks of the platform and of this machine may differ."""
REMEMBERED_MS = 30 * 24 * 3_600_000
"""Chats in which nothing was sent for so long are not looked at."""
SHOWN_SESSIONS = 5


class PlatformState(StrEnum):
    STARTING = "starting"
    STANDBY = "standby"  # another process of the team is connected; webhooks are taken here, too
    CONNECTED = "connected"
    NOT_SENDING = "not_sending"  # messages come in, and none can be sent
    LOST = "lost"
    UNAUTHORIZED = "unauthorized"


@dataclass(slots=True)
class PlatformHealth:
    """The state of a platform. `message` tells the operator what is wrong and what to do."""

    state: PlatformState = PlatformState.STARTING
    message: str = ""
    since: float = field(default_factory=time.time)
    who: str = ""
    last_success: float | None = None
    was_up: bool = False

    def become(self, state: PlatformState, message: str = "") -> bool:
        changed = self.state is not state
        if changed:
            self.since = time.time()
        self.state, self.message = state, message
        self.was_up = self.was_up or state is PlatformState.CONNECTED
        return changed


class PlatformRunner:
    """One adapter with its delivery and presence. `run` ends when it is cancelled or its lease is lost, and by no error of the platform."""

    def __init__(
        self,
        adapter: Adapter,
        app: App,
        intake: Intake,
        *,
        begins: Callable[[], Awaitable[None]] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`begins` is called when it has become this process that is connected."""
        self._begins = begins
        self.name = str(adapter.platform)
        self.adapter = adapter
        self.app = app
        self.health = PlatformHealth()
        self._intake = intake
        self._sleep = sleep
        self._up = asyncio.Event()
        self.known = asyncio.Event()
        """Set once the platform has answered, or has failed to."""
        self._beside: set[asyncio.Task[None]] = set()
        self._is_closed = False
        pacer = RateLimiter(adapter.pace)
        self.presence = Presence(app, adapter, pacer)
        self.delivery = Delivery(app, adapter, intake, pacer, self.presence)
        adapter.on_success(self._connected)

    async def run(self) -> None:
        """Runs the platform while this process holds its lease. Returns when that is lost."""
        lease, waiting = of_platform(self.name), None
        if not self.app.holders.is_held(lease):
            self.presence.shows = False
            waiting = asyncio.create_task(self._supervise(self._stand_by, "standby"))
        try:
            await self.app.holders.hold(lease, partial(self._run_connected, waiting))
        finally:
            if waiting is not None:
                waiting.cancel()
            if not self._is_closed:
                await self._close()

    async def _stand_by(self) -> None:
        """While another process is connected: makes the adapter know who it is, where deliveries may come to this process by HTTP."""
        await asyncio.sleep(STANDBY_SECONDS)  # it may be this process's turn at once
        if self.health.become(PlatformState.STANDBY):
            self.health.was_up = True
        self.known.set()
        if isinstance(self.adapter, ReceivesWebhooks):
            self.health.who = await self.adapter.check()
        await asyncio.Event().wait()

    async def _close(self) -> None:
        self._is_closed = True
        self.presence.close()
        for task in self._beside:
            task.cancel()
        await self.adapter.close()

    async def _run_connected(self, waiting: "asyncio.Task[None] | None") -> None:
        if waiting is not None:
            waiting.cancel()
            self.presence.shows = True
            self.health.become(PlatformState.STARTING)
            if self._begins is not None:
                await self._begins()
        try:
            # Before anything is delivered: an answer may still take the place of a preview that an earlier process has shown.
            self.presence.restore(await self.app.database.read(runs.still_shown), self.app.clock())
            if isinstance(self.adapter, ShowsStatus):
                since = self.app.clock() - round(self.adapter.status_lasts * 1000)
                self.presence.clear_statuses(await self.app.database.read(runs.ended_since, self.name, since))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._supervise(self._receive, "receiving"))
                group.create_task(self._supervise(self.delivery.run, "sending"))
                group.create_task(self._supervise(self._offer_commands, "menu"))
                if isinstance(self.adapter, CatchesUp):
                    group.create_task(self._supervise(partial(self._store_positions, self.adapter), "position"))
        finally:
            await self._close()

    async def _supervise(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        failures, kind = 0, _BACKOFF
        while True:
            began, before = time.monotonic(), kind
            kind, asked = await self._run_once(work, what)
            # After a steady minute the next failure is a new one, and pauses begin short again.
            goes_on = kind is before and time.monotonic() - began < _STEADY_SECONDS
            failures = failures + 1 if goes_on else 1
            await self._sleep(max(asked, kind[min(failures, len(kind)) - 1]))

    async def _run_once(self, work: Callable[[], Awaitable[None]], what: str) -> tuple[tuple[int, ...], float]:
        """Runs `work` once. Returns which pauses to use before the next try, and the shortest pause."""
        try:
            await work()
        except Unauthorized:
            return _UNAUTHORIZED, 0
        except TryLater as error:
            log.debug("platform.interrupted", platform=self.name, what=what, error=str(error))
            return _BACKOFF, error.after or 0
        except (DeliveryError, StateError) as error:
            log.debug("platform.interrupted", platform=self.name, what=what, error=str(error))
        except (Exception, SystemExit):  # one platform must never take the others down
            log.exception("platform.failed", platform=self.name, what=what)
        return _BACKOFF, 0

    async def send_off(self) -> None:
        """Sends what is ready before the process ends, for some seconds at most."""
        if self.health.state is PlatformState.CONNECTED:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SEND_OFF_SECONDS):
                    await self.delivery.finish()

    def _lost(self, state: PlatformState, message: str) -> None:
        if self.health.become(state, message):
            event = "platform.unauthorized" if state is PlatformState.UNAUTHORIZED else "platform.lost"
            log.error(event, platform=self.name, error=message)
        self.known.set()

    async def _receive(self) -> None:
        try:
            self.health.who = await self.adapter.check()
            if not self.adapter.reports_success:  # there will be no better sign than this
                self._connected()
            if isinstance(self.adapter, CatchesUp):
                access = await self._intake.access(self.name)
                since, chats = await self.app.database.write(_last_position, self.name)
                users = sorted((access.rules.allowed_users | access.paired.users) - {ANYBODY})
                self.adapter.catch_up(since, chats, [Sender(id=user) for user in users])
            await self.adapter.run(self.deliver)
        except Unauthorized as error:
            self._lost(PlatformState.UNAUTHORIZED, str(error))
            raise
        except (DeliveryError, StateError) as error:
            self._lost(PlatformState.LOST, str(error))
            raise
        except Exception as error:  # its words may hold anything, and the state is shown to everybody
            self._lost(PlatformState.LOST, f"{type(error).__name__}, see the log")
            raise

    async def _store_positions(self, adapter: CatchesUp) -> None:
        """Stores, each second and at the end, how far everything was delivered, so that the next start fetches what was said since."""
        stored = 0
        try:
            while True:
                await asyncio.sleep(NOTE_SECONDS)
                stored = await self._store_position(adapter, stored)
        finally:  # cancelled at the end of the process: what came since the last second is noted, too
            await self._store_position(adapter, stored)

    async def _store_position(self, adapter: CatchesUp, stored: int) -> int:
        seen = adapter.seen_until()
        if seen is None or seen <= stored:
            return stored
        await self.app.database.write(meta.put, _POSITION.format(self.name), str(seen))
        return seen

    def _connected(self) -> None:
        if self.health.become(PlatformState.CONNECTED):
            log.info("platform.connected", platform=self.name, who=self.health.who)
        self._up.set()
        self.known.set()

    async def deliver(self, inbound: Inbound) -> None:
        """Takes one event in; called by the adapter, which acknowledges once this has returned. Raises StateError: then it must not. An
        event that raises any other error is left out: the platform would send it again and again, before all others.
        """
        told = ""
        try:
            result = await self._intake.deliver(inbound)
            told = result.told
            if result.outcome in {IntakeOutcome.TAKEN, IntakeOutcome.JOINED}:
                self.app.metrics.message(self.name, "in")
            if result.run_id is not None:
                self.presence.mark_read(inbound, result.run_id)
        except StateError:
            raise
        except Exception:  # one event that cannot be taken must not come back for ever and hold up the others
            log.exception("message.failed", platform=self.name, dedup_key=inbound.dedup_key)
        # Beside, because the adapter waits for this function, and these are calls to the platform.
        if inbound.kind is InboundKind.TAP:
            self._run_beside(self._answer_tap(inbound.tap_id, told))
        if inbound.kind is InboundKind.HOME and isinstance(self.adapter, ShowsHome):
            self._run_beside(self._show_home(self.adapter, inbound.sender))

    def _run_beside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _answer_tap(self, tap_id: str, told: str) -> None:
        """Acknowledges a tap, so that the button stops turning. Best effort: the decision is stored already, and the card says it."""
        if tap_id:
            try:
                await self.adapter.answer_tap(tap_id, told)
            except DeliveryError as error:
                log.debug("tap.not_acknowledged", error=str(error))

    async def _show_home(self, adapter: ShowsHome, user: Sender) -> None:
        access = await self._intake.access(self.name)
        page = await self.app.database.read(home_page, self.name, user, access, self.app.timezone, self.app.clock())
        try:
            await adapter.show_home(user, page)
        except DeliveryError as error:
            log.warning("home.not_shown", platform=self.name, error=str(error))

    async def _offer_commands(self) -> None:
        """Keeps the platform's own command menu up to date, for people with access."""
        menu = [(command.name, command.about) for command in MENU]
        offered, again = frozenset[str](), 0.0
        while True:
            await self._up.wait()
            access = await self._intake.access(self.name)
            users = access.rules.allowed_users | access.paired.users
            # Again every hour: somebody may have deleted the menu, and people without a chat yet could not get it before.
            if users != offered or time.monotonic() > again:
                await self.adapter.offer_commands(menu, [Sender(id=user) for user in sorted(users)])
                offered, again = users, time.monotonic() + _COMMANDS_AGAIN_SECONDS
            await self._sleep(CHECK_SECONDS)

    def current_health(self) -> PlatformHealth:
        """Returns the state now, of receiving and, where that works, of sending; updates the metrics."""
        self.health.last_success = self.adapter.last_success()
        if self.health.last_success is not None:
            self.app.metrics.platform_seen(self.name, self.health.last_success)
        found = self.health
        if found.state is PlatformState.CONNECTED and self.delivery.failure is not None:
            message = f"Messages come in, and none can be sent: {self.delivery.failure}"
            found = replace(found, state=PlatformState.NOT_SENDING, message=message, since=self.delivery.failing_since)
        self.app.metrics.platform_up(self.name, up=found.state is PlatformState.CONNECTED)
        return found


def _last_position(conn: Connection, platform: str) -> tuple[int, list[Address]]:
    """Returns the stored position; at the very first start the present one, so that nothing older is answered and nothing newer missed."""
    now = now_ms()  # the real time, as it is compared with the platform's
    stored = meta.get(conn, _POSITION.format(platform))
    if stored is None:
        stored = str(now - SKEW_MS)
        meta.put(conn, _POSITION.format(platform), stored)
    return int(stored), outbox.chats_since(conn, platform, now - REMEMBERED_MS)


def home_page(conn: Connection, platform: str, user: Sender, access: ChatAccess, timezone: str, now: int) -> HomePage:
    """Returns the bot's own page for this person: what the bot is, who may use it, their conversations, the questions that wait for them.
    For somebody without access it says no more than that.
    """
    if not access.is_allowed(user):
        return HomePage(about=say("home.about"), access=say("home.no_access"), may_talk=False)
    users = access.rules.allowed_users | access.paired.users
    who = say("home.allowed_one") if len(users) == 1 else say("home.allowed_other", count=len(users))
    address = Address(platform=platform, kind=ChatKind.DM, chat_id=user.id)
    key = str(access.key(address, user))
    found = store.recent(conn, key=key, limit=SHOWN_SESSIONS + 1)
    earlier = [session for session in found if session.ended_at is not None]
    sessions = tuple(
        (store.label(conn, session), format_short_time(session.started_at, now, timezone), f"/resume {session.id}")
        for session in earlier[:SHOWN_SESSIONS]
    )
    questions: tuple[tuple[str, tuple[Button, ...]], ...] = ()
    run = runs.active(conn, key)
    ask = asks.open_of(conn, run.id) if run is not None and run.status is RunStatus.WAITING else None
    if ask is not None:
        is_approval = ask.kind is AskKind.APPROVAL
        card = approval_card(ask.question) if is_approval else question_card(ask.question, ask.options)
        questions = ((question_text(ask), card.for_ask(ask.id).buttons),)
    return HomePage(
        about=say("home.about"),
        access=say("home.anybody") if ANYBODY in users else who,
        sessions=sessions,
        questions=questions,
    )
