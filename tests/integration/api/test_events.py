"""Readers of events that are slow, late, or ask for what is not there."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.api.http.server_state import ApiLimits
from gateway.api.threads import event_hub as hub
from gateway.runs.live import LiveEvent
from sessions import events, runs
from sessions.errors import DatabaseUnavailable
from tests.fakes.model_replies import Reply, call, calls
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
    async with gateway(home, limits=ApiLimits(waiting_event_bytes=300_000)) as gw:
        _, sent, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "hi"})
        run = await gw.database.read(runs.get, sent["run_id"])
        async with asyncio.timeout(60):
            while (await gw.database.read(runs.get, run.id)).status == "running":
                await asyncio.sleep(0.005)
        async with following(gw, "dep_main") as quick, sleepy(gw) as slow:
            numbers: list[int] = []
            for number in range(COUNT):
                text = f"{number} " + "x" * SIZE
                await gw.database.write(events.emit, run, "message", {"role": "agent", "content": text}, number)
                if number % 5 == 4:  # a quick reader is one for whom never much waits, also where everything is slow
                    numbers += await many(quick, 5)
            got = await rest(slow)
        whole = got.rpartition(b"\n\n")[0]  # what comes after was torn
        ids = [int(line[4:]) for line in whole.split(b"\n") if line.startswith(b"id: ")]
        assert 0 < len(ids) < COUNT
        async with following(gw, "dep_main", Last_Event_ID=str(ids[-1])) as again:
            assert ids + await many(again, COUNT - len(ids)) == numbers


async def test_a_failed_read_is_made_up_for_without_another_commit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after, failed = events.after, asyncio.Event()

    def fail_once(*args: Any, **more: Any) -> Any:
        if failed.is_set():
            return after(*args, **more)
        failed.set()
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(hub, "RETRY_SECONDS", 0.01)
    async with gateway(home) as gw:
        _, sent, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "hi"})
        run = await gw.database.read(runs.get, sent["run_id"])
        async with asyncio.timeout(60):
            while (await gw.database.read(runs.get, run.id)).status == "running":
                await asyncio.sleep(0.005)
        async with following(gw, "dep_main") as reader:
            monkeypatch.setattr(events, "after", fail_once)
            await gw.database.write(events.emit, run, "message", {"role": "agent", "content": "late"}, 1)
            async with asyncio.timeout(5):
                assert len(await many(reader, 1)) == 1


async def many(stream: Events, count: int) -> list[int]:
    return [(await stream.next())[0] for _ in range(count)]


async def test_a_thread_or_run_that_is_not_there_has_no_events(home: Path) -> None:
    async with gateway(home) as gw:
        for query in (f"thread_id=thread_{'0' * 24}", f"run_id=run_{'0' * 24}"):
            status, answer, _ = await gw.ask("GET", f"{MAIN}/events?{query}")
            assert (status, answer["error"]["code"]) == (404, "not_found")


BROKEN = Reply(text="one two three four", chunks=("one ", "two ", "three ", "four"), drop_after=4)


@pytest.mark.parametrize("tool", ["files", "one_that_is_not_there"])
@pytest.mark.parametrize(
    ("second", "heard"),
    [("one two three four", "one two three four"), ("one two, no", "one two three \n\none two, no")],
    ids=["the same", "another"],
)
async def test_an_answer_that_starts_afresh_repeats_no_word(home: Path, tool: str, second: str, heard: str) -> None:
    script = [calls(call(tool, {"action": "list"}), text="Looking."), BROKEN, second]
    async with gateway(home, script) as gw, following(gw, "dep_main") as stream:
        await gw.ask("POST", f"{MAIN}/messages", {"content": "count"})
        seen = await stream.until("run_status", status="completed")
        assert words(seen) == f"Looking.{heard}"
        for session in ({}, {"X_Hermes_Session_Id": "s"}):
            gw.model.script = list(script)
            assert await streamed(gw, **session) == f"Looking.\n\n{heard}"


async def test_an_answer_that_starts_afresh_after_another_repeats_no_word(home: Path) -> None:
    asked = asyncio.Event()
    script = [Reply(text="Counting.", before=asked.wait), BROKEN, "one two three four"]
    async with gateway(home, script) as gw, following(gw, "dep_main") as stream:
        _, first, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "count"})
        async with asyncio.timeout(60):
            while not gw.model.calls:
                await asyncio.sleep(0.005)
        _, second, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "to four"})
        assert first["run_id"] == second["run_id"]
        asked.set()
        assert words(await stream.until("run_status", status="completed")) == "Counting.one two three four"


def words(seen: list[tuple[int, str, dict[str, Any]]]) -> str:
    return "".join(data["text"] for _, kind, data in seen if kind == "token")


async def streamed(gw: Gateway, **headers: str) -> str:
    body = {"messages": [{"role": "user", "content": "count"}], "stream": True}
    async with gw.http.post(f"{gw.url}/v1/chat/completions", json=body, headers=gw.headers(**headers)) as answer:
        chunks = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


@pytest.mark.parametrize(
    ("taken", "heard"),
    [
        ({"fence": 2, "created_at": 0}, "new"),  # another process gave it back, perhaps in the middle of a step
        ({"attempts": 1}, "new"),
        ({"fence": 2}, "again, new"),  # it waited for a human, and this process knows what it told
        ({"created_at": 0}, "again, new"),
    ],
)
async def test_the_step_that_another_process_began_is_told_by_its_message_alone(
    home: Path, taken: dict[str, int], heard: str
) -> None:
    async with gateway(home) as gw, following(gw, "dep_main") as stream:
        _, sent, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "hi"})
        await stream.until("run_status", status="completed")
        run = replace(await gw.database.read(runs.get, sent["run_id"]), **taken)
        live = gw.app.live
        live.publish(LiveEvent(run.id, "begun", run=run))
        for moment in (
            LiveEvent(run.id, "token", "again, "),
            LiveEvent(run.id, "tool", "files"),
            LiveEvent(run.id, "token", "new"),
        ):
            live.publish(moment)
        _, kind, data = await stream.next()
        assert (kind, data) == ("token", {"run_id": run.id, "text": heard})
