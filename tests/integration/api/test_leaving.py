"""Callers that leave, crowds that do not hold up others, and keys that are revoked in the middle."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.api.http.callers import CallerKey
from gateway.api.http.server_state import Intervals
from gateway.dispatch.fair_queue import FairPlaces
from sessions.keys import group_of
from tests.fakes.model_replies import Reply
from tests.integration.api.serving import CHATTER, KEYS, OTHER, Gateway, gateway

CHAT = {"messages": [{"role": "user", "content": "slow"}]}


async def until(found: Any) -> None:
    async with asyncio.timeout(30):
        while not found():
            await asyncio.sleep(0.005)


async def leave(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_stateless_call_ends_with_its_connection_and_queued_ones_never_begin(
    home: Path, stream: bool, path: str
) -> None:
    places, gate = FairPlaces(2), asyncio.Event()
    body = {"stream": stream, **(CHAT if "chat" in path else {"input": "slow", "store": False})}
    with capture_logs() as lines:
        await _crowd_that_leaves(home, places, gate, path, body)
    assert not [line for line in lines if line["log_level"] in {"warning", "error"}]


async def _crowd_that_leaves(home: Path, places: FairPlaces, gate: asyncio.Event, path: str, body: Any) -> None:
    async with gateway(home, [Reply(text="late", before=gate.wait)] * 9, places=places) as gw:
        tasks = [asyncio.create_task(gw.ask("POST", path, body)) for _ in range(6)]
        await until(lambda: gw.model.count == 2 and places.waiting("key:owner") == 4)
        await leave(*tasks)
        await until(lambda: places.free == 2)
        assert not places.waiting("key:owner")
        gate.set()
        assert await gw.chat("next") == "late"
        assert gw.model.count == 3


async def test_the_crowd_of_one_key_holds_up_no_other(home: Path) -> None:
    gate, places = asyncio.Event(), FairPlaces(8)

    def reply(sent: Any) -> Reply:
        slow = "slow" in str(sent["messages"])
        return Reply(text="late", before=gate.wait) if slow else Reply(text="at once")

    async with gateway(home, reply, places=places) as gw:
        crowd = [asyncio.create_task(gw.ask("POST", "/v1/chat/completions", CHAT, CHATTER)) for _ in range(20)]
        crowd += [asyncio.create_task(gw.chat("slow", f"s{number}", CHATTER)) for number in range(20)]
        await until(lambda: gw.model.count >= 6 and places.waiting("key:chatter") >= 30)
        async with asyncio.timeout(30):
            assert await gw.chat("quick", key=OTHER) == "at once"
            assert await gw.chat("quick", "mine", OTHER) == "at once"
        gate.set()
        await asyncio.gather(*crowd)
        await until(lambda: places.free == 8)


@pytest.mark.parametrize(
    ("key", "group"),
    [
        ("agent:main:api:laptop:any:thing", "key:laptop"),
        ("agent:main:response:laptop:resp_1", "key:laptop"),
        ("agent:main:telegram:group:-100", "telegram"),
        ("agent:dep_1:thread:thread_1", "deployment:dep_1"),
        ("agent:main:job:1", "job"),
    ],
)
def test_whose_work_it_is(key: str, group: str) -> None:
    assert group_of(key) == group


@pytest.mark.parametrize("session", [None, "s"])
async def test_a_key_that_is_revoked_hears_nothing_more_of_its_stream(home: Path, session: str | None) -> None:
    rest, keys, said = asyncio.Event(), list(KEYS), iter(range(9))

    async def between() -> None:
        if next(said) >= 1:
            await rest.wait()

    reply = Reply(chunks=("One, ", "two, ", "secret"), text="One, two, secret", between=between)
    async with gateway(home, [reply], keys=keys) as gw:
        headers = gw.headers(OTHER, **({"X_Hermes_Session_Id": session} if session else {}))
        async with gw.http.post(
            f"{gw.url}/v1/chat/completions", json={**CHAT, "stream": True}, headers=headers
        ) as answer:
            assert b"One" in await answer.content.readline()
            keys.remove(OTHER)
            rest.set()
            left = await answer.content.read()
        assert b"secret" not in left
        assert b"invalid_api_key" in left


async def test_a_key_that_is_revoked_gets_no_answer(home: Path) -> None:
    gate, keys = asyncio.Event(), list(KEYS)
    async with gateway(home, [Reply(text="secret", before=gate.wait)], keys=keys) as gw:
        asked = asyncio.create_task(gw.ask("POST", "/v1/chat/completions", CHAT, OTHER))
        await until(lambda: gw.model.count)
        keys.remove(OTHER)
        gate.set()
        assert (await asked)[0] == 401


async def _deployment(gw: Gateway) -> str:
    return (await gw.ask("POST", "/v1/deployments", {"name": "d"}))[1]["deployment_id"]


@pytest.mark.parametrize("how", ["revoked", "taken from it", "no scope"])
async def test_a_followed_deployment_ends_for_a_key_that_may_not_see_it_any_more(home: Path, how: str) -> None:
    keys = list(KEYS)
    async with gateway(home, ["secret"], keys=keys, intervals=Intervals(heartbeat=0.05, shutdown=0.2)) as gw:
        found = await _deployment(gw)
        reader = CallerKey(name="reader2", secret="z" * 40, deployments=frozenset({found}))
        keys.append(reader)
        url = f"{gw.url}/v1/deployments/{found}/events"
        async with gw.http.get(url, headers=gw.headers(reader)) as answer:
            assert await answer.content.readline() == b": open\n"
            keys.remove(reader)
            if how == "taken from it":
                keys.append(CallerKey(name=reader.name, secret=reader.secret))
            if how == "no scope":
                keys.append(
                    CallerKey(
                        name=reader.name, secret=reader.secret, deployments=reader.deployments, scopes=frozenset()
                    )
                )
            await gw.ask("POST", f"/v1/deployments/{found}/messages", {"content": "hi"})
            async with asyncio.timeout(20):
                left = await answer.content.read()
        assert b"secret" not in left
        assert b"event:" not in left
