"""Deployments, threads, runs and their events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.api.http.server_state import Intervals
from tests.fakes.model_replies import Reply, call, calls
from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import CHATTER, OTHER, OWNER, READER, Gateway, gateway

BASE = "/v1/deployments"


async def made(gw: Gateway, **fields: Any) -> dict[str, Any]:
    status, answer, _ = await gw.ask("POST", BASE, {"name": "acme", **fields})
    assert status == 201, answer
    return answer


async def send(gw: Gateway, deployment: str, content: str = "hi", **fields: Any) -> dict[str, Any]:
    status, answer, _ = await gw.ask("POST", f"{BASE}/{deployment}/messages", {"content": content, **fields})
    assert status == 202, answer
    return answer


async def settled(gw: Gateway, deployment: str, run_id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            _, run, _ = await gw.ask("GET", f"{BASE}/{deployment}/runs/{run_id}")
            if run["status"] != "running":
                return run
            await asyncio.sleep(0.01)


class Events:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def next(self) -> tuple[int, str, dict[str, Any]]:
        async with asyncio.timeout(60):
            while True:
                block = (await self._answer.content.readuntil(b"\n\n")).decode().splitlines()
                if not block[0].startswith(":"):
                    found = dict(line.split(": ", 1) for line in block if line)
                    return int(found["id"]), found["event"], json.loads(found["data"])

    async def until(self, kind: str, **fields: Any) -> list[tuple[int, str, dict[str, Any]]]:
        seen = []
        while True:
            seen.append(await self.next())
            if seen[-1][1] == kind and fields.items() <= seen[-1][2].items():
                return seen


@asynccontextmanager
async def events(gw: Gateway, deployment: str, query: str = "", **headers: str) -> AsyncIterator[Events]:
    sent = gw.headers(OWNER, **headers)
    async with gw.http.get(f"{gw.url}{BASE}/{deployment}/events{query}", headers=sent) as answer:
        assert answer.status == 200
        await answer.content.readuntil(b"\n\n")
        yield Events(answer)


async def test_a_deployment_answers_in_its_own_character(home: Path) -> None:
    async with gateway(home, ["Ahoy."]) as gw:
        dep = await made(gw, system_prompt="You are a pirate.", model="small", customer_id="c-1")
        assert dep["status"] == "ready"
        assert dep["events"] == {"transport": "sse", "url": f"{BASE}/{dep['deployment_id']}/events"}
        sent = await send(gw, dep["deployment_id"])
        assert sent["thread_id"] == dep["thread_id"]
        run = await settled(gw, dep["deployment_id"], sent["run_id"])
        assert (run["status"], run["stop_reason"], run["error"]) == ("completed", "done", None)
        assert run["usage"]["total_tokens"] > 0
        assert gw.model.bodies[0]["model"] == "small"
        assert "pirate" in gw.model.calls[0].messages[0]["content"]
        _, thread, _ = await gw.ask("GET", f"{BASE}/{dep['deployment_id']}/threads/{sent['thread_id']}")
        assert [(m["role"], m["content"]) for m in thread["messages"]] == [("user", "hi"), ("agent", "Ahoy.")]
        assert thread["status"] == "idle"
        assert thread["message_count"] == 2


async def test_dep_main_is_always_there_and_belongs_to_the_configuration(home: Path) -> None:
    async with gateway(home) as gw:
        _, listed, _ = await gw.ask("GET", BASE)
        assert [row["deployment_id"] for row in listed["data"]] == ["dep_main"]
        sent = await send(gw, "dep_main")
        await settled(gw, "dep_main", sent["run_id"])
        for method, body in (("PATCH", {"name": "x"}), ("DELETE", None)):
            status, _, _ = await gw.ask(method, f"{BASE}/dep_main", body)
            assert status == 409
        status, refused, _ = await gw.ask("DELETE", f"{BASE}/dep_main/threads/{sent['thread_id']}")
        assert (status, refused["error"]["code"]) == (409, "default_thread")


async def test_lists_go_on_with_a_cursor(home: Path) -> None:
    async with gateway(home) as gw:
        names = [(await made(gw, name=f"d{n}"))["deployment_id"] for n in range(5)]
        dep = names[0]
        for _ in range(4):
            await gw.ask("POST", f"{BASE}/{dep}/threads", {})
        for path, count, name in ((BASE, 6, "deployment_id"), (f"{BASE}/{dep}/threads", 5, "thread_id")):
            found, cursor = [], ""
            while cursor is not None:
                _, page, _ = await gw.ask("GET", f"{path}?limit=2" + (f"&cursor={cursor}" if cursor else ""))
                found += [row[name] for row in page["data"]]
                cursor = page["next_cursor"]
            assert len(found) == len(set(found)) == count


async def test_threads_are_renamed_and_deleted_without_a_trace(home: Path) -> None:
    async with gateway(home) as gw:
        dep = (await made(gw))["deployment_id"]
        sent = await send(gw, dep, "the secret word is xyzzy", thread_id="new")
        await settled(gw, dep, sent["run_id"])
        path = f"{BASE}/{dep}/threads/{sent['thread_id']}"
        status, row, _ = await gw.ask("PATCH", path, {"title": "Plans"})
        assert {"deployment_id", "created_at", "last_activity_at"} <= row.keys()
        assert (status, row["title"]) == (200, "Plans")
        assert (await gw.ask("DELETE", path))[0] == 204
        assert (await gw.ask("GET", path))[0] == 404
        assert (await gw.ask("GET", f"{BASE}/{dep}/runs/{sent['run_id']}"))[0] == 404
        assert not any(b"xyzzy" in file.read_bytes() for file in home.rglob("*") if file.is_file())
        assert (await gw.ask("DELETE", f"{BASE}/{dep}"))[0] == 204
        assert (await gw.ask("GET", f"{BASE}/{dep}"))[0] == 404


async def test_a_message_to_a_busy_thread_joins_its_run(home: Path) -> None:
    gate = asyncio.Event()
    script = [Reply(tool_calls=(call("files", {"action": "list"}),), before=gate.wait), "both"]
    async with gateway(home, script) as gw:
        dep = (await made(gw))["deployment_id"]
        first = await send(gw, dep, "one")
        second = await send(gw, dep, "two")
        assert second["run_id"] == first["run_id"]
        gate.set()
        await settled(gw, dep, first["run_id"])
        assert "two" in json.dumps(gw.model.calls[-1].messages)


@pytest.mark.parametrize("way", ["steering", "message"])
async def test_a_waiting_run_is_answered_after_a_restart(home: Path, way: str) -> None:
    async with ModelServer([calls(call("ask_human", {"question": "Go?", "options": ["yes", "no"]})), "Gone."]) as model:
        async with gateway(home, model=model) as gw:
            dep = (await made(gw))["deployment_id"]
            async with events(gw, dep) as stream:
                sent = await send(gw, dep)
                seen = await stream.until("steering_request")
            asked = seen[-1][2]
            assert (asked["question"], asked["options"]) == ("Go?", ["yes", "no"])
            assert (await settled(gw, dep, sent["run_id"]))["status"] == "waiting_on_human"
        async with gateway(home, model=model) as gw:
            if way == "message":
                assert (await send(gw, dep, "yes"))["run_id"] == sent["run_id"]
            else:
                path = f"{BASE}/{dep}/runs/{sent['run_id']}/steering"
                assert (await gw.ask("POST", path, {"response": "yes", "request_id": "999"}))[0] == 409
                assert (await gw.ask("POST", path, {"response": "yes", "request_id": asked["request_id"]}))[0] == 202
            assert (await settled(gw, dep, sent["run_id"]))["status"] == "completed"
            assert (await gw.ask("POST", f"{BASE}/{dep}/runs/{sent['run_id']}/steering", {"response": "x"}))[0] == 409


async def test_a_thread_shows_what_was_asked_and_answered(home: Path, database_url: str) -> None:
    both = (call("files", {"action": "list"}), call("ask_human", {"question": "Go?", "options": ["yes", "no"]}))
    async with gateway(home, [calls(*both), "Gone."], database_url=database_url) as gw:
        dep = (await made(gw))["deployment_id"]
        sent = await send(gw, dep, "leave")
        await settled(gw, dep, sent["run_id"])
        asked = [("user", "leave"), ("agent", "Go?\n1. yes\n2. no")]
        assert await thread_messages(gw, dep, sent["thread_id"], sent["run_id"]) == asked
        await gw.ask("POST", f"{BASE}/{dep}/runs/{sent['run_id']}/steering", {"response": "yes"})
        await settled(gw, dep, sent["run_id"])
        answered = [*asked, ("user", "yes"), ("agent", "Gone.")]
        assert await thread_messages(gw, dep, sent["thread_id"], sent["run_id"]) == answered


async def test_a_question_that_nobody_answered_stays_in_its_thread(home: Path) -> None:
    async with gateway(home, [calls(call("ask_human", {"question": "Go?"}))]) as gw:
        dep = (await made(gw))["deployment_id"]
        sent = await send(gw, dep, "leave")
        await settled(gw, dep, sent["run_id"])
        await gw.ask("POST", f"{BASE}/{dep}/runs/{sent['run_id']}/cancel")
        turns = await thread_messages(gw, dep, sent["thread_id"], sent["run_id"])
        assert turns == [("user", "leave"), ("agent", "Go?"), ("agent", "[stopped by the user]")]


async def thread_messages(gw: Gateway, deployment: str, thread_id: str, run_id: str) -> list[tuple[str, str]]:
    """Who said what in a thread that has one run; its row in the list counts the same."""
    _, thread, _ = await gw.ask("GET", f"{BASE}/{deployment}/threads/{thread_id}")
    _, listed, _ = await gw.ask("GET", f"{BASE}/{deployment}/threads")
    counts = {row["thread_id"]: row["message_count"] for row in listed["data"]}
    assert thread["message_count"] == counts[thread_id] == len(thread["messages"])
    assert all(message["run_id"] == run_id for message in thread["messages"])
    times = [message["created_at"] for message in thread["messages"]]
    assert times == sorted(times)
    return [(message["role"], message["content"]) for message in thread["messages"]]


async def test_a_run_is_cancelled(home: Path) -> None:
    async with gateway(home, [Reply(text="never", before=asyncio.Event().wait)]) as gw:
        dep = (await made(gw))["deployment_id"]
        sent = await send(gw, dep)
        status, run, _ = await gw.ask("POST", f"{BASE}/{dep}/runs/{sent['run_id']}/cancel")
        assert (status, run["status"], run["stop_reason"]) == (202, "completed", "cancelled")


async def test_an_answer_that_was_cut_off_has_used_up_its_budget(home: Path) -> None:
    async with gateway(home, [Reply(text="and then", finish_reason="length")]) as gw:
        sent = await send(gw, "dep_main", "a tale")
        run = await settled(gw, "dep_main", sent["run_id"])
        assert (run["status"], run["stop_reason"]) == ("completed", "budget")


async def test_events_tell_the_whole_run_in_order(home: Path) -> None:
    script = [calls(call("files", {"action": "list"}), text="Looking."), "No files yet."]
    async with gateway(home, script) as gw:
        dep = (await made(gw))["deployment_id"]
        async with events(gw, dep) as stream:
            sent = await send(gw, dep, "which files?")
            seen = await stream.until("run_status", status="completed")
        kinds = [kind for _, kind, _ in seen]
        assert [kind for kind in kinds if kind != "token"] == [
            "run_status", "message", "tool_call", "tool_result", "message", "run_status",
        ]  # fmt: skip
        before_call = kinds[: kinds.index("tool_call")]
        words = "".join(data["text"] for _, kind, data in seen if kind == "token")
        assert words == "Looking.No files yet."
        assert "token" in before_call
        assert kinds[-3] == "token"
        assert all(data["run_id"] == sent["run_id"] for _, _, data in seen)
        numbers = [number for number, _, _ in seen]
        assert numbers == sorted(numbers)


async def test_readers_resume_without_gap_or_repeat_over_a_restart(home: Path) -> None:
    async with ModelServer() as model:
        async with gateway(home, model=model) as gw:
            dep = (await made(gw))["deployment_id"]
            async with events(gw, dep) as stream:
                first = await send(gw, dep, "one")
                seen = await stream.until("run_status", status="completed")
            missed = await send(gw, dep, "two")
            await settled(gw, dep, missed["run_id"])
        async with gateway(home, model=model) as gw, events(gw, dep, Last_Event_ID=str(seen[-1][0])) as stream:
            seen += await stream.until("run_status", status="completed")
            third = await send(gw, dep, "three")
            seen += await stream.until("run_status", run_id=third["run_id"], status="completed")
            stored = [number for number, kind, _ in seen if kind != "token"]
            assert len(stored) == len(set(stored)) == 12
            async with events(gw, dep, f"?run_id={first['run_id']}") as again:
                replayed = await again.until("run_status", status="completed")
            assert list(replayed) == [e for e in seen if e[1] != "token" and e[2]["run_id"] == first["run_id"]]


async def test_a_quiet_stream_has_comments(home: Path) -> None:
    async with gateway(home, intervals=Intervals(heartbeat=0.02)) as gw:
        dep = (await made(gw))["deployment_id"]
        async with gw.http.get(f"{gw.url}{BASE}/{dep}/events", headers=gw.headers()) as answer:
            await answer.content.readuntil(b"\n\n")
            assert await answer.content.readuntil(b"\n\n") == b": keep-alive\n\n"


async def test_messages_are_idempotent_for_each_key_and_route(home: Path) -> None:
    async with gateway(home) as gw:
        dep = (await made(gw))["deployment_id"]
        path, body = f"{BASE}/{dep}/messages", {"content": "hi", "thread_id": "new"}
        one = await gw.ask("POST", path, body, Idempotency_Key="k")
        two = await gw.ask("POST", path, body, Idempotency_Key="k")
        assert (one[1]["run_id"], one[1]["thread_id"]) == (two[1]["run_id"], two[1]["thread_id"])
        assert (await gw.ask("POST", path, {"content": "other"}, Idempotency_Key="k"))[0] == 422


async def test_keys_see_only_what_is_theirs(home: Path) -> None:
    async with gateway(home) as gw:
        dep = (await made(gw))["deployment_id"]
        assert (await gw.ask("GET", f"{BASE}/{dep}", key=OTHER))[0] == 404
        assert (await gw.ask("GET", f"{BASE}/dep_main", key=OTHER))[0] == 404
        assert (await gw.ask("GET", BASE, key=OTHER))[1]["data"] == []
        assert (await gw.ask("POST", BASE, {"name": "x"}, key=CHATTER))[0] == 403
        assert (await gw.ask("POST", f"{BASE}/{dep}/messages", {"content": "x"}, key=READER))[0] == 403
        assert (await gw.ask("DELETE", f"{BASE}/{dep}", key=OTHER))[0] == 403


async def test_five_hundred_readers_cost_one_read_each_change(home: Path) -> None:
    async with gateway(home) as gw:
        dep = (await made(gw))["deployment_id"]
        ready = asyncio.Semaphore(0)

        async def follow() -> str:
            async with events(gw, dep) as stream:
                ready.release()
                seen = await stream.until("run_status", status="completed")
            return json.dumps([each for each in seen if each[1] != "token"])

        tasks = [asyncio.create_task(follow()) for _ in range(500)]
        for _ in tasks:
            await ready.acquire()
        reads = 0
        real = gw.database.read_now

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal reads
            reads += 1
            return real(*args, **kwargs)

        gw.database.read_now = counted  # type: ignore[method-assign]
        await send(gw, dep)
        assert len(set(await asyncio.gather(*tasks))) == 1
        assert reads < 40


async def test_what_is_blank_is_refused_in_words(home: Path) -> None:
    async with gateway(home) as gw:
        body = {"name": " ", "schedule": "@daily", "prompt": "x"}
        status, refused, _ = await gw.ask("POST", "/api/jobs", body)
        assert (status, refused["error"]["message"]) == (400, "name: it must hold more than blanks")
