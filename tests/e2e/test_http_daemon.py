"""The daemon as a process, over HTTP: killed with -9 in the middle, and nobody misses or hears anything twice."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.fakes.model_replies import Reply, call, calls
from tests.fakes.model_server import ModelServer
from tests.machine import free_port

DURABLE = {"run_status", "message", "tool_call", "tool_result", "steering_request"}


class HttpDaemon:
    """`hermes gateway run` on this home; it can be killed and started again."""

    def __init__(self, home: Path, port: int) -> None:
        self._home = home
        self.url = f"http://127.0.0.1:{port}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environ = {**os.environ, "HERMES_HOME": str(self._home)}
        program = [sys.executable, "-m", "gateway.cli.main", "gateway", "run"]
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *program, env=environ, stdin=quiet, stdout=quiet, stderr=quiet
        )
        async with aiohttp.ClientSession() as http, asyncio.timeout(60):
            while not await self._is_ready(http):
                await asyncio.sleep(0.02)

    async def _is_ready(self, http: aiohttp.ClientSession) -> bool:
        try:
            async with http.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self._home / 'api_key').read_text().strip()}"}

    async def post(self, path: str, body: Any, **headers: str) -> Any:
        sent = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        async with aiohttp.ClientSession(headers=sent) as http, http.post(self.url + path, json=body) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()

    async def get(self, path: str) -> Any:
        async with aiohttp.ClientSession(headers=self.headers) as http, http.get(self.url + path) as answer:
            return await answer.json()

    async def events(self, path: str, last: str = "") -> AsyncGenerator[tuple[str, str, Any]]:
        """(id, name, data) until the stream ends."""
        headers = {**self.headers, **({"Last-Event-ID": last} if last else {})}
        async with aiohttp.ClientSession(headers=headers) as http, http.get(self.url + path) as answer:
            fields: dict[str, str] = {}
            async for raw in answer.content:
                line = raw.decode().rstrip("\r\n")
                if not line and "data" in fields:
                    yield fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])
                    fields = {}
                elif line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value


@asynccontextmanager
async def daemon(home: Path, model: ModelServer, port: int) -> AsyncGenerator[HttpDaemon]:
    config = {"model": {"base_url": model.url, "name": "big", "api_key": "k"}, "api": {"port": port}}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    running = HttpDaemon(home, port)
    await running.start()
    try:
        yield running
    finally:
        await running.kill()


def is_end(name: str, data: Any) -> bool:
    return name == "run_status" and data["status"] in {"completed", "error", "waiting_on_human"}


async def read(
    daemon: HttpDaemon, path: str, last: str = "", *, until: int | None = None
) -> list[tuple[str, str, Any]]:
    """Durable events: all up to the run's end, or the first `until`."""
    seen: list[tuple[str, str, Any]] = []
    try:
        async with asyncio.timeout(60):
            async for event in daemon.events(path, last):
                if event[1] in DURABLE:
                    seen.append(event)
                if is_end(event[1], event[2]) or (until is not None and len(seen) >= until):
                    return seen
    except (aiohttp.ClientError, ConnectionError):
        pass  # it was killed
    return seen


async def test_a_reader_resumes_over_kill_9_without_gap_or_repeat(home: Path) -> None:
    held = asyncio.Event()
    steps = [
        calls(call("files", {"action": "write", "path": "a.txt", "content": "one"})),
        Reply(text="never seen", before=held.wait),
    ]
    async with ModelServer(steps) as model, daemon(home, model, free_port()) as served:
        sent = await served.post("/v1/deployments/dep_main/messages", {"content": "write it"})
        path = f"/v1/deployments/dep_main/events?run_id={sent['run_id']}"
        await wait_for(lambda: model.count == 2)
        early, broken = await read(served, path, until=2), asyncio.create_task(read(served, path))
        await asyncio.sleep(0)
        model.script = ["done"]
        await served.kill()
        before = await broken
        await served.start()
        rest = await read(served, path, early[-1][0])
        whole = await read(served, path)
        assert early + rest == whole
        assert whole[: len(before)] == before
        names = [name for _, name, _ in whole]
        assert names == ["run_status", "message", "tool_call", "tool_result", "message", "run_status"]
        assert whole[4][2]["content"] == "done"
        assert len({event_id for event_id, _, _ in whole}) == len(whole)
        held.set()


