"""What a client library sends again by itself, without an Idempotency-Key."""

import asyncio
from pathlib import Path

import pytest

from sessions import inbox, store
from sessions.keys import SessionKey
from sessions.runs import last_call
from tests.fakes.model_replies import Reply
from tests.integration.api.serving import OWNER, Gateway, gateway

CHAT = "/v1/chat/completions"
SAME = {"messages": [{"role": "user", "content": "pay the bill"}]}
RETRIED = {"X_Stainless_Retry_Count": "1"}


async def _users(gw: Gateway, session: str) -> int:
    found = await gw.database.read(store.active, str(SessionKey.api("owner", session)))
    assert found is not None
    said = await gw.database.read(store.last_messages, found.id, 100)
    return sum(message.role == "user" for message in said)


@pytest.mark.parametrize("headers", [{}, RETRIED], ids=["the same body", "the library says so"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_after_a_timeout_is_stored_once(home: Path, headers: dict[str, str], stream: bool) -> None:
    gate, body = asyncio.Event(), {**SAME, "stream": stream}
    async with gateway(home, [Reply(text="paid", before=gate.wait), "again"]) as gw:
        for _ in range(2):
            left = asyncio.create_task(gw.ask("POST", CHAT, body, X_Hermes_Session_Id="s", **headers))
            async with asyncio.timeout(30):
                while not gw.model.count:
                    await asyncio.sleep(0.005)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)
            key = str(SessionKey.api("owner", "s"))
            async with asyncio.timeout(30):
                while (row := await gw.database.read(last_call, key)) is None or row.left_at is None:
                    await asyncio.sleep(0.005)
        asked = asyncio.create_task(gw.ask("POST", CHAT, body, X_Hermes_Session_Id="s", **headers))
        gate.set()
        status, answer, _ = await asked
        assert status == 200
        assert "paid" in str(answer)
        assert (gw.model.count, await _users(gw, "s")) == (1, 1)
        assert await gw.chat("pay the bill", "s") == "again"  # it was answered: now it is meant


@pytest.mark.parametrize("case", ["answered", "another body", "something between", "too late", "another session"])
async def test_what_is_said_again_on_purpose_is_said_again(home: Path, case: str) -> None:
    now, body, session = 1_750_000_000_000, dict(SAME), "s"
    async with gateway(home, ["one", "two", "three"], wall=lambda: now) as gw:
        await gw.ask("POST", CHAT, SAME, X_Hermes_Session_Id="s")
        row = await gw.database.read(last_call, str(SessionKey.api("owner", "s")))
        assert row is not None
        if case != "answered":
            await gw.database.write(inbox.note_left, row.dedup_key, now)
        match case:
            case "another body":
                body["temperature"] = 1
            case "something between":
                await gw.chat("something else", "s")
            case "too late":
                now += 600_001
            case "another session":
                session = "t"
            case _:
                pass
        before = gw.model.count
        await gw.ask("POST", CHAT, body, X_Hermes_Session_Id=session)
        assert gw.model.count == before + 1


async def test_every_answer_has_a_request_id(home: Path) -> None:
    async with gateway(home) as gw:
        ids = set[str]()
        for method, path, key in [
            ("GET", "/healthz", None),
            ("GET", "/v1/models", OWNER),
            ("GET", "/v1/models", None),
            ("POST", CHAT, OWNER),
            ("GET", "/nowhere", OWNER),
        ]:
            ids.add((await gw.ask(method, path, key=key))[2]["X-Request-Id"])
        async with gw.http.post(gw.url + CHAT, json={**SAME, "stream": True}, headers=gw.headers()) as answer:
            ids.add(answer.headers["X-Request-Id"])
        assert len(ids) == 6
