"""`process`: shell commands in the workspace, within limits, in the foreground for some seconds and then in the background."""

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from gateway.agent.tools import process_supervisor
from gateway.agent.tools.process_supervisor import kill_with_descendants
from gateway.agent.tools.registry import Arguments, FromOutside, Tool, ToolContext, ToolError
from gateway.config.sections import LimitsSection
from gateway.context import App, every
from gateway.observe.logging import get_logger
from sessions import processes
from sessions.errors import StateError
from sessions.processes import RUNNING, UNKNOWN, ProcessRow
from sessions.records import Session
from sessions.topics import Topic, Touch, ids_of

log = get_logger(__name__)

FOREGROUND_SECONDS = 10.0
MOST_AT_ONCE = 8
_END_SECONDS = 20.0
_STORE_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
"""How long another process of the gateway may take to say what was printed. Both look every two, in case that they were not told."""
_SILENT = "running; what it has printed by now is not known at the moment"
_OUTPUT_BYTES = 15_000
"""The model reads no more of an output, however much of it is allowed."""
_LINE_BYTES = 8 * _OUTPUT_BYTES
_PASSED_ON = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")


def clean_environment(home: Path) -> dict[str, str]:
    """Returns what a foreign program gets to know: where programs are, the locale, and a home of its own. No secret of ours."""
    return {**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, "HOME": str(home), "TERM": "dumb"}


@dataclass(slots=True)
class _KeptCommand:
    """One command and the process that supervises it. `last`: what that said at the end. `output`: what was printed, as far as it is known;
    `news` is set when that was told anew. `begun`: its row is stored. `answering`: another process of the gateway has asked.
    `ns`: in whose workspace it works."""

    row: ProcessRow
    supervisor: asyncio.subprocess.Process
    ns: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    last: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: str = ""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    timed_out: bool = False
    begun: bool = False
    answering: bool = False

    def request(self, what: str) -> None:
        stdin = self.supervisor.stdin
        if self.supervisor.returncode is None and stdin is not None and not stdin.is_closing():
            stdin.write(f"{what}\n".encode())

    def outcome(self, limits: LimitsSection) -> str:
        reason, code = self.last.get("reason"), self.last.get("code")
        if self.timed_out:
            return f"ended after {limits.process_seconds} s, as long as a command may run in the foreground"
        match reason:
            case "memory":
                return f"ended: it used more than {limits.process_memory_bytes:,} bytes of memory"
            case "count":
                return f"ended: it was more than {limits.process_count} processes at once"
            case "ended":
                return "ended on request"
            case "":
                return f"exit code {code}" if not isinstance(code, int) or code >= 0 else f"ended by signal {-code}"
            case _:
                return UNKNOWN


