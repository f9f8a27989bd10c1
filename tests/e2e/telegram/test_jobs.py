"""Jobs from the wire to the chat: made over HTTP, on the command line, by the agent; fired by the clock."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, select

from gateway.texts import say
from sessions import jobs
from sessions.db.schema import job_slots
from tests.conftest import HandClock
from tests.e2e.telegram.daemon import Scene, scene
from tests.e2e.test_daemon import hermes
from tests.fakes.model_replies import Failure, Reply, call, calls
from tests.fakes.model_server import ModelServer

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
WEEKLY = {"name": "weekly-pattern-report", "schedule": "0 9 * * 1", "prompt": "Which patterns were there this week?"}


class JobAgent:
    """Makes a job when it is asked to, and answers everything else with what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[list[dict[str, Any]]] = []
        self.makes: dict[str, Any] = {}
        self.says: str | Failure = ""

    def __call__(self, body: dict[str, Any]) -> Reply | Failure:
        messages = body["messages"]
        self.prompts.append(messages)
        last = messages[-1]
        if isinstance(self.says, Failure):
            return self.says
        if last["role"] == "tool":
            return Reply(text=str(last["content"]))
        text = str(last["content"]).rpartition("\n")[2]
        if text == "make it":
            return calls(call("schedule", {"action": "create", **self.makes}))
        return Reply(text=self.says or f"answer to {text}")


@asynccontextmanager
async def at_home(
    home: Path, clock: HandClock, **more: Any
) -> AsyncGenerator[tuple[Scene, JobAgent, httpx.AsyncClient]]:
    agent = JobAgent()
    async with ModelServer(agent) as model:
        sections = {
            "model": {"base_url": model.url, "name": "big", "api_key": "k"},
            "session_reset": {"mode": "none", "timezone": "UTC"},
            **more,
        }
        async with scene(home, clock=clock, sections=sections) as s:
            key = (home / "api_key").read_text().strip()
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(base_url=s.serving.url, headers=headers) as http:
                yield s, agent, http


async def over(s: Scene, count: int) -> list[str]:
    """Until so many slots are over. Their statuses, oldest first."""

    def read(conn: Connection) -> list[str]:
        return list(conn.scalars(select(job_slots.c.status).order_by(job_slots.c.id)))

    async with asyncio.timeout(30):
        while (
            len(found := [each for each in await s.app.database.read(read) if each not in {"queued", "running"}])
            < count
        ):
            await asyncio.sleep(0.01)
    return found


async def fires(s: Scene, clock: HandClock) -> None:
    """The clock goes to the next slot of any job."""
    moments = [job.next_run_at for job in await s.app.database.read(jobs.listing) if job.next_run_at is not None]
    clock.now = min(moments)
    await s.serving.jobs.tick()


async def test_as_in_the_article(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, http):
        url = f"{s.serving.url}/api/jobs"
        headers = {"Authorization": http.headers["Authorization"]}
        made = await asyncio.to_thread(lambda: httpx.post(url, headers=headers, json=WEEKLY))
        assert made.status_code == 200, made.text
        job = made.json()["job"]
        assert len(job["id"]) == 12
        assert (job["schedule"], job["schedule_display"]) == (
            {"kind": "cron", "expr": "0 9 * * 1", "minutes": None, "run_at": None},
            "At 09:00, only on Monday",
        )
        assert (job["enabled"], job["state"], job["deliver"]) == (True, "scheduled", "local")
        assert job["repeat"] == {"times": None, "completed": 0}
        assert job["session_key"] == f"agent:main:job:{job['id']}"
        assert f"`hermes jobs show {job['id']}` prints them" in job["destination"]
        assert f"GET /api/jobs/{job['id']}/runs" in job["destination"]
        assert job["next_run_at"].startswith("2025-06-16T09:00:00")
        assert [each[:16] for each in job["next_runs"]] == ["2025-06-16T09:00", "2025-06-23T09:00", "2025-06-30T09:00"]
        for week in (1, 2):
            await fires(s, clock)
            assert await over(s, week) == ["ok"] * week
        second = agent.prompts[-1]
        assert str(second[-1]["content"]).endswith(f"\n\n{WEEKLY['prompt']}")
        # It knows the last report.
        assert any(f"answer to {WEEKLY['prompt']}" in str(each["content"]) for each in second)
        runs = (await http.get(f"/api/jobs/{job['id']}/runs")).json()["runs"]
        assert [(run["status"], run["output"]) for run in runs] == [("ok", f"answer to {WEEKLY['prompt']}")] * 2
        shown = (await hermes(home, "jobs", "show", job["id"]))[1]
        assert shown.count(f"answer to {WEEKLY['prompt']}") == 2
        job = (await http.get(f"/api/jobs/{job['id']}")).json()["job"]
        assert (job["repeat"]["completed"], job["last_status"]) == (2, "ok")
        assert s.server.answers(s.dm.id) == []
        metrics = (await http.get("/metrics")).text
        assert 'hermes_job_slots_total{outcome="ran"} 2.0' in metrics


