"""Limits of a day for each key, and what the audit has of calls over HTTP."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sessions import audit, runs
from sessions.records import RunStatus
from sessions.spending import DayLimit
from tests.conftest import HandClock
from tests.integration.api.serving import CHAT, OWNER, gateway

DAY = 24 * 3_600_000
MESSAGE = {"content": "x"}
CALLS = {
    "stateless": ("/v1/chat/completions", CHAT, {}),
    "session": ("/v1/chat/completions", CHAT, {"X_Hermes_Session_Id": "s"}),
    "thread": ("/v1/deployments/dep_main/messages", MESSAGE, {}),
}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("limit", [DayLimit(messages=1), DayLimit(tokens=1)])
async def test_a_key_has_its_day(home: Path, kind: str, limit: DayLimit) -> None:
    clock = HandClock()
    path, body, headers = CALLS[kind]
    async with gateway(home, ["one", "two"], wall=clock, keys=[replace(OWNER, limit=limit)]) as gw:
        status, answer, _ = await gw.ask("POST", path, body, **headers)
        assert status < 300, answer
        if kind == "thread":
            async with asyncio.timeout(20):
                while (await gw.database.read(runs.get, answer["run_id"])).status is RunStatus.RUNNING:
                    await asyncio.sleep(0.01)
        status, answer, sent = await gw.ask("POST", path, body, **headers)
        assert (status, answer["error"]["code"]) == (429, "daily_limit")
        assert "It goes on at 00:00 UTC" in answer["error"]["message"]
        left = int(sent["Retry-After"])
        assert 0 < left <= 86_400
        assert len(gw.model.calls) == 1
        (row,) = await gw.database.read(audit.listing)
        assert (row.who, row.action) == ("key:owner", "limit.reached")
        clock.tick(left * 1000)
        assert (await gw.ask("POST", path, body, **headers))[0] < 300


async def test_the_file_of_a_message_that_is_too_many_is_not_kept(home: Path) -> None:
    file = {"name": "refused.txt", "type": "text/plain", "url": "data:text/plain;base64,eA=="}
    async with gateway(home, ["one"], keys=[replace(OWNER, limit=DayLimit(messages=1))]) as gw:
        path = "/v1/deployments/dep_main/messages"
        assert (await gw.ask("POST", path, MESSAGE))[0] < 300
        assert (await gw.ask("POST", path, {**MESSAGE, "attachments": [file]}))[0] == 429
        assert not list(home.rglob("refused.txt"))


@pytest.mark.parametrize("kind", CALLS)
async def test_of_calls_at_once_one_is_the_last_and_its_retry_is_no_other(
    home: Path, kind: str, database_url: str
) -> None:
    path, body, headers = CALLS[kind]
    keys = [replace(OWNER, limit=DayLimit(messages=1))]
    async with gateway(home, ["one"], keys=keys, database_url=database_url) as gw:

        async def ask(number: int) -> int:
            sent = {name: f"{value}{number}" for name, value in headers.items()}
            return (await gw.ask("POST", path, body, Idempotency_Key=str(number), **sent))[0]

        statuses = await asyncio.gather(*map(ask, range(4)))
        assert sorted(status >= 400 for status in statuses) == [False, True, True, True]
        assert [row.about for row in await gw.database.read(audit.listing)] == ["messages_per_day"]
        if kind != "stateless":  # nobody keeps its answer
            last = next(number for number, status in enumerate(statuses) if status < 400)
            assert await ask(last) == statuses[last]


async def test_what_a_key_does_is_recorded(home: Path) -> None:
    async with gateway(home, ["one"]) as gw:
        job = {"name": "tea", "schedule": "every 30m", "prompt": "x"}
        job_id = (await gw.ask("POST", "/api/jobs", job))[1]["job"]["id"]
        await gw.ask("PATCH", f"/api/jobs/{job_id}", {"name": "green tea", "enabled": False})
        for action in ("resume", "run"):
            await gw.ask("POST", f"/api/jobs/{job_id}/{action}")
        await gw.ask("DELETE", f"/api/jobs/{job_id}")
        made = (await gw.ask("POST", "/v1/deployments", {"name": "d"}))[1]
        here = f"/v1/deployments/{made['deployment_id']}"
        await gw.ask("PATCH", here, {"name": "e"})
        await gw.ask("DELETE", here)
        rows = await gw.database.read(audit.listing)
        assert {row.who for row in rows} == {"key:owner"}
        assert [row.action for row in rows] == [
            "job.created",
            "job.changed",
            "job.paused",
            "job.resumed",
            "job.run",
            "job.deleted",
            "deployment.created",
            "deployment.changed",
            "session.deleted",
            "deployment.deleted",
        ]
        assert "green" not in str(rows)  # which key was changed, not to what