class Processes:
    """Starts commands and keeps what runs in the background until it ends, is stopped, or the gateway ends. What another process of the gateway
    keeps is reached by its row: that process does what it reads there, and hears by the bus that there is something to read.
    """

    def __init__(self, app: App, *, foreground_seconds: float = FOREGROUND_SECONDS) -> None:
        self.app = app
        self._foreground_seconds = foreground_seconds
        self._kept: dict[str, _KeptCommand] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unlisten: Callable[[], None] = app.database.listen(self._on_commit, Topic.PROCESS, Topic.LOOK)

    async def start(self, session: Session, workspace: Path, command: str) -> tuple[str, str, str]:
        """Runs the command. Returns its id, how it stands after the time for the foreground, and what it has printed."""
        app, limits = self.app, self.app.config.limits
        self._loop = asyncio.get_running_loop()
        there = await app.database.read(processes.running, session.session_key)
        if len(there) >= MOST_AT_ONCE:
            raise ToolError(
                f"{len(there)} processes run here already: {', '.join(row.id for row in there)}; kill some first"
            )
        row = ProcessRow(
            id=secrets.token_hex(4),
            session_id=session.id,
            session_key=session.session_key,
            owner=app.owner,
            command=command,
            started_at=app.clock(),
        )
        for folder in (workspace, app.tool_home):
            await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        kept = self._kept[row.id] = _KeptCommand(row, await self._supervisor(), session.ns)
        self._run_beside(self._read(kept))
        settings = {
            "command": command,
            "cwd": str(workspace),
            "env": clean_environment(app.tool_home),
            "cpu_seconds": limits.process_seconds,
            "memory_bytes": limits.process_memory_bytes,
            "output_bytes": min(limits.process_output_bytes, _OUTPUT_BYTES),
            "count": limits.process_count,
        }
        try:
            await app.database.write(processes.add, row)
            # Only now is anything run: a command without a row would hold off no reset and be stopped by nobody.
            kept.request(json.dumps(settings))
            kept.begun = True
        except BaseException:
            kept.supervisor.kill()  # `_read` sees it end, and closes the row if there is one
            raise
        log.info("process.started", process_id=row.id, session_key=row.session_key)
        try:
            async with asyncio.timeout(min(self._foreground_seconds, limits.process_seconds)):
                await kept.ended.wait()
        except TimeoutError:
            if limits.process_seconds <= self._foreground_seconds:
                kept.timed_out = True
                await self._end(kept)
        return row.id, *await self._look(kept)

    async def wait(self, process_id: str) -> tuple[str, str]:
        """Waits a little for the end of the process, so that a model that asks again and again does not do so at full speed. Returns how it stands,
        and what it has printed so far.
        """
        kept = self._kept.get(process_id)
        if kept is None:
            return await self._ask_its_keeper(process_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._foreground_seconds / 4):
                await kept.ended.wait()
        return await self._look(kept)

    async def kill(self, process_id: str) -> tuple[str, str]:
        """Ends the process, first by asking it. Returns what `wait` does."""
        if (kept := self._kept.get(process_id)) is not None:
            await self._end(kept)
            return await self._look(kept)
        await self.app.database.write(processes.stop_one, process_id, self.app.clock())
        until = asyncio.get_running_loop().time() + _END_SECONDS
        while True:
            stands, output = await self._ask_its_keeper(process_id)
            if not stands.startswith(RUNNING) or asyncio.get_running_loop().time() > until:
                return stands, output

    async def _look(self, kept: _KeptCommand) -> tuple[str, str]:
        if not kept.ended.is_set():
            kept.news.clear()
            kept.request("poll")
            await kept.news.wait()
        stands = kept.outcome(self.app.config.limits) if kept.ended.is_set() else RUNNING
        return stands, kept.output

    async def _ask_its_keeper(self, process_id: str) -> tuple[str, str]:
        """Waits until the process of the gateway that keeps it has said what was printed; what it said before is returned where it is silent."""
        self._loop = asyncio.get_running_loop()
        row = await self.app.database.write(processes.ask_keeper, process_id, self.app.clock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._foreground_seconds / 4 + _ANSWER_SECONDS):
                while row is not None and row.asked_at is not None:
                    self._changed.clear()
                    row = await self.app.database.read(processes.get, process_id)
                    if row is not None and row.asked_at is not None:
                        await self._changed.wait()
        if row is None:
            return UNKNOWN, ""
        if row.outcome is None:
            return (RUNNING if row.asked_at is None else _SILENT), row.output or ""
        return row.outcome, row.output or ""

    @every(5, "processes.orphans")
    async def close_orphans(self) -> None:
        """Notes the end of what was kept by processes of the gateway that have died. Called by whoever keeps the house."""
        bus = self.app.database.bus
        if (bus is None or bus.is_steady) and await self.app.database.read(processes.orphans):
            await self.app.database.write(processes.close_orphans, self.app.clock())

    async def aclose(self) -> None:
        """Ends everything that runs. May be called again."""
        self._unlisten()
        self._unlisten = lambda: None
        await asyncio.gather(*(self._end(kept) for kept in self._kept.values()))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _supervisor(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            process_supervisor.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            start_new_session=True,  # Ctrl-C at a terminal ends the gateway, and with it the supervisor, in order
            limit=_LINE_BYTES,
        )

    async def _read(self, kept: _KeptCommand) -> None:
        """Reads what the supervisor says until the command has ended, and stores how."""
        try:
            while kept.supervisor.stdout is not None and (line := await kept.supervisor.stdout.readline()):
                said = json.loads(line)
                kept.output = said["output"]
                if "code" in said:
                    kept.last = said
                    break
                kept.news.set()
        except ValueError:
            log.warning("process.lost", process_id=kept.row.id)
        if kept.supervisor.returncode is None:
            await asyncio.to_thread(kill_with_descendants, kept.supervisor.pid)
        await kept.supervisor.wait()
        outcome = kept.outcome(self.app.config.limits)
        log.info("process.ended", process_id=kept.row.id, session_key=kept.row.session_key, outcome=outcome)
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await self._store_files(kept)  # before others are told that it has ended
                await self.app.database.write(processes.ended, kept.row.id, outcome, self.app.clock(), kept.output)
        except (StateError, TimeoutError) as error:  # the database is away or full: the next start closes the row
            log.warning("process.end_not_stored", process_id=kept.row.id, error=str(error))
        kept.ended.set()
        kept.news.set()
        # Whoever waits for its output now has the object; later it is only known how it ended.
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._kept.pop, kept.row.id, None)

    async def _end(self, kept: _KeptCommand) -> None:
        kept.request("end")
        try:
            async with asyncio.timeout(_END_SECONDS):
                await kept.ended.wait()
        except TimeoutError:  # the supervisor hangs; `_read` sees it end
            await asyncio.to_thread(kill_with_descendants, kept.supervisor.pid)

    def _on_commit(self, touched: frozenset[Touch]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._heed, frozenset(ids_of(Topic.PROCESS, touched)))

    def _heed(self, process_ids: frozenset[str]) -> None:
        """Looks what is wanted of these; of all of them where there are none, because what other processes have told may be lost."""
        self._changed.set()
        wanted = {name for name, kept in self._kept.items() if kept.begun and not kept.ended.is_set()}
        if process_ids:
            wanted &= process_ids
        if wanted:
            self._run_beside(self._do_as_wanted(wanted))

    async def _do_as_wanted(self, process_ids: AbstractSet[str]) -> None:
        try:
            rows = await self.app.database.read(processes.running_of, process_ids)
        except StateError:  # looked at again soon, and at its end at the latest
            return
        for process_id in process_ids:
            row, kept = rows.get(process_id), self._kept[process_id]
            # Without a row its session was deleted. A row that has ended was closed by others, while this process stood still.
            if row is None or row.stop_at is not None:
                kept.request("end")
            elif row.asked_at is not None and not kept.answering:
                kept.answering = True
                self._run_beside(self._answer(kept, row.asked_at))

    async def _answer(self, kept: _KeptCommand, asked_at: int) -> None:
        """Stores what was printed, for another process of the gateway. An end is stored by `_read`, with all of it."""
        try:
            stands, output = await self.wait(kept.row.id)
            if stands == RUNNING:
                await self._store_files(kept)
                await self.app.database.write(processes.answer, kept.row.id, output, asked_at)
        except StateError as error:
            log.warning("process.not_told", process_id=kept.row.id, error=str(error))
        finally:
            kept.answering = False

    async def _store_files(self, kept: _KeptCommand) -> None:
        if self.app.files is not None:
            await self.app.files.keep_written(kept.ns)

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_KEPT_SECONDS = 3600.0
"""How long the output of a process that has ended can still be read."""


