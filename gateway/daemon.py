"""What a daemon adds to the app: the chat platforms and the HTTP API, wired to it."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.agent.models.interface import ModelError
from gateway.agent.models.speech import Speaker, Transcriber, voice_settings
from gateway.api.http.callers import FILE, caller_keys, local_key
from gateway.api.http.server import serving as serving_http
from gateway.api.http.server_state import ServerState
from gateway.app import take_over
from gateway.attachments.download import AttachmentDownloader, NotTranscribed
from gateway.chats.approvals import Reminders
from gateway.chats.crash_guard import CrashGuard
from gateway.chats.intake import Intake
from gateway.chats.owner_alerts import OwnerAlerts, alert_text
from gateway.chats.supervisor import PlatformSupervisor
from gateway.config.model import Config
from gateway.config.reading import Change, Loaded, diff
from gateway.config.sections import KEY_LENGTH
from gateway.context import App
from gateway.dashboard.server import Dashboard
from gateway.home import shown
from gateway.observe.health import Heartbeat
from gateway.observe.heap import resident_bytes
from gateway.observe.logging import get_logger
from gateway.scheduler.jobs import Jobs
from gateway.scheduler.reset_explanation import due_now
from gateway.scheduler.resets import Resets
from gateway.scheduler.ticks import ticking
from gateway.texts import format_short_time, say
from sessions import audit

log = get_logger(__name__)

LEAST_FREE_BYTES = 100 * 2**20
_NEEDS_RESTART = ("api.", "database.", "files.", "log.", "voice.", "session_reset.timezone", "limits.parallel_runs")


Role = Literal["all", "worker", "ingress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    app: App
    chats: PlatformSupervisor
    resets: Resets
    jobs: Jobs
    url: str
    key_hint: str

    async def reload(self, loaded: Loaded) -> list[str]:
        """Takes over a configuration that is good. Nothing that is under way is dropped. Returns the lines of the platforms that it started."""
        changes = diff(self.app.config, loaded.config)
        # Counted before the change, while the old rules can still be compared.
        meaning = await self._resets_more(changes, loaded)
        await take_over(self.app, loaded)
        self.app.keys = caller_keys(loaded.config, self.app.local_key)
        if any(change.path.startswith("model.") for change in changes):
            self.app.metrics.recent_calls.clear()
        started = await self.chats.follow()
        self.app.metrics.config_reloaded(taken=True)
        was_refused = self.app.reloads.last_refused is not None
        self.app.reloads.taken()
        await self.record_configuration()
        late = [change.path for change in changes if change.path.startswith(_NEEDS_RESTART)]
        log.info("config.reloaded", changed=[change.path for change in changes], meaning=meaning, after_restart=late)
        again = ["The configuration is good again."] if was_refused else []
        return [*again, *meaning, *await self.chats.lines(started)]

    async def record_configuration(self) -> None:
        """Records which keys were changed since this was called last, also by another process or before the last end; never to what."""
        app = self.app
        # In a team each machine has these for itself.
        ignored = () if app.database.bus is None else ("api.host", "api.port", "log.")
        marks = app.loaded.marks()
        await app.database.write(audit.record_configuration, marks, app.clock(), ignored=ignored)

    async def _resets_more(self, changes: Sequence[Change], loaded: Loaded) -> list[str]:
        """Returns what a change of the reset policies means for open conversations, in one line; none where they did not change."""
        about = [change for change in changes if change.path.startswith("session_reset.")]
        if not about:
            return []
        app, new = self.app, loaded.config.session_reset.rules()
        before = (await app.database.read(due_now, app.resets.rules, app.clock())).total()
        count = max(0, (await app.database.read(due_now, new, app.clock())).total() - before)
        become = f"{count} session becomes due now" if count == 1 else f"{count} sessions become due now"
        lists = "session_reset.overrides"
        what = [f"{each.path} {each.old} → {each.new}" for each in about if not each.path.startswith(lists)]
        if len(what) < len(about):  # an override is many keys, which say little one by one
            what.append(f"{lists} changed")
        return [f"{', '.join(what)}: {become}"]

    def refused(self, problems: Sequence[str]) -> None:
        """Notes that a changed configuration could not be taken over; the last good one stays in force."""
        self.app.metrics.config_reloaded(taken=False)
        self.app.reloads.refused(problems)


@contextlib.asynccontextmanager
async def serving(
    app: App, guard: CrashGuard | None = None, *, role: Role = "all", shares_port: bool = False
) -> AsyncGenerator[Serving]:
    """Runs platforms and HTTP while the block lasts. `guard` may hold the platforms back for some minutes. `role`: a `worker` opens no port and is
    connected with no platform. `shares_port`: with other processes of this machine.
    """
    async with contextlib.AsyncExitStack() as stack:
        # The stack unwinds in reverse: what is ready is sent first, and platforms are closed before the intake that they deliver to.
        intake = Intake(app)
        stack.callback(intake.close)
        app.chats = chats = PlatformSupervisor(app, intake)
        await stack.enter_async_context(app.holders.taking(platforms=role != "worker"))
        transcriber = await stack.enter_async_context(_transcriber(app.config))
        app.attachments = AttachmentDownloader(
            chats.adapters, limit=lambda: app.config.limits.attachment_bytes, transcriber=lambda: transcriber
        )
        if app.config.voice.speak:
            app.speaker = await stack.enter_async_context(contextlib.aclosing(Speaker(app.config.voice)))
        stack.push_async_callback(chats.close)
        for work in (chats.poll_other_processes(), app.metrics.watch_loop(), app.watch.run()):
            _run_until_closed(stack, work)
        url, hint = "", ""
        if role != "worker":
            # Where its port is taken, nothing begins.
            url, hint = await stack.enter_async_context(_http(app, shares_port=shares_port))
        # After HTTP: platforms that call us find an open port, and a second daemon has failed before it polls for the same bot.
        await _start_platforms(app, chats, guard, stack)
        resets, jobs, alerts = Resets(app), Jobs(app), OwnerAlerts(app)
        await stack.enter_async_context(ticking(app, resets, jobs, alerts, Reminders(app), app.processes))

        def report() -> dict[str, Any]:
            return {
                "home": str(app.home),
                "url": url,
                "model": str(app.chosen),
                "memory_bytes": resident_bytes(),
                "parts": app.parts(),
                "config": {"digest": app.loaded.digest(), **app.reloads.part()},
                "mcp_servers": app.mcp.part(),
                "alerts": [*_troubles(app), *(alert_text(alert) for alert in alerts.current)],
            }

        heartbeat = Heartbeat(database=app.database, describe=report, owner=app.owner, role=role, clock=app.clock)
        await stack.enter_async_context(heartbeat.reporting())
        served = Serving(app=app, chats=chats, resets=resets, jobs=jobs, url=url, key_hint=hint)
        await served.record_configuration()
        yield served


def _troubles(app: App) -> list[str]:
    """Returns what is wrong at this moment, for the status; `OwnerAlerts` tells what lasts."""
    found: list[str] = []
    if (away := app.outages.current()) is not None:
        since = format_short_time(away[0], app.clock(), app.timezone)
        found.append(say("alert.model_away", since=since, why=away[1].rstrip(".")))
    if (free := shutil.disk_usage(app.home).free) < LEAST_FREE_BYTES:
        found.append(say("alert.disk_low", free=f"{free // 2**20} MB"))
    return found


def _run_until_closed(stack: contextlib.AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    stack.callback(asyncio.create_task(work).cancel)


async def _start_platforms(
    app: App, chats: PlatformSupervisor, guard: CrashGuard | None, stack: contextlib.AsyncExitStack
) -> None:
    if guard is None:
        await chats.follow()
        return

    async def follow_later() -> None:
        await guard.wait()
        chats.keep_away((), "")
        await chats.follow()
        await guard.watch()

    stack.callback(guard.clear)
    stack.callback(app.database.listen(guard.on_commit, only_own=True))
    # Held back as a task: HTTP, the terminal and jobs work meanwhile, and the operator can see why.
    if guard.held_until is not None:
        chats.keep_away(list(app.config.platforms.in_use()), guard.why)
        _run_until_closed(stack, follow_later())
    else:
        await chats.follow()
        _run_until_closed(stack, guard.watch())


@contextlib.asynccontextmanager
async def _http(app: App, *, shares_port: bool) -> AsyncGenerator[tuple[str, str]]:
    """Serves the API while the block lasts. Yields its address, and where its key is."""
    section = app.config.api
    own = None if section.keys else await asyncio.to_thread(local_key, app.home)
    if own is not None and len(own.secret) < KEY_LENGTH:
        how = f"delete {app.home / FILE} and start again: a new key is made"
        log.warning("api.short_key", characters=len(own.secret), at_least=KEY_LENGTH, how_to_mend=how)
    app.local_key, app.keys = own, caller_keys(app.config, own)
    server = ServerState(app)
    async with serving_http(
        server, section.host, section.port, Dashboard(server).answer, shares_port=shares_port
    ) as address:
        keys = f"{len(section.keys)} configured key{'' if len(section.keys) == 1 else 's'}"
        yield address.url, keys if own is None else f"key in {shown(app.home)}/api_key"


class _VoiceMessages(Transcriber):
    """A transcriber that raises the error of the attachments, which know no models."""

    async def transcribe(self, audio: bytes, name: str, *, language: str | None = None) -> str:
        try:
            return await super().transcribe(audio, name, language=language)
        except ModelError as error:
            raise NotTranscribed(str(error)) from error


@contextlib.asynccontextmanager
async def _transcriber(config: Config) -> AsyncGenerator[_VoiceMessages | None]:
    settings = voice_settings(config)
    if settings is None:
        yield None
        return
    async with contextlib.aclosing(_VoiceMessages(settings)) as transcriber:
        yield transcriber
