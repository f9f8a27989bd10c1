"""Readers of events that are slow, late, or ask for what is not there."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.api.desk import Bounds
from sessions import events, runs
from tests.integration.api.serving import Gateway, gateway
from tests.integration.api.test_deployments import Events
from tests.integration.api.test_deployments import events as following

MAIN = "/v1/deployments/dep_main"
COUNT, SIZE = 300, 40_000
"""Together more than the buffers of any system hold."""


@asynccontextmanager
async def sleepy(gw: Gateway) -> AsyncIterator[asyncio.StreamReader]:
    """A connection that takes in little: its small buffer, and what its reader asks for."""
    host, port = gw.url.removeprefix("http://").split(":")
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4_096)
    sent = {**gw.headers(), "Host": "127.0.0.1"}
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    writer.write(f"GET {MAIN}/events HTTP/1.0\r\n{head}\r\n".encode())
    await reader.readuntil(b": open\n\n")
    try:
        yield reader
    finally:
        writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that arrives until the other side ends it."""
    pieces: list[bytes] = []
    async with asyncio.timeout(60):
        try:
            while piece := await reader.read(65_536):
                pieces.append(piece)
        except ConnectionError:
            pass
    return b"".join(pieces)


async def test_a_reader_that_does_not_read_is_dropped_and_resumes_without_a_gap(home: Path) -> None:
    async with gateway(home, bounds=Bounds(waiting_event_bytes=300_000)) as gw:
        _, sent, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "hi"})
        run = await gw.database.read(runs.get, sent["run_id"])
        async with asyncio.timeout(60):
            while (await gw.database.read(runs.get, run.id)).status == "running":
                await asyncio.sleep(0.005)
        async with following(gw, "dep_main") as quick, sleepy(gw) as slow:
            hearing = asyncio.create_task(many(quick, COUNT))
            for number in range(COUNT):
                text = f"{number} " + "x" * SIZE
                await gw.database.write(events.emit, run, "message", {"role": "agent", "content": text}, number)
            numbers = await hearing
            got = await rest(slow)
        whole = got.rpartition(b"\n\n")[0]  # what comes after was torn
        ids = [int(line[4:]) for line in whole.split(b"\n") if line.startswith(b"id: ")]
        assert 0 < len(ids) < COUNT
        async with following(gw, "dep_main", Last_Event_ID=str(ids[-1])) as again:
            assert ids + await many(again, COUNT - len(ids)) == numbers


async def many(stream: Events, count: int) -> list[int]:
    return [(await stream.next())[0] for _ in range(count)]


async def test_a_thread_or_run_that_is_not_there_has_no_events(home: Path) -> None:
    async with gateway(home) as gw:
        for query in (f"thread_id=thread_{'0' * 24}", f"run_id=run_{'0' * 24}"):
            status, answer, _ = await gw.ask("GET", f"{MAIN}/events?{query}")
            assert (status, answer["error"]["code"]) == (404, "not_found")
