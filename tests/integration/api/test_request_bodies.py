"""Bodies of requests: their type, shape, size and time, and how a mistake in one is named."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.api.http.server_state import ApiLimits, Intervals
from tests.integration.api.serving import CHAT, OWNER, gateway, is_error_body, raw_answer


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken(home: Path, kind: str) -> None:
    async with gateway(home) as gw:
        headers = {**gw.headers(), "Content-Type": kind}
        async with gw.http.post(f"{gw.url}/v1/chat/completions", data=json.dumps(CHAT), headers=headers) as answer:
            assert answer.status == 400
            assert is_error_body(await answer.json())
        assert gw.model.count == 0


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"messages": []}', b"\xff\xfe", b"[" * 100_000, b'{"messages": "x"}']
)
async def test_a_broken_body_is_refused_in_shape(home: Path, body: bytes) -> None:
    async with gateway(home) as gw:
        headers = {**gw.headers(), "Content-Type": "application/json"}
        async with gw.http.post(f"{gw.url}/v1/chat/completions", data=body, headers=headers) as answer:
            assert answer.status == 400
            assert is_error_body(await answer.json())


async def test_bodies_are_limited_in_size(home: Path) -> None:
    async with gateway(
        home, limits=ApiLimits(body_bytes=1_000), sections={"limits": {"attachment_bytes": 100, "message_bytes": 50}}
    ) as gw:
        status, answer, _ = await gw.ask("POST", "/v1/deployments", {"name": "x" * 2_000})
        assert (status, is_error_body(answer)) == (413, True)
        long = {"messages": [{"role": "user", "content": "x" * 60}]}
        assert (await gw.ask("POST", "/v1/chat/completions", long, X_Hermes_Session_Id="s"))[0] == 413

        async def endless() -> Any:
            for _ in range(40):
                yield b" " * 100

        headers = {**gw.headers(), "Content-Type": "application/json"}
        async with gw.http.post(f"{gw.url}/v1/deployments", data=endless(), headers=headers) as answer:
            assert answer.status == 413


async def test_a_long_body_has_longer_as_long_as_it_comes(home: Path) -> None:
    async with gateway(home, intervals=Intervals(body=0.5)) as gw:
        body = json.dumps(CHAT).encode() + b" " * 900_000

        async def slowly() -> Any:
            for at in range(0, len(body), 50_000):
                yield body[at : at + 50_000]
                await asyncio.sleep(0.05)

        headers = {**gw.headers(), "Content-Type": "application/json", "Content-Length": str(len(body))}
        async with gw.http.post(f"{gw.url}/v1/chat/completions", data=slowly(), headers=headers) as answer:
            assert answer.status == 200


async def test_where_nothing_has_to_be_said_nothing_may_be_sent(home: Path) -> None:
    async with gateway(home) as gw:
        status, made, _ = await gw.ask("POST", "/v1/deployments/dep_main/threads")
        assert (status, made["title"]) == (201, None)
        for path in ("/v1/deployments", "/v1/chat/completions"):
            status, answer, _ = await gw.ask("POST", path)
            assert (status, answer["error"]["code"]) == (400, "not_json")


async def test_a_body_is_not_waited_for_for_ever(home: Path) -> None:
    async with gateway(home, intervals=Intervals(body=0.05)) as gw:
        answered = asyncio.Event()

        async def slow() -> Any:
            yield b"{"
            await answered.wait()
            yield b"}"

        headers = {**gw.headers(), "Content-Type": "application/json"}
        async with gw.http.post(f"{gw.url}/v1/deployments", data=slow(), headers=headers) as answer:
            assert answer.status == 400
        answered.set()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content[0].image_url.url"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "nobody"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages[0].content[0].type"),
        ({**CHAT, "tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({**CHAT, "n": 2}, "n"),
    ],
)  # fmt: skip
async def test_a_mistake_is_named_as_the_caller_knows_it(home: Path, body: dict[str, Any], param: str) -> None:
    async with gateway(home) as gw:
        status, answer, _ = await gw.ask("POST", "/v1/chat/completions", body)
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "invalid_value", param)
        assert answer["error"]["message"].startswith(f"{param}: ")


async def test_a_body_that_is_no_json_is_told_so_once(home: Path) -> None:
    async with gateway(home) as gw:
        headers = {**gw.headers(), "Content-Type": "application/json"}
        async with gw.http.post(f"{gw.url}/v1/chat/completions", data=b"{", headers=headers) as answer:
            error = (await answer.json())["error"]
    assert error["code"] == "bad_json"
    assert error["message"].count("JSON") == 1


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "[0, -1E+999]"])
async def test_what_is_no_number_is_refused_wherever_it_stands(home: Path, number: str) -> None:
    tool = '{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "x": %s}}}' % number  # noqa: UP031
    body = '{"messages": [{"role": "user", "content": "NaN 1e400"}], "tools": [%s]}' % tool  # noqa: UP031
    async with gateway(home) as gw:
        headers = {**gw.headers(), "Content-Type": "application/json"}
        async with gw.http.post(f"{gw.url}/v1/chat/completions", data=body, headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, "bad_json")
        assert await gw.chat("NaN 1e400 Infinity")


async def test_a_function_without_parameters_reaches_the_model_as_one(home: Path) -> None:
    async with gateway(home) as gw:
        await gw.chat("x", tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
        offered = {tool["function"]["name"]: tool["function"] for tool in gw.model.bodies[0]["tools"]}
        assert offered["f"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(("expect", "continues"), [("100-continue", True), ("a miracle", False)])
async def test_expectations(home: Path, expect: str, continues: bool) -> None:
    body = json.dumps(CHAT).encode()
    for key, status in ((OWNER.secret, b"200"), ("nobody", b"401")):
        async with gateway(home) as gw:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nExpect: {expect}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            answer = await raw_answer(gw, head.encode() + body)
            assert answer.startswith(b"HTTP/1.1 100") == (continues and status == b"200")
            assert b"HTTP/1.1 " + status in answer
