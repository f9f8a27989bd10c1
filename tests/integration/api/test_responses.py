"""The Responses API through the real client."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.model_replies import Reply, call, calls
from tests.integration.api.serving import client_of, gateway

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
SESSIONS = pytest.mark.parametrize("headers", [{}, {"X-Hermes-Session-Id": "r"}], ids=["stateless", "session"])


@SESSIONS
async def test_a_text_is_answered(home: Path, headers: dict[str, str]) -> None:
    async with gateway(home, ["Hello."]) as gw, client_of(gw) as client:
        answer = await client.responses.create(model="big", input="hi", instructions="Be brief.", extra_headers=headers)
        assert answer.output_text == "Hello."
        assert answer.status == "completed"
        assert answer.usage.total_tokens > 0
        assert "Be brief." in gw.model.calls[0].messages[0]["content"]


@SESSIONS
async def test_a_stream_has_the_events_that_the_client_reads(home: Path, headers: dict[str, str]) -> None:
    async with gateway(home, [Reply(text="one two")]) as gw, client_of(gw) as client:
        async with client.responses.stream(model="big", input="hi", extra_headers=headers) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
        assert final.output_text == "one two"
        assert events[0].type == "response.created"
        assert events[-1].type == "response.completed"
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "one two"


@SESSIONS
@pytest.mark.parametrize("stream", [False, True])
async def test_function_tools_go_back_and_forth(home: Path, headers: dict[str, str], stream: bool) -> None:
    async with (
        gateway(home, [calls(call("weather", {"city": "Rome"}, id="call_1")), "Sunny."]) as gw,
        client_of(gw) as client,
    ):
        asked: list[Any] = [{"role": "user", "content": "weather?"}]
        fields: Any = {"model": "big", "tools": [WEATHER], "extra_headers": headers}
        if stream:
            async with client.responses.stream(input=asked, **fields) as events:
                first = await events.get_final_response()
        else:
            first = await client.responses.create(input=asked, **fields)
        made = first.output[-1]
        assert (made.type, made.name, json.loads(made.arguments)) == ("function_call", "weather", {"city": "Rome"})
        asked += [
            made.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": made.call_id, "output": "sun"},
        ]
        second = await client.responses.create(input=asked, **fields)
        assert second.output_text == "Sunny."
        assert [m["role"] for m in gw.model.calls[-1].messages] == ["system", "user", "assistant", "tool"]


@SESSIONS
@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_cut_off_says_so(
    home: Path, headers: dict[str, str], finish: str, reason: str, stream: bool
) -> None:
    async with gateway(home, [Reply(text="and then", finish_reason=finish)]) as gw, client_of(gw) as client:
        fields: Any = {"model": "big", "input": "a tale", "max_output_tokens": 20, "extra_headers": headers}
        if stream:
            events = [event async for event in await client.responses.create(**fields, stream=True)]
            assert events[-1].type == "response.incomplete"
            answer = events[-1].response
        else:
            answer = await client.responses.create(**fields)
        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", reason)
        assert (answer.output_text, answer.output[-1].status) == ("and then", "incomplete")
