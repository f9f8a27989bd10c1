"""Starts, stops and restarts the platforms as the configuration wants them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from adapters.base import Adapter, DeliveryError, ReceivesWebhooks, WebhookReply
from adapters.registry import Unavailable, build, manifest, settings
from adapters.section import PlatformSection
from gateway.chats.intake import Intake
from gateway.chats.runner import PlatformRunner, PlatformState
from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import people
from sessions.clock import iso
from sessions.errors import Invalid
from sessions.leases import of_platform

log = get_logger(__name__)

MEET_SECONDS = 2.0
POLL_SECONDS = 1.0

Receive = Callable[[Mapping[str, str], bytes], Awaitable[WebhookReply | None]]
Handshake = Callable[[Mapping[str, str]], WebhookReply | None]


class PlatformSupervisor:
    """`follow` makes the wanted platforms run. A changed section restarts its platform and no other."""

    def __init__(self, app: App, intake: Intake) -> None:
        self.app = app
        self._intake = intake
        self.running: dict[str, PlatformRunner] = {}
        self.adapters: dict[str, Adapter] = {}
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._owner_codes: dict[str, str] = {}
        self._held_back: Mapping[str, str] = {}
        self._missing: dict[str, str] = {}

    def keep_away(self, names: Collection[str], why: str) -> None:
        """Does not start these platforms until called without them. `why` is shown to everybody who asks for their state."""
        self._held_back = dict.fromkeys(names, why)

    async def follow(self) -> set[str]:
        """Starts, stops and restarts platforms until exactly those of the configuration run. Returns the names of those that it started, or
        cannot start for want of a library. Raises Invalid."""
        in_use, public_url = self.app.config.platforms.in_use(), self.app.config.api.public_url
        sections = {name: section for name, section in in_use.items() if name not in self._held_back}
        urls = {name: f"{public_url.rstrip('/')}/webhooks/{name}" if public_url else "" for name in sections}
        wanted = {name: settings(name, section, webhook_url=urls[name]) for name, section in sections.items()}
        # Compared by what the adapter is made of: another key of the section, such as allowed_users, needs no new connection.
        for name in [name for name in self.running if wanted.get(name) != self._settings[name]]:
            await self.stop(name)
        started = set(wanted) - set(self.running)
        await self._intake.settle_owners(wanted)
        self._missing.clear()
        for name in sorted(started):
            try:
                self._start(name, sections[name], urls[name])
            except Unavailable as error:  # the others run all the same
                log.error("platform.not_installed", platform=name, error=str(error))
                self._missing[name] = str(error)
                continue
            self._settings[name] = wanted[name]
            if self.app.holders.is_held(of_platform(name)):
                await self._offer_ownership(name)
        return started

    def _start(self, name: str, section: PlatformSection, webhook_url: str) -> None:
        try:
            self._build(name, section, webhook_url)
        except DeliveryError as error:
            raise Invalid(str(error)) from error
        self._tasks[name] = asyncio.create_task(self._keep_running(name, section, webhook_url), name=name)

    def _build(self, name: str, section: PlatformSection, webhook_url: str) -> PlatformRunner:
        adapter = build(name, section, webhook_url=webhook_url)
        platform = PlatformRunner(adapter, self.app, self._intake, begins=partial(self._offer_ownership, name))
        self.running[name], self.adapters[name] = platform, adapter
        return platform

    async def _keep_running(self, name: str, section: PlatformSection, webhook_url: str) -> None:
        """Runs the platform, until cancelled. One that another process has taken over is built anew, and waits for its turn."""
        platform = self.running[name]
        while True:
            await platform.run()
            platform = self._build(name, section, webhook_url)

    async def _offer_ownership(self, name: str) -> None:
        """Makes a code for a platform on which nobody has access yet: whoever presents it first becomes the owner."""
        self._owner_codes.pop(name, None)
        access = await self._intake.access(name)
        if not access.rules.allowed_users and not access.paired.users:
            code = await self.app.database.write(people.owner_code, name, self.app.clock())
            self._owner_codes[name] = code.replace("-", "")

    async def stop(self, name: str) -> None:
        self.running.pop(name, None)
        self.adapters.pop(name, None)
        task = self._tasks.pop(name)
        task.cancel()
        # Until it has closed its connections: a new one may use the same token.
        await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Sends what is ready, then stops every platform."""
        await asyncio.gather(*(platform.send_off() for platform in self.running.values()), return_exceptions=True)
        for name in list(self._tasks):
            await self.stop(name)

    async def poll_other_processes(self) -> None:
        """Reads paired people and due messages again every second, because other processes write them; until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self._intake.forget_people()
            for platform in self.running.values():
                platform.delivery.wake()

    # --- for people and programs that ask ---

    def webhook(self, name: str) -> Receive | None:
        """Returns what takes the deliveries of this platform; None where it is not running, or does not call us."""
        platform = self.running.get(name)
        if platform is None or not isinstance(platform.adapter, ReceivesWebhooks):
            return None
        receive, deliver = platform.adapter.receive, platform.deliver
        return lambda headers, body: receive(headers, body, deliver)

    def handshake(self, name: str) -> Handshake | None:
        """Returns what answers this platform before it calls; None where it asks nothing."""
        adapter = self.adapters.get(name)
        return adapter.handshake if isinstance(adapter, ReceivesWebhooks) and adapter.asks_before else None

    async def lines(self, names: Collection[str] | None = None) -> list[str]:
        """Returns the lines of the start screen: who the bot is on each platform, if that is known within two seconds, and the owner's
        code where nobody has access.
        """
        shown = {name: platform for name, platform in self.running.items() if names is None or name in names}
        meeting = [asyncio.ensure_future(platform.known.wait()) for platform in shown.values()]
        if meeting:
            _, late = await asyncio.wait(meeting, timeout=MEET_SECONDS)
            for task in late:
                task.cancel()
        lines: list[str] = []
        for name, platform in shown.items():
            lines.append(f"{name:<9} {_describe(platform)}")
            if code := await self._offered_code(name, platform):
                bot, greeting = platform.health.who.partition(" ")[0] or "the bot", f"{manifest(name).start} {code}"
                lines.append(f"{'':<9} Send {bot}: {greeting} and you are its owner. The code is valid for a day.")
        missing = [f"{name:<9} {why}" for name, why in self._missing.items() if names is None or name in names]
        return [*lines, *missing]

    async def _offered_code(self, name: str, platform: PlatformRunner) -> str | None:
        """Returns the owner's code as long as it can be sent to the bot, and nobody has access."""
        access = await self._intake.access(name)
        if access.rules.allowed_users or access.paired.users:
            self._owner_codes.pop(name, None)
        return self._owner_codes.get(name) if platform.health.state is not PlatformState.UNAUTHORIZED else None

    def silent_since(self) -> dict[str, int]:
        """Returns each platform that is not connected, with the time since when in epoch milliseconds."""
        healths = {name: platform.current_health() for name, platform in self.running.items()}
        return {
            name: round(health.since * 1000)
            for name, health in healths.items()
            if health.state not in {PlatformState.CONNECTED, PlatformState.STANDBY}
        }

    def states(self) -> dict[str, dict[str, Any]]:
        """Returns the state of every platform, for /readyz and the status."""
        found: dict[str, dict[str, Any]] = {
            name: {"state": "held", "since": None, "words": why, "last_success": None}
            for name, why in self._held_back.items()
        }
        for name, why in self._missing.items():
            found[name] = {"state": "not_installed", "since": None, "words": why, "last_success": None}
        for name, platform in self.running.items():
            health = platform.current_health()
            found[name] = {
                "state": health.state,
                "since": _time(health.since),
                "words": health.message or _describe(platform),
                "last_success": _time(health.last_success),
            }
        return found


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else iso(round(seconds * 1000))


def _describe(platform: PlatformRunner) -> str:
    health = platform.health
    match health.state:
        case PlatformState.CONNECTED:
            return f"this is {health.who}" if health.who else "connected"
        case PlatformState.STARTING:
            return "connecting"
        case PlatformState.STANDBY:
            return "another process is connected"
        case PlatformState.LOST | PlatformState.UNAUTHORIZED | PlatformState.NOT_SENDING:
            return health.message
