"""Speaks with one MCP server for the gateway, and ends it when the gateway is gone.

It is a process of its own, run by its path: the library `mcp` is imported here alone, and what a server sends is read and checked here, so
that neither its size nor its amount holds up the gateway. It reads one JSON object a line from its standard input: first the settings, then
`{id, tool, arguments}`, `{cancel: id}` and `{check: true}`. When the input ends, so does the server. It writes `{tools}` once connected and
when they change, `{id, text, failed}` for each call, or `{id, undone}` where the server certainly has not seen it, and at last `{down: why}`.
"""

import asyncio
import ctypes
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import anyio
import httpx2
from jsonschema import Draft202012Validator, SchemaError
from mcp import ClientSession, MCPError, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from gateway.agent.tools.process_supervisor import end_all, end_with_parent, say

LINE_BYTES = 8 * 2**20
FLOOD_BYTES, FLOOD_LINES, FLOOD_SECONDS = 64 * 2**20, 20_000, 60.0
MEMORY_BYTES = 2**30
MOST_TOOLS, MOST_LISTED = 128, 2_000
DESCRIPTION_CHARS, SCHEMA_CHARS, ALL_CHARS = 2_000, 16_000, 64_000
TEXT_CHARS = 100_000
LIST_AGAIN_SECONDS = 5.0
CHECK_SECONDS = 10.0
GRACE_SECONDS = 1.0
LAST_SECONDS = 20
_PR_SET_CHILD_SUBREAPER = 36


def clean(text: str) -> str:
    """Returns the text without what no database and no encoding takes: NUL, and halves of characters."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


async def lines_of(pipe: Any, limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=limit)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


class Gone(Exception):
    """The server cannot be used any more. The text says why."""


class Stdio:
    """A server that is a program: its process, and the streams that the session reads and writes."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._server = subprocess.Popen(
            [settings["command"], *settings["args"]],
            env=settings["env"],
            cwd=settings["cwd"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509  # there is one thread
        )
        self._complaint = b""
        self._received, self._lines, self._since = 0, 0, time.monotonic()

    async def read(self, incoming: Any) -> None:
        """Passes on each message. Raises Gone when the server has ended, or sends too much."""
        reader = await lines_of(self._server.stdout, LINE_BYTES)
        async with incoming:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:
                    raise Gone(f"it sent a line of more than {LINE_BYTES:,} bytes") from None
                if not line:
                    raise Gone(await self._why_ended())
                self._count(len(line))
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:  # some print other things there as well
                    await asyncio.sleep(0)
                    continue
                await incoming.send(SessionMessage(message))

    def _count(self, size: int) -> None:
        if time.monotonic() - self._since > FLOOD_SECONDS:
            self._received, self._lines, self._since = 0, 0, time.monotonic()
        self._received += size
        self._lines += 1
        if self._received > FLOOD_BYTES:
            raise Gone(f"it sent more than {FLOOD_BYTES:,} bytes within a minute")
        if self._lines > FLOOD_LINES:
            raise Gone(f"it sent more than {FLOOD_LINES:,} messages within a minute")

    async def read_complaints(self) -> None:
        """Keeps the end of what the server writes to its standard error: it says why it ends."""
        reader = await lines_of(self._server.stderr, 65_536)
        while piece := await reader.read(65_536):
            self._complaint = (self._complaint + piece)[-2_000:]
            self._count(len(piece))

    async def write(self, outgoing: Any) -> None:
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(lambda: protocol, self._server.stdin)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        with suppress(ConnectionError):  # that it has ended is seen by `read`
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(f"{text}\n".encode())
                await writer.drain()

    async def _why_ended(self) -> str:
        await asyncio.sleep(0.1)  # its last words, and its exit code
        code = self._server.poll()
        how = "it closed its output" if code is None else f"it ended with exit code {code}"
        words = " ".join(self._complaint.decode(errors="replace").split())[-300:]
        return f"{how}: {words}" if words else how

    def end(self) -> None:
        """Ends the server with all that it has started: first its input ends, as the protocol says, then it is asked, then killed."""
        if self._server.stdin is not None:
            with suppress(OSError):
                self._server.stdin.close()
        until = time.monotonic() + GRACE_SECONDS
        while self._server.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        end_all(self._server, grace=GRACE_SECONDS)