async def test_its_life_over_http(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, _, http):
        job = (await http.post("/api/jobs", json={**WEEKLY, "repeat": 3, "timezone": "Europe/Berlin"})).json()["job"]
        assert (job["timezone"], job["repeat"]["times"]) == ("Europe/Berlin", 3)
        at = f"/api/jobs/{job['id']}"
        assert (await http.post(f"{at}/pause")).json()["job"]["state"] == "paused"
        assert (await http.get("/api/jobs")).json() == {"jobs": []}
        assert len((await http.get("/api/jobs?include_disabled=true")).json()["jobs"]) == 1
        assert (await http.post(f"{at}/resume")).json()["job"]["state"] == "scheduled"
        changed = (await http.patch(at, json={"schedule": "every 2h", "name": "other"})).json()["job"]
        assert (changed["name"], changed["schedule"]["minutes"], changed["schedule_display"]) == (
            "other",
            120,
            "Every 2 hours",
        )
        assert (await http.post(f"{at}/run")).status_code == 200
        await s.serving.jobs.tick()
        assert await over(s, 1) == ["ok"]
        gone = await http.delete(at)
        assert (gone.status_code, gone.json()["job"]["id"]) == (200, job["id"])
        assert (await http.get(at)).status_code == 404
        assert (await http.post(f"{at}/run")).status_code == 404
        used_up = (await http.post("/api/jobs", json={**WEEKLY, "repeat": 1})).json()["job"]
        await fires(s, clock)
        assert await over(s, 1) == ["ok"]
        refused = await http.patch(f"/api/jobs/{used_up['id']}", json={"name": "new name", "enabled": True})
        assert refused.status_code == 400
        unchanged = (await http.get(f"/api/jobs/{used_up['id']}")).json()["job"]
        assert (unchanged["name"], unchanged["state"]) == (WEEKLY["name"], "completed")


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"schedule": "0 9 * * 8"}, "weekday"),
        ({"schedule": "whenever"}, "is no schedule"),
        ({"schedule": "* * * * * *"}, "five fields"),
        ({"timezone": "Europe/Londn"}, "no time zone"),
        ({"deliver": "pigeon:7"}, "deliver cannot be"),
        ({"name": ""}, "name"),
        ({"prompt": "x" * 20_001}, "prompt"),
        ({"repeat": 0}, "repeat"),
        ({"colour": "red"}, "colour"),
        ({"schedule": "9999-12-31T23:59:59-14:00"}, "too far away"),
        ({"session_id": "agent:main:cli:x"}, "terminal"),
        ({"session_id": "agent:main:thread:thread_0123456789abcdef01234567"}, "no thread"),
    ],
)
async def test_what_is_wrong_is_a_400_with_the_reason(home: Path, clock: HandClock, field: dict[str, Any], why: str):
    async with at_home(home, clock) as (_, __, http):
        answer = await http.post("/api/jobs", json={**WEEKLY, **field})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert why in f"{error['message']} {error['param']}"


async def test_a_key_without_admin_has_no_jobs(home: Path, clock: HandClock):
    keys = {"api": {"port": 0, "keys": [{"name": "reader", "key": "r" * 32, "scopes": ["chat", "read"]}]}}
    agent = JobAgent()
    async with ModelServer(agent) as model:
        sections = {"model": {"base_url": model.url, "name": "big", "api_key": "k"}, **keys}
        async with (
            scene(home, clock=clock, sections=sections) as s,
            httpx.AsyncClient(base_url=s.serving.url, headers={"Authorization": f"Bearer {'r' * 32}"}) as http,
        ):
            assert (await http.get("/api/jobs")).status_code == 403
            assert (await http.post("/api/jobs", json=WEEKLY)).status_code == 403


