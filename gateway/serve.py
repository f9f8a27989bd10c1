"""What a daemon adds to the app: the chat platforms and the HTTP side, wired to it."""

import asyncio
import contextlib
import resource
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from adapters.base import Adapter, DeliveryError, ReceivesWebhooks
from adapters.registry import Unavailable, build, is_built, manifest
from adapters.registry import settings as adapter_settings
from adapters.section import PlatformSection
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.interface import ModelError
from gateway.agent.models.transcriber import Transcriber
from gateway.api.http.connection import IdleTimes
from gateway.api.http.connection_limits import ConnectionShares
from gateway.api.http.host_check import HostCheck
from gateway.api.http.keys import FILE, LEAST_LENGTH, CallerKey, Scope, local_key
from gateway.api.http.server import serving as serving_http
from gateway.api.http.server_state import ApiLimits as ApiBounds
from gateway.api.http.server_state import ApiServices, Intervals, Readiness, Receive
from gateway.app import App, CurrentConfig
from gateway.attachments.download import AttachmentDownloader, NotTranscribed
from gateway.chats.access import AccessRules
from gateway.chats.intake import Intake, IntakeLimits
from gateway.chats.reminders import send_reminders
from gateway.chats.runner import PlatformRunner, PlatformState
from gateway.config.changes import diff
from gateway.config.load import Loaded
from gateway.config.model import Config
from gateway.observe.database_watch import DatabaseWatch
from gateway.observe.logging import get_logger
from sessions import people
from sessions.clock import iso, now_ms
from sessions.errors import Invalid
from sessions.keys import DmScope
from sessions.messages import Inbound

log = get_logger(__name__)

MEET_SECONDS = 2.0
_OTHER_FILES = 160
"""Databases, logs, connections to the model and to platforms, and connections that wait to be accepted."""
_NEEDS_RESTART = ("api.", "database.", "log.", "voice.", "session_reset.timezone", "limits.parallel_runs")


class Chats:
    """The platforms that run now, by name. A changed section restarts its platform and no other."""

    def __init__(self, app: App, intake: Intake) -> None:
        self._app = app
        self._intake = intake
        self.running: dict[str, PlatformRunner] = {}
        self.adapters: dict[str, Adapter] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._owner_codes: dict[str, str] = {}

    async def follow(self, config: Config) -> None:
        """Start, stop and restart until what runs is what is configured."""
        wanted = {name: section for name, section in _enabled(config).items() if is_built(name)}
        for name in set(self.running) - set(wanted):
            await self.stop(name)
        for name, section in wanted.items():
            if name not in self.running:
                self._start(name, section, config)
                await self._offer_ownership(name)

    async def _offer_ownership(self, name: str) -> None:
        """A platform that knows nobody yet: whoever presents this code first is its owner."""
        self._owner_codes.pop(name, None)
        access = await self._intake.access(name)
        if not access.rules.allowed_users and not access.paired.users:
            code = await self._app.database.write(people.owner_code, name, now_ms())
            self._owner_codes[name] = code.replace("-", "")

    def _start(self, name: str, section: PlatformSection, config: Config) -> None:
        try:
            adapter = build(name, section, webhook_url=_webhook_url(name, config))
        except (Unavailable, DeliveryError) as error:
            raise Invalid(str(error)) from error
        platform = PlatformRunner(
            adapter,
            database=self._app.database,
            intake=self._intake,
            live=self._app.house.live,
            metrics=self._app.metrics,
            timezone=self._app.house.timezone,
        )
        self.running[name], self.adapters[name] = platform, adapter
        self._tasks[name] = asyncio.create_task(platform.run(), name=name)

    async def stop(self, name: str) -> None:
        self.running.pop(name, None)
        self.adapters.pop(name, None)
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        await asyncio.gather(*(platform.send_off() for platform in self.running.values()), return_exceptions=True)
        for name in list(self._tasks):
            await self.stop(name)

    async def lines(self, names: Collection[str] | None = None) -> list[str]:
        """For the start screen: who we are on each platform, if that is known soon, and how to become its owner if it has none."""
        shown = {name: platform for name, platform in self.running.items() if names is None or name in names}
        meeting = [asyncio.ensure_future(platform.known.wait()) for platform in shown.values()]
        if meeting:
            _, late = await asyncio.wait(meeting, timeout=MEET_SECONDS)
            for task in late:
                task.cancel()
        return [line for name, platform in shown.items() for line in self._lines(name, platform)]

    def _lines(self, name: str, platform: PlatformRunner) -> Iterator[str]:
        yield f"{name:<9} {_in_words(platform)}"
        if code := self._owner_codes.get(name):
            bot = platform.health.who.partition(" ")[0] or "the bot"
            yield f"{'':<9} Send {bot}: /start {code} and you are its owner. The code is valid for a day."

    def states(self) -> dict[str, dict[str, Any]]:
        """For /readyz and the status."""
        found: dict[str, dict[str, Any]] = {}
        for name, platform in self.running.items():
            health = platform.look()
            found[name] = {
                "state": health.state,
                "since": _time(health.since),
                "words": health.words or _in_words(platform),
                "last_success": _time(health.last_success),
            }
        return found


