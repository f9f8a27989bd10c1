"""Tools of MCP servers that the configuration names. Each server has a process of its own beside it, `mcp_client.py`, which speaks with it."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, model_validator

from gateway.agent.models.interface import JSON
from gateway.agent.tools import mcp_tool_name
from gateway.agent.tools.process import clean_environment
from gateway.agent.tools.process_supervisor import kill_with_descendants
from gateway.agent.tools.registry import Arguments, FromOutside, Tool, ToolContext, ToolError, parse_arguments
from gateway.config.sections import McpServerSection
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.observe.redaction import redact
from sessions.clock import iso

log = get_logger(__name__)

CONNECT_SECONDS = 120.0
CALL_SECONDS = 120.0
_COMES_UP_SECONDS = 10.0
"""How long a call waits for a server that is being started again."""
_FIRST_SECONDS, _WANTED_SECONDS = 5.0, 20.0
"""How long a run waits for servers that are being started for the first time; for one whose tool it has called before, longer."""
_LONGEST_PAUSE = 300.0
_STEADY_SECONDS = 60.0
_END_SECONDS = 8.0
_LINE_BYTES = 2 * 2**20
_NETWORK = (
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


def is_installed() -> bool:
    return find_spec("mcp") is not None


def _not_installed() -> str:
    from sessions.packages import install_command

    return f"its library is not installed: {install_command('mcp')}"


class McpArguments(Arguments):
    """Whatever the server's own schema asks for. The server gets what was shown, also where it is empty."""

    model_config = ConfigDict(extra="allow", str_strip_whitespace=False)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, sent: Any) -> Any:
        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool(Tool):
    """A tool of a server. `offered`: what the model is told of it."""

    offered: JSON = field(hash=False)
    idempotent: bool = False
    folder: Literal["workspace", "skills", ""] = ""
    timeout: float = CALL_SECONDS + 4 * _COMES_UP_SECONDS

    @property
    def schema(self) -> JSON:
        return self.offered

    def asks_first(self, arguments: str, *, doubtful: bool) -> bool:  # noqa: ARG002  # what stands in `approve` never asks
        return self.needs_approval

    def shown(self, arguments: str) -> str:
        try:
            return f"{self.name}: {json.dumps(parse_arguments(arguments), ensure_ascii=False)}"
        except ToolError:
            return f"{self.name}: {arguments}"


@dataclass(frozen=True, slots=True)
class _Call:
    server: "McpServer"
    tool: str

    async def __call__(self, _: ToolContext, arguments: McpArguments) -> FromOutside:
        return await self.server.call(self.tool, arguments.model_extra or {})