class ProcessArguments(Arguments):
    action: Literal["start", "poll", "kill", "list"]
    command: Annotated[str | None, Field(max_length=20_000, description="start: for the shell")] = None
    id: Annotated[str | None, Field(max_length=64, description="poll, kill")] = None

    @model_validator(mode="after")
    def _needs(self) -> Self:
        if self.action == "start" and not self.command:
            raise ValueError("start needs a command")
        if self.command and "\0" in self.command:
            raise ValueError("a command holds no zero bytes")
        return self


async def process(place: ToolContext, arguments: ProcessArguments) -> str | FromOutside:
    """Run shell commands in your folder of files. What runs longer than ten seconds goes on in the background: poll it later."""
    if place.processes is None:
        raise ToolError("no command can be run here")
    session = place.session
    match arguments.action:
        case "start":
            found, stands, output = await place.processes.start(session, place.workspace, arguments.command or "")
        case "list":
            rows = await place.database.read(processes.running, session.session_key)
            return "\n".join(f"{row.id}  running  {row.command}" for row in rows) or "Nothing runs in the background."
        case "poll" | "kill":
            found = arguments.id or ""
            row = await place.database.read(processes.get, found)
            # A process of another chat is as unknown as one that does not exist.
            if row is None or row.session_key != session.session_key:
                raise ToolError(f"there is no process {found} here; the action list shows what runs")
            stands, output = await (
                place.processes.wait(found) if arguments.action == "poll" else place.processes.kill(found)
            )
    if stands == UNKNOWN:
        stands = "it ended with the gateway, or was cut off; how far it had come is not known, so look before you start it again"
    head = f"id: {found}\n{stands}\n"
    return FromOutside(f"output of process {found}", output, head=head) if output else f"{head}no output"


TOOL = Tool(
    name="process",
    arguments=ProcessArguments,
    function=process,
    repeatable=True,
    needs_approval=True,
    harmless=frozenset({"poll", "kill", "list"}),
    shows="command",
)