def _enabled(config: Config) -> dict[str, PlatformSection]:
    return {name: section for name, section in config.platforms.by_name().items() if section.enabled}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else iso(round(seconds * 1000))


def _in_words(platform: PlatformRunner) -> str:
    health = platform.health
    match health.state:
        case PlatformState.CONNECTED:
            return f"this is {health.who}" if health.who else "connected"
        case PlatformState.STARTING:
            return "connecting"
        case PlatformState.LOST | PlatformState.UNAUTHORIZED | PlatformState.NOT_SENDING:
            return health.words


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    app: App
    chats: Chats
    url: str
    key_hint: str

    async def reload(self, loaded: Loaded) -> list[str]:
        """Take over a configuration that is good. Nothing that is under way is dropped. Returns the lines of platforms that it started."""
        old = self.app.settings.config
        changes = diff(old, loaded.config)
        await self.app.take_over(loaded)
        for name in list(self.chats.running):
            if _settings_of(name, old) != _settings_of(name, loaded.config):
                await self.chats.stop(name)
        before = set(self.chats.running)
        await self.chats.follow(loaded.config)
        self.app.metrics.config_reloaded(taken=True)
        late = [change.path for change in changes if change.path.startswith(_NEEDS_RESTART)]
        log.info("config.reloaded", changed=[change.path for change in changes], after_restart=late)
        return await self.chats.lines(set(self.chats.running) - before)


@contextlib.asynccontextmanager
async def serving(app: App) -> AsyncGenerator[Serving]:
    """Platforms and HTTP while the block lasts."""
    settings = app.settings

    async def noted(inbound: Inbound, run_id: str) -> None:
        if (platform := chats.running.get(inbound.address.platform)) is not None:
            await platform.presence.noted(inbound, run_id)

    intake = Intake(
        app.database,
        lambda name: rules_of(settings.config, name),
        bounds=lambda: _bounds(settings.config),
        timezone=app.house.timezone,
        default_model=lambda: app.chosen.name,
        noted=noted,
        accepted=lambda platform: app.metrics.message(platform, "in"),
    )
    chats = Chats(app, intake)
    watch = DatabaseWatch(app.database)
    transcriber = _transcriber(settings)
    app.files.settle = AttachmentDownloader(
        chats.adapters, limit=lambda: settings.config.limits.attachment_bytes, transcriber=lambda: transcriber
    ).settle
    beside = [
        asyncio.create_task(_look_elsewhere(intake, chats)),
        asyncio.create_task(app.metrics.watch_loop()),
        asyncio.create_task(send_reminders(app.database, app.house.timezone)),
        asyncio.create_task(watch.run()),
    ]
    try:
        async with _http(app, chats, watch) as (url, hint):  # first: where its port is taken, nothing else begins
            await chats.follow(settings.config)
            yield Serving(app=app, chats=chats, url=url, key_hint=hint)
    finally:
        for task in beside:
            task.cancel()
        await chats.close()
        intake.close()
        if transcriber is not None:
            await transcriber.aclose()


@contextlib.asynccontextmanager
async def _http(app: App, chats: Chats, watch: DatabaseWatch) -> AsyncGenerator[tuple[str, str]]:
    section = app.settings.config.api
    own = None if section.keys else await asyncio.to_thread(local_key, app.home)
    if own is not None and len(own.secret) < LEAST_LENGTH:
        how = f"delete {app.home / FILE} and start again: a new key is made"
        log.warning("api.short_key", characters=len(own.secret), at_least=LEAST_LENGTH, how_to_mend=how)
    api = ApiServices(
        home=app.home,
        house=app.house,
        keys=lambda: _keys(app.settings.config, own),
        models=lambda: _models(app),
        tools=lambda: app.settings.config.agents["main"].tools,
        readiness=lambda: _readiness(app.settings.config, chats, watch),
        webhooks=Webhooks(chats),
        metrics=app.metrics,
        places=app.places,
        doors=HostCheck(public_url=section.public_url, allowed_hosts=tuple(section.allowed_hosts)),
        bounds=_api_bounds(app.settings.config),
        pauses=_pauses(app.settings.config),
        version=version("hermes-gateway"),
    )
    async with serving_http(api, section.host, section.port) as address:
        yield address.url, f"key in {app.home}/api_key" if own is not None else _counted(len(section.keys))


def _counted(keys: int) -> str:
    return f"{keys} configured key{'' if keys == 1 else 's'}"


def _keys(config: Config, own: CallerKey | None) -> Sequence[CallerKey]:
    if own is not None and not config.api.keys:
        return (own,)
    return [
        CallerKey(
            name=key.name,
            secret=key.key.get_secret_value(),
            scopes=frozenset(Scope(scope) for scope in key.scopes),
            deployments=frozenset(key.deployments),
        )
        for key in config.api.keys
    ]