async def test_it_delivers_to_a_chat_and_keeps_quiet_when_there_is_nothing(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, http):
        await s.answer_to("hello")
        body = {"name": "news", "schedule": "every 30m", "prompt": "news?", "deliver": "telegram"}
        assert (await http.post("/api/jobs", json=body)).status_code == 200
        await fires(s, clock)
        assert (await s.server.answered(s.dm.id, 2))[-1] == "answer to news?"
        agent.says = "NO_REPLY"
        await fires(s, clock)
        assert await over(s, 2) == ["ok", "ok"]
        agent.says = ""
        assert await s.answer_to("still there?") == "answer to still there?"
        assert len(s.server.answers(s.dm.id)) == 3


async def test_the_agent_makes_one_in_a_chat_and_the_answer_comes_there(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, _):
        agent.makes = {"name": "morning", "schedule": "0 9 * * 1-5", "prompt": "summarise the mails"}
        made = await s.answer_to("make it")
        assert "At 09:00, Monday through Friday" in made
        assert "Next: Mon 16 Jun 2025 09:00, Tue 17 Jun 2025 09:00, Wed 18 Jun 2025 09:00" in made
        listed = await s.answer_to("/jobs")
        assert "“morning”" in listed
        assert "next Mon 16 Jun 2025 09:00" in listed
        await fires(s, clock)
        assert (await s.server.answered(s.dm.id, 3))[-1] == "answer to summarise the mails"
        (job,) = await s.app.database.read(jobs.listing)
        assert (job.deliver, job.ns) == ("telegram:7", "agent:main")
        assert await s.answer_to(f"/jobs pause {job.id[:5]}") == say("job.did_pause", name="morning")
        assert "paused" in await s.answer_to("/jobs")
        assert await s.answer_to("/jobs delete morning") == say("job.did_delete", name="morning")
        assert await s.answer_to("/jobs") == say("job.none")


async def test_who_only_talks_has_so_many_jobs_and_an_operator_more(home: Path, clock: HandClock):
    async with at_home(home, clock, limits={"jobs_per_creator": 1, "jobs": 3}) as (s, agent, http):
        agent.makes = {"name": "morning", "schedule": "0 9 * * 1-5", "prompt": "summarise the mails"}
        assert (await s.answer_to("make it")).startswith("Created.")
        assert "limits.jobs_per_creator" in await s.answer_to("make it")
        answers = [await http.post("/api/jobs", json=WEEKLY) for _ in range(3)]
        assert [each.status_code for each in answers] == [200, 200, 409]
        assert "limits.jobs" in answers[-1].json()["error"]["message"]


async def test_in_a_session_of_ones_own_and_in_a_thread_with_its_events(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, http):
        said = {"model": "big", "messages": [{"role": "user", "content": "I am Ann"}]}
        await http.post("/v1/chat/completions", json=said, headers={"X-Hermes-Session-Id": "mine"})
        made = await http.post("/api/jobs", json={**WEEKLY, "schedule": "every 30m", "session_id": "mine"})
        assert made.json()["job"]["session_key"] == "agent:main:api:local:mine"
        await fires(s, clock)
        assert await over(s, 1) == ["ok"]
        assert any("I am Ann" in str(each["content"]) for each in agent.prompts[-1])
        await http.delete(f"/api/jobs/{made.json()['job']['id']}")
        thread = (await http.post("/v1/deployments/dep_main/threads", json={})).json()["thread_id"]
        key = f"agent:main:thread:{thread}"
        await http.post("/api/jobs", json={**WEEKLY, "schedule": "every 30m", "session_id": key})
        lines: list[str] = []
        async with http.stream("GET", f"/v1/deployments/dep_main/events?thread_id={thread}", timeout=30) as stream:
            read = stream.aiter_lines()
            await anext(read)  # open
            await fires(s, clock)
            async for line in read:
                lines.append(line)
                if "completed" in line:
                    break
        kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        assert kinds[0] == "run_status"
        assert "message" in kinds
        found = (await http.get(f"/v1/deployments/dep_main/threads/{thread}")).json()
        assert [message["role"] for message in found["messages"]] == ["user", "agent"]


async def events_of(http: httpx.AsyncClient, address: str, fire: Callable[[], Awaitable[None]]) -> list[dict[str, Any]]:
    """The data of the events until a run is completed."""
    async with http.stream("GET", address, timeout=30) as stream:
        read = stream.aiter_lines()
        await anext(read)  # open
        await fire()
        found: list[dict[str, Any]] = []
        async for line in read:
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
                if found[-1].get("status") == "completed":
                    return found
    raise AssertionError("the stream ended")