async def test_words_that_were_told_before_kill_9_are_not_told_again(home: Path) -> None:
    held, go_on = asyncio.Event(), asyncio.Event()
    words = Reply(text="Looking at it", chunks=("Looking ", "at it"), between=held.wait)
    look = calls(call("files", {"action": "list"}), text="Looking at it")
    async with ModelServer([words]) as model, daemon(home, model, free_port()) as served:
        sent = await served.post("/v1/deployments/dep_main/messages", {"content": "look"})
        path = f"/v1/deployments/dep_main/events?run_id={sent['run_id']}"
        await wait_for(lambda: model.count == 1)
        model.script = [replace(look, before=go_on.wait), "Nothing there"]
        await served.kill()
        held.set()
        await served.start()
        await wait_for(lambda: model.count == 2)
        told: list[str] = []
        async with asyncio.timeout(60):
            async for _, name, data in served.events(path):
                go_on.set()  # it is heard: the reader is there before the first word
                told += [data["text"]] if name == "token" else []
                if is_end(name, data):
                    break
        assert "".join(told) == "Nothing there"


async def test_a_waiting_run_is_answered_over_http_after_a_restart(home: Path) -> None:
    steps = [calls(call("ask_human", {"question": "red or blue?", "options": ["red", "blue"]})), "blue it is"]
    async with ModelServer(steps) as model, daemon(home, model, free_port()) as served:
        sent = await served.post("/v1/deployments/dep_main/messages", {"content": "choose"})
        run = f"/v1/deployments/dep_main/runs/{sent['run_id']}"
        events = f"/v1/deployments/dep_main/events?run_id={sent['run_id']}"
        assert (await read(served, events))[-1][2]["status"] == "waiting_on_human"
        await served.kill()
        await served.start()
        assert (await served.get(run))["status"] == "waiting_on_human"
        await served.post(f"{run}/steering", {"response": "blue"})
        async with asyncio.timeout(60):
            while (await served.get(run))["status"] != "completed":
                await asyncio.sleep(0.02)
        assert model.calls[-1].messages[-1]["content"] == "blue"


async def test_an_answer_that_nobody_confirmed_is_sent_again_after_kill_9(home: Path) -> None:
    held = asyncio.Event()
    steps = [calls(call("ask_human", {"question": "sure?"})), Reply(text="never seen", before=held.wait)]
    async with ModelServer(steps) as model, daemon(home, model, free_port()) as served:
        sent = await served.post("/v1/deployments/dep_main/messages", {"content": "delete it"})
        run = f"/v1/deployments/dep_main/runs/{sent['run_id']}"
        await until(served, run, "waiting_on_human")
        await served.post(f"{run}/steering", {"response": "yes"}, Idempotency_Key="a1")
        await wait_for(lambda: model.count == 2)
        model.script = ["deleted"]
        await served.kill()
        await served.start()
        again = await served.post(f"{run}/steering", {"response": "yes"}, Idempotency_Key="a1")
        assert again["run_id"] == sent["run_id"]
        await until(served, run, "completed")
        assert [turn["content"] for turn in model.calls[-1].messages if turn["role"] == "tool"] == [
            "The person wrote: yes"
        ]
        held.set()


async def test_the_daemon_fetches_nothing_from_its_own_network(home: Path) -> None:
    async with ModelServer(["I cannot see it."]) as model, daemon(home, model, free_port()) as served:
        inside = {"name": "r.txt", "type": "text/plain", "url": f"{served.url}/healthz"}
        async with aiohttp.ClientSession(headers=served.headers) as http:
            path, body = "/v1/deployments/dep_main/messages", {"content": "read", "attachments": [inside]}
            async with http.post(served.url + path, json=body) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (400, "bad_url")
        named = {**inside, "url": inside["url"].replace("127.0.0.1", "nowhere.invalid")}
        sent = await served.post(path, {"content": "read", "attachments": [named]})
        await until(served, f"/v1/deployments/dep_main/runs/{sent['run_id']}", "completed")
        assert "[file r.txt is not there: " in model.calls[0].messages[-1]["content"]


async def until(daemon: HttpDaemon, run: str, status: str) -> None:
    async with asyncio.timeout(60):
        while (await daemon.get(run))["status"] != status:
            await asyncio.sleep(0.02)


async def wait_for(ready: Any) -> None:
    async with asyncio.timeout(60):
        while not ready():
            await asyncio.sleep(0.01)