def _models(app: App) -> Sequence[str]:
    config = app.settings.config.model
    return tuple(dict.fromkeys(name for name in (app.chosen.name, config.fast, *config.fallbacks) if name))


_WELL = frozenset({PlatformState.CONNECTED, "available"})


def _readiness(config: Config, chats: Chats, watch: DatabaseWatch) -> Readiness:
    """A platform counts as up once it was connected; a later outage, also of the database, is told, and makes nobody restart us."""
    enabled = [name for name in _enabled(config) if is_built(name)]
    up = {name for name, platform in chats.running.items() if platform.health.was_up}
    waiting = [name for name in enabled if name not in up]
    parts = {"database": watch.part(), **chats.states()}
    failing = [name for name, part in parts.items() if name not in waiting and part["state"] not in _WELL]
    return Readiness(waiting=waiting, failing=failing, parts=parts)


def _api_bounds(config: Config) -> ApiBounds:
    limits = config.limits
    return ApiBounds(
        message_bytes=limits.message_bytes,
        attachment_bytes=limits.attachment_bytes,
        queue_per_session=limits.queue_per_chat,
        connections=ConnectionShares(total=_most_connections(config), per_address=config.api.connections_per_address),
    )


def _pauses(config: Config) -> Intervals:
    seconds = config.api.idle_seconds
    return Intervals(idle=IdleTimes(with_key=seconds, without_key=min(seconds, IdleTimes().without_key)))


def _most_connections(config: Config) -> int:
    """As configured, or fewer where the process may not have as many files open; some are for everything else."""
    may = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted = config.api.connections
    if may == resource.RLIM_INFINITY or wanted + _OTHER_FILES <= may:
        return wanted
    found = max(16, may - _OTHER_FILES)
    log.warning("api.few_files", connections=found, wanted=wanted, open_files=may)
    return found


class Webhooks(Mapping[str, Receive]):
    """The platforms that are called instead of calling, as they run now."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    def __getitem__(self, name: str) -> Receive:
        adapter = self._chats.adapters[name]
        if not isinstance(adapter, ReceivesWebhooks):
            raise KeyError(name)
        receive = adapter.receive
        deliver = self._chats.running[name].deliver
        return lambda headers, body: receive(headers, body, deliver)

    def __iter__(self) -> Iterator[str]:
        return (name for name, adapter in self._chats.adapters.items() if isinstance(adapter, ReceivesWebhooks))

    def __len__(self) -> int:
        return len(list(iter(self)))


async def _look_elsewhere(intake: Intake, chats: Chats) -> None:
    """Other processes pair people and queue messages in the same database."""
    while True:
        await asyncio.sleep(1.0)
        intake.forget_people()
        for platform in chats.running.values():
            platform.delivery.wake()


def _bounds(config: Config) -> IntakeLimits:
    return IntakeLimits(message_bytes=config.limits.message_bytes, queue_per_chat=config.limits.queue_per_chat)


def rules_of(config: Config, name: str) -> AccessRules:
    section = config.platforms.by_name()[name]
    one_spelling = manifest(name).normal_user_id
    allowed = [one_spelling(user) for user in section.allowed_users]
    named = [user for user in allowed if user != "*"]
    return AccessRules(
        allowed_users=frozenset(allowed),
        first_allowed=named[0] if named else None,
        allowed_chats=frozenset(section.allowed_chats),
        require_mention=section.require_mention,
        dm_scope=DmScope(section.dm_scope),
        owner=one_spelling(section.owner),
        group_sessions_per_user=section.group_sessions_per_user,
        thread_sessions=section.thread_sessions,
        pair_strangers=section.unknown_users == "pair",
    )


def _settings_of(name: str, config: Config) -> Mapping[str, Any] | None:
    """What its adapter was made of; other changes of its section count without a new one."""
    section = config.platforms.by_name().get(name)
    return None if section is None else adapter_settings(name, section, webhook_url=_webhook_url(name, config))


def _webhook_url(name: str, config: Config) -> str:
    return f"{config.api.public_url.rstrip('/')}/webhooks/{name}" if config.api.public_url else ""


class _VoiceMessages(Transcriber):
    """The transcriber as attachments want it."""

    async def transcribe(self, audio: bytes, name: str, *, language: str | None = None) -> str:
        try:
            return await super().transcribe(audio, name, language=language)
        except ModelError as error:
            raise NotTranscribed(str(error)) from error


def _transcriber(settings: CurrentConfig) -> Transcriber | None:
    voice = settings.config.voice
    if not voice.base_url:
        return None
    known = ModelSettings(base_url=voice.base_url, name=voice.model, api_key=voice.api_key.get_secret_value())
    return _VoiceMessages(replace(known, transcription=voice.model))