async def test_a_job_of_a_deployment_shows_there(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, http):
        body = {"name": "support", "system_prompt": "You are the support."}
        made = (await http.post("/v1/deployments", json=body)).json()
        place, thread = f"/v1/deployments/{made['deployment_id']}", made["thread_id"]
        for more in ({}, {"thread_id": thread}):
            wanted = {**WEEKLY, "schedule": "every 30m", "deployment_id": made["deployment_id"], **more}
            job = (await http.post("/api/jobs", json=wanted)).json()["job"]
            assert (job["deployment_id"], job["thread_id"]) == (made["deployment_id"], more.get("thread_id"))
            seen = await events_of(http, f"{place}/events", lambda: fires(s, clock))
            assert {event["run_id"] for event in seen} == {seen[0]["run_id"]}
            run = await http.get(f"{place}/runs/{seen[0]['run_id']}")
            assert (run.status_code, run.json()["status"]) == (200, "completed")
            assert "You are the support." in str(agent.prompts[-1][0]["content"])
            await http.delete(f"/api/jobs/{job['id']}")
        assert len((await http.get(f"{place}/threads/{thread}")).json()["messages"]) == 2
        for wrong in (
            {"deployment_id": f"dep_{'0' * 24}"},
            {"thread_id": thread},
            {"session_id": "x", "thread_id": thread},
        ):
            assert (await http.post("/api/jobs", json={**WEEKLY, **wrong})).status_code in {404, 409}


async def test_the_session_of_a_job_may_stand_in_the_header_and_is_no_other_keys(home: Path, clock: HandClock):
    keys = [{"name": name, "key": name * 32, "scopes": ["chat", "read", "admin"]} for name in "ab"]
    (home / "api_key").write_text("a" * 32)  # what `at_home` sends
    async with at_home(home, clock, api={"port": 0, "keys": keys}) as (_, __, http):
        made = await http.post("/api/jobs", json=WEEKLY, headers={"X-Hermes-Session-Id": "user:1"})
        assert made.json()["job"]["session_key"] == "agent:main:api:a:user:1"
        for key, status in (("agent:main:api:b:user:1", 403), ("agent:main:api:a:user:2", 200)):
            assert (await http.post("/api/jobs", json={**WEEKLY, "session_id": key})).status_code == status
        both = await http.post("/api/jobs", json={**WEEKLY, "session_id": "x"}, headers={"X-Hermes-Session-Id": "y"})
        assert both.status_code == 409


async def test_what_the_command_line_makes_goes_to_the_owners_chat_where_there_is_one(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, _, __):
        add = ("jobs", "add", "news", "every 30m", "news?")
        assert "prints them, and an open terminal shows them." in (await hermes(home, *add, "--deliver", "local"))[1]
        assert "prints them" in (await hermes(home, *add))[1]
        await s.answer_to("hello")
        code, said = await hermes(home, *add)
        assert (code, said.splitlines()[-1]) == (0, "Its answers are sent to telegram.")


async def test_three_failures_in_a_row_are_one_line_to_the_owner(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, http):
        await s.answer_to("hello")
        await http.post("/api/jobs", json={**WEEKLY, "schedule": "@hourly"})
        agent.says = Failure(status=400, message="no such thing")
        for count in range(1, 5):
            await fires(s, clock)
            assert await over(s, count) == ["error"] * count
            await s.serving.jobs.tick()
        answers = await s.server.answered(s.dm.id, 2)
        assert answers[-1].startswith("“weekly-pattern-report” failed three times in a row:")
        agent.says = ""
        assert await s.answer_to("still there?") == "answer to still there?"
        assert len(s.server.answers(s.dm.id)) == 3


async def test_a_day_down_and_up_again(home: Path, clock: HandClock):
    async with at_home(home, clock) as (_, __, http):
        await http.post("/api/jobs", json={**WEEKLY, "name": "daily", "schedule": "0 9 * * *"})
        await http.post("/api/jobs", json={**WEEKLY, "name": "often", "schedule": "every 30m"})
    clock.now += DAY - 4 * HOUR  # 11:06 on the next day, two hours late for the one, six minutes for the other
    async with at_home(home, clock) as (s, _, http):
        assert await over(s, 2) == ["ok", "ok"]
        found = (await http.get("/api/jobs")).json()["jobs"]
        assert [job["last_status"] for job in found] == ["ok", "ok"]
    clock.now += DAY + 10 * HOUR
    async with at_home(home, clock) as (s, _, http):
        assert sorted(await over(s, 4)) == ["missed", "ok", "ok", "ok"]
        found = {job["name"]: job for job in (await http.get("/api/jobs")).json()["jobs"]}
        assert found["daily"]["last_status"] == "missed"
        assert found["daily"]["next_run_at"].startswith("2025-06-18T09:00")