class McpConnection:
    """One connection to the server, from its first message to its last."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._session: ClientSession
        self._calls = dict[int, asyncio.Task[None]]()
        self._changed = asyncio.Event()
        self._lost = asyncio.get_running_loop().create_future()
        self._session_unknown = False

    async def run(self) -> str:
        """Offers tools and answers calls until the server is lost. Returns why it is."""
        try:
            async with (
                self._streams() as (read, write),
                ClientSession(
                    read,
                    write,
                    message_handler=self._heard,
                    client_info=types.Implementation(name="hermes-gateway", version="1"),
                ) as self._session,
            ):
                try:
                    await self._session.initialize()
                except MCPError as error:
                    if error.code == types.CONNECTION_CLOSED or self._lost.done():
                        raise
                    await self._session.discover()  # one that speaks the newest protocol alone
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))  # after the server was started
                listing = asyncio.create_task(self._list_when_changed())
                try:
                    await asyncio.wait([listing, self._lost], return_when=asyncio.FIRST_COMPLETED)
                    (listing if listing.done() else self._lost).result()
                finally:
                    for work in (listing, *self._calls.values()):
                        work.cancel()
        except BaseExceptionGroup as group:
            if group.subgroup(asyncio.CancelledError) is not None:
                raise
            why = "; ".join(dict.fromkeys(map(_reason, _leaves(group))))
        except (Gone, MCPError, OSError, ValueError, RuntimeError, httpx2.HTTPError, MemoryError) as error:
            why = _reason(error)
        else:
            why = ""
        lost = self._lost.exception() if self._lost.done() else None
        return why if lost is None else _reason(lost)

    @asynccontextmanager
    async def _streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        if url := self._settings.get("url"):
            async with (
                httpx2.AsyncClient(
                    headers=self._settings["headers"],
                    timeout=httpx2.Timeout(30, read=300),
                    event_hooks={"response": [self._look_at_status]},
                ) as http,
                streamable_http_client(url, http_client=http) as streams,
            ):
                yield streams
            return
        stdio = Stdio(self._settings)
        into, read = anyio.create_memory_object_stream[Any](0)
        write, out = anyio.create_memory_object_stream[Any](0)
        works = [asyncio.ensure_future(work) for work in (stdio.read(into), stdio.read_complaints(), stdio.write(out))]
        for reading in works[:2]:
            reading.add_done_callback(self._reading_ended)
        try:
            yield read, write
        finally:
            for work in works:
                work.cancel()
            stdio.end()

    def _reading_ended(self, reading: asyncio.Future[None]) -> None:
        if not reading.cancelled() and (error := reading.exception()) is not None:
            self._lose(error)

    def _lose(self, why: BaseException) -> None:
        if not self._lost.done():
            self._lost.set_exception(why)

    async def _look_at_status(self, response: httpx2.Response) -> None:
        if response.status_code in {401, 403}:
            self._lose(Gone(f"it answers with status {response.status_code}: look at its headers"))
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            self._session_unknown = True  # it was started anew, so it has not looked at the call

    async def _heard(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def _list_when_changed(self) -> None:
        while True:
            say(await self._tools())
            await self._changed.wait()
            self._changed.clear()
            await asyncio.sleep(LIST_AGAIN_SECONDS)

    async def _tools(self) -> dict[str, Any]:
        """Returns the tools that are offered, in the order of the server; of too many, the first ones."""
        only: list[str] = self._settings["tools"]
        offered, unusable, left_out, room = list[dict[str, Any]](), list[str](), 0, ALL_CHARS
        async for tool in self._listed():
            if only and tool.name not in only:
                continue
            schema: dict[str, Any] = {"type": "object", "properties": {}, **tool.input_schema}
            schema.pop("$schema", None)
            description = clean(" ".join((tool.description or tool.title or "").split()))[:DESCRIPTION_CHARS]
            size = len(json.dumps(schema))
            if size > SCHEMA_CHARS or schema["type"] != "object" or not _is_schema(schema):
                unusable.append(tool.name)
            elif len(offered) == MOST_TOOLS or size + len(description) > room:
                left_out += 1
            else:
                room -= size + len(description)
                offered.append({"name": tool.name, "description": description, "parameters": schema})
        names = {tool["name"] for tool in offered}
        missing = [name for name in only if name not in names]
        return {"tools": offered, "unusable": unusable[:10], "left_out": left_out, "missing": missing}

    async def _listed(self) -> AsyncIterator[types.Tool]:
        cursor, count, seen = None, 0, set[str]()
        while count < MOST_LISTED:
            page = await self._session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            for tool in page.tools[: MOST_LISTED - count]:
                if tool.name and len(tool.name) <= 256 and tool.name not in seen:
                    seen.add(tool.name)
                    yield tool
            count += max(1, len(page.tools))
            cursor = page.next_cursor
            if not cursor:
                return

    async def follow(self, requests: asyncio.StreamReader) -> None:
        """Carries out the requests of the gateway until there are no more, or it is gone."""
        while line := await requests.readline():
            request: dict[str, Any] = json.loads(line)
            match request:
                case {"id": int(number), "tool": str(tool)}:
                    task = self._calls[number] = asyncio.create_task(self._call(number, tool, request["arguments"]))
                    task.add_done_callback(lambda _, number=number: self._calls.pop(number, None))
                case {"cancel": int(number)}:
                    if number in self._calls:
                        self._calls[number].cancel()
                case _:
                    self._checking = asyncio.create_task(self._check())

    async def _check(self) -> None:
        """A call took too long. One that hangs as a whole is given up."""
        if self._session.initialize_result is None:
            return  # the newest protocol asks for no such sign
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._session.send_ping()
        except (TimeoutError, MCPError):
            self._lose(Gone("it does not answer any more"))

    async def _call(self, number: int, tool: str, arguments: dict[str, Any]) -> None:
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            # Not `call_tool`: that would check the result against patterns of the server, which may take for ever.
            result = await self._session.send_request(request, types.CallToolResult)
        except MCPError as error:
            if self._session_unknown:
                say({"id": number, "undone": True})
                self._lose(Gone("it was started anew"))
            elif error.code == types.CONNECTION_CLOSED:
                self._lose(Gone("the connection was closed"))
            else:
                say({"id": number, "text": clean(str(error))[:2_000], "failed": True})
        except (ValidationError, ValueError, RuntimeError) as error:
            say({"id": number, "text": clean(f"its answer cannot be read: {error}")[:500], "failed": True})
        else:
            text = "\n".join(_said(result))
            say({"id": number, "text": clean(text[:TEXT_CHARS]) or "(nothing)", "failed": bool(result.is_error)})


def _said(result: types.CallToolResult) -> Iterator[str]:
    for part in result.content:
        match part:
            case types.TextContent():
                yield part.text
            case types.ImageContent() | types.AudioContent():
                what = "a picture" if isinstance(part, types.ImageContent) else "a recording"
                yield f"[{what} that cannot be shown here: {part.mime_type}, {len(part.data) * 3 // 4:,} bytes]"
            case types.ResourceLink():
                yield f"[a resource: {part.name}, {part.uri}]"
            case types.EmbeddedResource(resource=types.TextResourceContents() as inside):
                yield f"[resource {inside.uri}]\n{inside.text}"
            case types.EmbeddedResource():
                size = len(part.resource.blob) * 3 // 4 if isinstance(part.resource, types.BlobResourceContents) else 0
                yield f"[a file that cannot be shown here: {part.resource.uri}, {size:,} bytes]"
    if not result.content and result.structured_content is not None:
        yield json.dumps(result.structured_content, ensure_ascii=False)


def _is_schema(schema: dict[str, Any]) -> bool:
    """Returns whether an endpoint of a model would take it; one bad schema makes some refuse the whole request."""
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError):
        return False
    return True


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for one in cast(BaseExceptionGroup[BaseException], error).exceptions:
        yield from _leaves(one)


def _reason(error: BaseException) -> str:
    match error:
        case FileNotFoundError():
            return f"there is no program {error.filename}"
        case httpx2.ConnectError():
            return "it cannot be reached"
        case httpx2.HTTPError():
            return f"{type(error).__name__} {error}".strip()
        case _:
            return str(error) or type(error).__name__


async def keep() -> None:
    requests = await lines_of(os.fdopen(0, "rb", buffering=0), LINE_BYTES)
    connection = McpConnection(json.loads(await requests.readline()))
    running, following = asyncio.create_task(connection.run()), asyncio.create_task(connection.follow(requests))
    await asyncio.wait([running, following], return_when=asyncio.FIRST_COMPLETED)
    signal.alarm(LAST_SECONDS)  # whatever hangs now
    following.cancel()
    if not running.done():
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return
    say({"down": clean(running.result())[:500]})


if __name__ == "__main__":
    logging.disable()
    os.nice(10)  # what a server sends without end is read at the cost of nobody else
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; the gateway decides
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asyncio.run(keep())
