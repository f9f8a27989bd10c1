"""Requests that are sent again, because nobody knows whether the first one arrived."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from gateway.api.http.endpoint import EndpointAccess
from gateway.api.http.idempotency import IDEMPOTENCY
from gateway.api.http.server import ENDPOINTS
from gateway.dispatch import open_dispatch
from gateway.maintenance import Maintenance
from gateway.runs.worker import Worker
from sessions import inbox
from tests.conftest import HandClock
from tests.fakes.model_replies import Reply, call, calls
from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import CHATTER, Gateway, gateway

BASE = "/v1/deployments"
MAIN = f"{BASE}/dep_main"
CHAT = {"messages": [{"role": "user", "content": "blue"}]}
QUESTION = calls(call("ask_human", {"question": "Which?"}))


async def asked(gw: Gateway) -> dict[str, Any]:
    """A run that waits for a human."""
    _, sent, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "paint"})
    return await reached(gw, sent["run_id"], "waiting_on_human")


async def reached(gw: Gateway, run_id: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            _, run, _ = await gw.ask("GET", f"{MAIN}/runs/{run_id}")
            if run["status"] == status:
                return run
            await asyncio.sleep(0.005)


def test_every_post_that_changes_something_can_be_sent_again() -> None:
    posts = [each for each in ENDPOINTS if each.method == "POST" and each.access is EndpointAccess.KEY]
    assert len(posts) >= 7
    assert [each.path for each in posts if IDEMPOTENCY not in each.headers] == []


@pytest.mark.parametrize(("path", "name"), [(BASE, "deployment_id"), (f"{MAIN}/threads", "thread_id")])
async def test_what_is_made_is_made_once(home: Path, database_url: str, path: str, name: str) -> None:
    body = {"name": "acme"} if path == BASE else {"title": "acme"}
    async with gateway(home, database_url=database_url) as gw:
        _, before, _ = await gw.ask("GET", path)
        answers = await asyncio.gather(*(gw.ask("POST", path, body, Idempotency_Key="k") for _ in range(6)))
        assert {status for status, _, _ in answers} == {201}
        assert all(answer == answers[0][1] for _, answer, _ in answers)
        _, after, _ = await gw.ask("GET", path)
        assert len(after["data"]) == len(before["data"]) + 1
        status, answer, _ = await gw.ask("POST", path, {}, Idempotency_Key="k")
        assert (status, answer["error"]["code"]) in {(422, "idempotency_key_reused"), (400, "invalid_value")}
        other = await gw.ask("POST", path, body, Idempotency_Key="k2")
        assert other[1][name] != answers[0][1][name]


async def test_a_message_is_taken_in_once(home: Path, database_url: str) -> None:
    body = {"content": "hi", "thread_id": "new"}
    async with gateway(home, database_url=database_url) as gw:
        answers = await asyncio.gather(
            *(gw.ask("POST", f"{MAIN}/messages", body, Idempotency_Key="k") for _ in range(6))
        )
        assert {status for status, _, _ in answers} == {202}
        assert len({(answer["run_id"], answer["thread_id"]) for _, answer, _ in answers}) == 1
        _, threads, _ = await gw.ask("GET", f"{MAIN}/threads")
        assert len(threads["data"]) == 2  # the default one, and this


async def test_a_key_counts_for_its_owner_and_its_route_only(home: Path) -> None:
    async with gateway(home) as gw:
        dep = (await gw.ask("POST", BASE, {"name": "a"}, Idempotency_Key="k"))[1]["deployment_id"]
        path, other = f"{MAIN}/threads", f"{BASE}/{dep}/threads"
        assert (await gw.ask("POST", path, {}, Idempotency_Key="k"))[0] == 201
        assert (await gw.ask("POST", other, {"title": "x"}, Idempotency_Key="k"))[0] == 201
        assert (await gw.ask("POST", BASE, {"name": "b"}, Idempotency_Key="k"))[0] == 422
        body = {**CHAT, "messages": [{"role": "user", "content": "x"}]}
        for key in ("owner", "chatter"):
            sender = {"key": CHATTER} if key == "chatter" else {}
            status, _, _ = await gw.ask(
                "POST", "/v1/chat/completions", body, X_Hermes_Session_Id="s", Idempotency_Key="k", **sender
            )
            assert status == 200
        assert gw.model.count == 2


async def test_an_answer_that_is_sent_again_is_no_second_answer(home: Path) -> None:
    async with gateway(home, [QUESTION, "Done."]) as gw:
        run = await asked(gw)
        path = f"{MAIN}/runs/{run['run_id']}/steering"
        status, first, _ = await gw.ask("POST", path, {"response": "blue"}, Idempotency_Key="k")
        assert (status, first["run_id"]) == (202, run["run_id"])
        await reached(gw, run["run_id"], "completed")
        status, again, _ = await gw.ask("POST", path, {"response": "blue"}, Idempotency_Key="k")
        assert (status, again["run_id"]) == (202, run["run_id"])
        assert (await gw.ask("POST", path, {"response": "red"}, Idempotency_Key="k"))[0] == 422
        assert (await gw.ask("POST", path, {"response": "blue"}))[0] == 409
        assert (await gw.ask("POST", path, {"response": "blue"}, Idempotency_Key="late"))[0] == 409
        assert gw.model.count == 2


async def test_an_answer_by_message_that_is_sent_again_starts_nothing(home: Path) -> None:
    async with gateway(home, [QUESTION, "Done."]) as gw:
        run = await asked(gw)
        body = {"content": "blue"}
        first = await gw.ask("POST", f"{MAIN}/messages", body, Idempotency_Key="k")
        await reached(gw, run["run_id"], "completed")
        again = await gw.ask("POST", f"{MAIN}/messages", body, Idempotency_Key="k")
        assert (first[0], again[0]) == (202, 202)
        assert first[1]["run_id"] == again[1]["run_id"] == run["run_id"]
        assert again[1]["thread_id"] == first[1]["thread_id"]
        assert gw.model.count == 2


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_an_answer_by_call_that_is_sent_again_gets_the_same_words(home: Path, path: str) -> None:
    def body(text: str) -> dict[str, Any]:
        return {"input": text} if path == "/v1/responses" else {"messages": [{"role": "user", "content": text}]}

    def words(answer: Any) -> Any:
        return answer["output"][0]["content"] if path == "/v1/responses" else answer["choices"][0]["message"]["content"]

    async with gateway(home, [QUESTION, "Blue it is.", "Next."]) as gw:
        _, question, headers = await gw.ask("POST", path, body("go"), X_Hermes_Session_Id="s", Idempotency_Key="1")
        assert headers["X-Hermes-Run-Status"] == "waiting_on_human"
        answers = [
            await gw.ask("POST", path, body("blue"), X_Hermes_Session_Id="s", Idempotency_Key="2") for _ in range(2)
        ]
        assert [status for status, _, _ in answers] == [200, 200]
        assert words(answers[0][1]) == words(answers[1][1]) != words(question)
        assert gw.model.count == 2
        _, again, headers = await gw.ask("POST", path, body("go"), X_Hermes_Session_Id="s", Idempotency_Key="1")
        assert (words(again), headers["X-Hermes-Run-Status"]) == (words(question), "waiting_on_human")
        assert gw.model.count == 2


@pytest.mark.parametrize(
    ("path", "body", "prefix"),
    [("/v1/chat/completions", CHAT, "chatcmpl-"), ("/v1/responses", {"input": "blue"}, "resp_")],
)
async def test_an_answer_that_is_sent_again_keeps_its_ids_and_its_time(
    home: Path, clock: HandClock, path: str, body: dict[str, Any], prefix: str
) -> None:
    async def sent(*, key: str | None, session: str | None, stream: bool = False) -> dict[str, Any]:
        clock.tick(5_000)
        named = {"Idempotency-Key": key, "X-Hermes-Session-Id": session}
        headers = gw.headers() | {name: value for name, value in named.items() if value}
        async with gw.http.post(gw.url + path, json={**body, "stream": stream}, headers=headers) as answer:
            assert answer.status == 200
            if not stream:
                return await answer.json()
            events = [line async for line in answer.content if line.startswith(b"data: {")]
            last = json.loads(events[-1].removeprefix(b"data: "))
            return last.get("response", last)

    async with gateway(home, wall=clock) as gw:
        for stream in (False, True):
            first = await sent(key=f"k{stream}", session="s", stream=stream)
            assert first["id"].startswith(prefix)
            assert await sent(key=f"k{stream}", session="s", stream=stream) == first
        others = [await sent(key=key, session=session) for key, session in [("k", "s"), (None, "s"), ("k", None)] * 2]
        assert len({other["id"] for other in others}) == 5  # only the first of them is recognised


class Slowly:
    """Passes so many words on, and holds the rest of the answer until it is opened."""

    def __init__(self, words: int) -> None:
        self.left = words
        self.open = asyncio.Event()

    async def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            await self.open.wait()


@asynccontextmanager
async def _leaving_early(gw: Gateway) -> AsyncIterator[None]:
    """A worker that does not wait for the end of a step."""
    dispatch = gw.app.dispatch = await open_dispatch(gw.app)
    worker = Worker(gw.app)
    task = asyncio.create_task(worker.run())
    yield
    await worker.drain(0.01)
    await task
    await dispatch.close()


async def _until(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not ready():
            await asyncio.sleep(0.005)


def _streamed(gw: Gateway, path: str) -> Any:
    words = {"input": "tell"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "tell"}]}
    headers = gw.headers(X_Hermes_Session_Id="s", Idempotency_Key="k")
    return gw.http.post(gw.url + path, json={**words, "stream": True}, headers=headers)


def _delta(line: bytes) -> str:
    event = json.loads(line.removeprefix(b"data: "))
    if event.get("type") == "response.output_text.delta":
        return event["delta"]
    return "".join(choice["delta"].get("content", "") for choice in event.get("choices", ()))


async def _words(answer: Any) -> AsyncIterator[str]:
    async for line in answer.content:
        if line.startswith(b"data: {") and (text := _delta(line)):
            yield text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_streamed_call_that_is_repeated_in_the_middle_gets_all_of_the_answer(home: Path, path: str) -> None:
    """The first reader has left after some words of the second step; the run goes on, and the repeat is told both steps."""
    slowly = Slowly(2)
    looking = Reply(text="I will look.", tool_calls=(call("memory", {"action": "list"}),))
    script = [looking, Reply(text="one two three four five", between=slowly)]
    async with gateway(home, script) as gw:
        async with _streamed(gw, path) as first:
            heard = ""
            async for text in _words(first):
                heard += text
                if "one two" in heard:
                    break
        async with _streamed(gw, path) as again:
            repeated = ""
            async for text in _words(again):
                repeated += text
                slowly.open.set()
        assert repeated == "I will look.\n\none two three four five"
        assert heard == repeated[: len(heard)]
        assert gw.model.count == 2


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_also_when_another_process_took_over_in_between(home: Path, path: str) -> None:
    """What the first process has committed stands in the journal; the step that it was in the middle of is made again."""
    never, slowly = asyncio.Event(), Slowly(2)
    looking = Reply(text="I will look.", tool_calls=(call("memory", {"action": "list"}),))
    script = [looking, Reply(text="lost", before=never.wait), Reply(text="one two three", between=slowly)]
    async with ModelServer(script) as model:
        async with gateway(home, model=model, works=False) as gw, _leaving_early(gw), _streamed(gw, path) as first:
            assert "I will look.".startswith(await anext(_words(first)))
            await _until(lambda: model.count == 2)
        async with gateway(home, model=model) as gw:
            await _until(lambda: slowly.left < 0)
            async with _streamed(gw, path) as again:
                repeated = ""
                async for text in _words(again):
                    repeated += text
                    slowly.open.set()
    assert repeated == "I will look.\n\none two three"


async def test_a_run_is_cancelled_once(home: Path) -> None:
    async with gateway(home, [Reply(text="never", before=asyncio.Event().wait), "next"]) as gw:
        _, sent, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "x"})
        path = f"{MAIN}/runs/{sent['run_id']}/cancel"
        answers = [await gw.ask("POST", path, Idempotency_Key="k") for _ in range(2)]
        assert [(status, run["stop_reason"]) for status, run, _ in answers] == [(202, "cancelled")] * 2


async def test_a_thread_that_is_gone_is_not_made_again(home: Path) -> None:
    async with gateway(home) as gw:
        _, made, _ = await gw.ask("POST", f"{MAIN}/threads", {}, Idempotency_Key="k")
        assert (await gw.ask("DELETE", f"{MAIN}/threads/{made['thread_id']}"))[0] == 204
        assert (await gw.ask("POST", f"{MAIN}/threads", {}, Idempotency_Key="k"))[0] == 404


DAY = 24 * 3600 * 1000


async def test_what_was_made_is_remembered_for_a_week(home: Path, database_url: str, clock: HandClock) -> None:
    async def made(key: str) -> str:
        answers = [await gw.ask("POST", path, {}, Idempotency_Key=key) for path in (f"{MAIN}/threads", cancel)]
        assert [status for status, _, _ in answers] == [201, 202]
        return answers[0][1]["thread_id"]

    async with gateway(home, database_url=database_url, wall=clock) as gw:
        _, sent, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "hi"})
        cancel = f"{MAIN}/runs/{sent['run_id']}/cancel"
        await reached(gw, sent["run_id"], "completed")
        old = await made("old")
        clock.tick(6 * DAY)
        new = await made("new")
        clock.tick(DAY + 1)
        async with kept_up(gw, clock), asyncio.timeout(60):
            while await made("old") == old:
                await asyncio.sleep(0.005)
        assert await made("new") == new
        assert await gw.database.read(notes_of, sent["run_id"]) == 2  # they go with their run


def notes_of(conn: Connection, run_id: str) -> int:
    return sum(
        inbox.by_dedup_key(conn, f"http:owner:{MAIN}/runs/{run_id}/cancel:{key}") is not None for key in ("old", "new")
    )


@asynccontextmanager
async def kept_up(gw: Gateway, clock: HandClock) -> AsyncIterator[None]:
    gw.app.clock = clock
    upkeep = Maintenance(gw.app)
    task = asyncio.create_task(upkeep.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await upkeep.close()


@pytest.mark.parametrize("key", ["", "with space", "é", "x" * 257])
async def test_a_key_that_cannot_be_one_is_refused(home: Path, key: str) -> None:
    async with gateway(home) as gw:
        for path, body in ((BASE, {"name": "a"}), ("/v1/chat/completions", CHAT)):
            assert (await gw.ask("POST", path, body, Idempotency_Key=key))[0] == 400