class McpServer:
    """One server of the configuration: it is connected, and connected again after growing pauses."""

    def __init__(self, servers: "McpServers", name: str, section: McpServerSection) -> None:
        self._servers = servers
        self.name = name
        self.section = section
        self.offers: Sequence[Mapping[str, Any]] = ()
        self.why = ""
        """Why it is down; empty: it is up, or being started for the first time."""
        self.since = servers.app.clock()
        self.began = asyncio.get_running_loop().time()
        self.settled = asyncio.Event()
        self.up = asyncio.Event()
        self._wanted = asyncio.Event()
        self._client: asyncio.subprocess.Process | None = None
        self._open = dict[int, asyncio.Future[Mapping[str, Any]]]()
        self._numbers = count(1)
        self._task = asyncio.create_task(self._run())

    @property
    def state(self) -> str:
        return "up" if self.up.is_set() else "down" if self.why else "starting"

    @property
    def _cause(self) -> str:
        """Returns why it is down without the last words of the server, which the model would take for ours."""
        return self.why.partition(": ")[0]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> FromOutside:
        answer: Mapping[str, Any] = {}
        for _ in range(2):
            answer = await self._asked(tool, arguments)
            if not answer.get("undone"):
                break
        match answer:
            case {"text": str(text), "failed": bool(failed)}:
                what, head = f"result of {tool} from the MCP server {self.name}", "[it failed]\n" if failed else ""
                return FromOutside(what, text, head=head)
            case {"undone": True}:
                raise ToolError(f"the MCP server {self.name} is down: {self._cause}")
            case _:
                raise ToolError(
                    f"the MCP server {self.name} ended during the call: {self._cause}. What the call has done is not known"
                )

    async def _asked(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self._wanted.set()
        try:
            async with asyncio.timeout(_COMES_UP_SECONDS):
                await self.up.wait()
        except TimeoutError:
            raise ToolError(f"the MCP server {self.name} is down: {self._cause or 'it is being started'}") from None
        number = next(self._numbers)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._servers.call_seconds):
                await self._send({"id": number, "tool": tool, "arguments": arguments})
                return await answer
        except TimeoutError:
            await self._send({"check": True})
            raise ToolError(
                f"the MCP server {self.name} gave no answer within {self._servers.call_seconds:g} s. What the call has done is not known"
            ) from None
        finally:
            del self._open[number]
            if not answer.done() or answer.cancelled():
                self._write({"cancel": number})

    def _write(self, request: Mapping[str, Any]) -> None:
        if self._client is not None and self._client.stdin is not None and not self._client.stdin.is_closing():
            self._client.stdin.write(json.dumps(request).encode() + b"\n")

    async def _send(self, request: Mapping[str, Any]) -> None:
        self._write(request)
        if self._client is not None and self._client.stdin is not None:
            with contextlib.suppress(ConnectionError):  # then `_connect` sees it end
                await self._client.stdin.drain()

    async def retire(self) -> None:
        """Ends the server after the calls that are under way."""
        if self._open:
            await asyncio.wait(list(self._open.values()), timeout=self._servers.call_seconds)
        await self.aclose()

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.why = self.why or "the configuration names it no more"

    async def _run(self) -> None:
        failures, loop = 0, asyncio.get_running_loop()
        while True:
            began, before = loop.time(), self.why
            try:
                why = await self._connect()
            except OSError as error:  # no process could be started
                why = str(error)
            self.why = redact(why)[:300] or "it ended"
            was_up = self.up.is_set()
            self.up.clear()
            undone = len(self._open) == 1 and self.why == "it cannot be reached"
            for answer in self._open.values():
                if not answer.done():
                    answer.set_result({"undone": True} if undone else {})
            failures = 0 if loop.time() - began > _STEADY_SECONDS else failures
            pause = min(_LONGEST_PAUSE, self._servers.first_pause * 2**failures)
            failures += 1
            if was_up or self.why != before:
                self.since = self._servers.app.clock()
                log.warning("mcp.down", server=self.name, why=self.why, retry_in=pause)
            self.settled.set()
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()

    async def _connect(self) -> str:
        """Starts the process that speaks with the server, and listens to it until it ends. Returns why."""
        app, section = self._servers.app, self.section
        await asyncio.to_thread(app.tool_home.mkdir, mode=0o700, parents=True, exist_ok=True)
        environment = {k: v for k, v in clean_environment(app.tool_home).items() if k not in {"TERM", "TZ"}}
        network = {name: os.environ[name] for name in _NETWORK if name in os.environ} if section.url else {}
        client = self._client = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",  # beside it is a file of the library's name
            str(Path(__file__).with_name("mcp_client.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**environment, **network},
            start_new_session=True,
            limit=_LINE_BYTES,
        )
        settings = {
            "command": section.command,
            "args": section.args,
            "env": {**environment, **{name: value.get_secret_value() for name, value in section.env.items()}},
            "cwd": str(app.tool_home),
            "url": section.url,
            "headers": {name: value.get_secret_value() for name, value in section.headers.items()},
            "tools": section.tools,
        }
        try:
            await self._send(settings)
            async with asyncio.timeout(self._servers.connect_seconds) as patience:
                while client.stdout is not None and (line := await client.stdout.readline()):
                    match json.loads(line):
                        case {"tools": list()} as listed:
                            patience.reschedule(None)
                            self._listed(listed)
                        case {"down": str(why)}:
                            return why
                        case {"id": int(number)} as answer:
                            if answer.get("undone"):  # this client ends; the next one is waited for
                                self.up.clear()
                            if number in self._open and not self._open[number].done():
                                self._open[number].set_result(answer)
                        case _:
                            pass
            return "the process that speaks with it ended"
        except TimeoutError:
            return f"it did not list its tools within {self._servers.connect_seconds:g} s"
        except ValueError:
            return "what it sent cannot be read"
        finally:
            self.up.clear()
            # Ends the client, which ends the server. One that hangs is killed with all below it.
            if client.stdin is not None:
                client.stdin.close()
            try:
                async with asyncio.timeout(_END_SECONDS):
                    # Its output is read on, else it could not end.
                    while client.stdout is not None and await client.stdout.read(65_536):
                        pass
                    await client.wait()
            except (TimeoutError, ValueError):
                await asyncio.to_thread(kill_with_descendants, client.pid)
                await client.wait()

    def _listed(self, listed: Mapping[str, Any]) -> None:
        self.offers = listed["tools"]
        self._servers.rebuild()
        if not self.up.is_set():
            self.why, self.since = "", self._servers.app.clock()
            log.info("mcp.connected", server=self.name, tools=len(self.offers))
        left = {key: listed[key] for key in ("left_out", "unusable", "missing") if listed.get(key)}
        if left:
            how = "name those that you need in its `tools`"
            log.warning("mcp.tools_left_out", server=self.name, how_to_mend=how, **left)
        self.up.set()
        self.settled.set()


class McpServers:
    """The servers that the configuration in force names, and their tools by the names under which the agent has them."""

    def __init__(
        self,
        app: App,
        *,
        first_pause: float = 1.0,
        connect_seconds: float = CONNECT_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self.app = app
        self.first_pause = first_pause
        self.connect_seconds = connect_seconds
        self.call_seconds = call_seconds
        self.tools: Mapping[str, Tool] = {}
        """Replaced as a whole, because runs read it in other threads."""
        self._named = dict[str, McpServer]()
        self._retiring = dict[asyncio.Task[None], McpServer]()
        self._follows = False

    def start(self) -> None:
        """From now on the servers of the configuration run. Nothing is waited for."""
        self._follows = True
        self.follow()

    def follow(self) -> None:
        """Starts what the configuration in force names anew, and ends what it names no more; what changed is both."""
        if not self._follows:
            return
        wanted = self.app.config.mcp_servers if is_installed() else {}
        if missing := self.app.config.mcp_servers.keys() - wanted.keys():
            log.error("mcp.not_installed", servers=sorted(missing), how_to_mend=_not_installed())
        former = self._named
        self._named = {
            name: former[name] if name in former and former[name].section == section else McpServer(self, name, section)
            for name, section in wanted.items()
        }
        for name, server in former.items():
            if self._named.get(name) is not server:
                retiring = asyncio.create_task(server.retire())
                self._retiring[retiring] = server
                retiring.add_done_callback(self._retiring.pop)
        self.rebuild()

    def rebuild(self) -> None:
        """Names all tools anew. One that has not changed stays the same object, by which its size is known elsewhere."""
        tools = dict[str, Tool]()
        for server in self._named.values():
            for offer in server.offers:
                name = mcp_tool_name(server.name, offer["name"], self._named, tools)
                tool = McpTool(
                    name=name,
                    arguments=McpArguments,
                    function=_Call(server, offer["name"]),
                    needs_approval=offer["name"] not in server.section.approve,
                    offered={"type": "function", "function": {**offer, "name": name}},
                )
                known = self.tools.get(name)
                tools[name] = known if known is not None and known == tool else tool
        self.tools = tools

    async def settle(self, called: Collection[str]) -> bool:
        """Waits for servers that are being started for the first time, but not long. `called`: tools that a run has called and that may be
        theirs. Returns whether anything was waited for."""
        waiting = [server for server in self._named.values() if not server.settled.is_set()]
        loop, waited = asyncio.get_running_loop(), False
        for server in waiting:
            is_wanted = any(name.startswith(f"{server.name}_") for name in called)
            left = server.began + (_WANTED_SECONDS if is_wanted else _FIRST_SECONDS) - loop.time()
            if left > 0:
                waited = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await server.settled.wait()
        return waited

    def part(self) -> dict[str, dict[str, Any]]:
        """Returns the state of each server, as the status shows it."""
        found = {
            name: {"state": server.state, "why": server.why, "since": iso(server.since), "tools": len(server.offers)}
            for name, server in self._named.items()
        }
        absent = self.app.config.mcp_servers.keys() - found.keys() if self._follows else ()
        return found | {name: {"state": "down", "why": _not_installed(), "tools": 0} for name in absent}

    async def aclose(self) -> None:
        servers = [*self._named.values(), *self._retiring.values()]
        self._named, self._follows = {}, False
        for retiring in list(self._retiring):
            retiring.cancel()
        await asyncio.gather(*(server.aclose() for server in servers))
