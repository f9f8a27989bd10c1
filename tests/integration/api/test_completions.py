"""Chat Completions through the wire, with the real client and by hand."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.api.http.server_state import Intervals
from sessions import store
from tests.fakes.model_replies import Failure, Reply, bad_request, call, calls
from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import OWNER, WEATHER, Gateway, client_of, gateway, is_error_body, one_message


async def test_a_stateless_call_is_answered_and_leaves_nothing(home: Path) -> None:
    async with gateway(home, ["Hello to you."]) as gw, client_of(gw) as client:
        answer = await client.chat.completions.create(
            model="big",
            messages=[{"role": "system", "content": "Be brief."}, *one_message("hi")],
            temperature=0.5,
            max_tokens=77,
        )
        assert answer.choices[0].message.content == "Hello to you."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.prompt_tokens > 0
        body = gw.model.bodies[0]
        assert body["temperature"] == 0.5
        assert body["max_tokens"] == 77
        assert "Be brief." in body["messages"][0]["content"]
        assert body["messages"][1]["content"].endswith("\n\nhi")
        assert "tools" not in body
        assert await gw.database.read(store.recent) == []


def looked_up(city: str, weather: str) -> list[dict[str, Any]]:
    """A question, a call whose id is the same each time, and its result."""
    made = {
        "id": "call_0",
        "type": "function",
        "function": {"name": "weather", "arguments": json.dumps({"city": city})},
    }
    result = {"role": "tool", "tool_call_id": "call_0", "content": weather}
    return [*one_message(city), {"role": "assistant", "content": None, "tool_calls": [made]}, result]


@pytest.mark.parametrize("session", ["", "user:42"])
async def test_an_answer_that_quotes_a_call_of_the_callers_tool_is_an_answer(home: Path, session: str) -> None:
    quoted = json.dumps({"name": "weather", "arguments": {"city": "Oslo"}})
    headers = {"X-Hermes-Session-Id": session} if session else {}
    async with gateway(home, [quoted]) as gw, client_of(gw) as client:
        answer = await client.chat.completions.create(
            model="big", messages=one_message("what did Bob write?"), tools=[WEATHER], extra_headers=headers
        )
        assert answer.choices[0].message.content == quoted
        assert answer.choices[0].message.tool_calls is None


async def test_each_call_keeps_its_own_result_where_a_model_reuses_ids(home: Path) -> None:
    async with gateway(home, ["Sun in Rome."]) as gw, client_of(gw) as client:
        told = [*looked_up("Oslo", "rain"), {"role": "assistant", "content": "Rain."}, *looked_up("Rome", "sun")]
        await client.chat.completions.create(model="big", messages=told, tools=[WEATHER])
        assert [turn["content"] for turn in gw.model.bodies[0]["messages"] if turn["role"] == "tool"] == ["rain", "sun"]


async def test_the_whole_transcript_of_a_stateless_call_reaches_the_model(home: Path) -> None:
    long = "word " * 3_000
    async with gateway(home) as gw, client_of(gw) as client:
        messages = [*one_message(long), {"role": "assistant", "content": "yes"}, *one_message("and now?")]
        await client.chat.completions.create(model="big", messages=messages)
        sent = gw.model.calls[0].messages
        assert [m["role"] for m in sent] == ["system", "user", "assistant", "user"]
        assert sent[1]["content"] == long


async def test_a_stream_gives_words_usage_and_an_end(home: Path) -> None:
    async with gateway(home, [Reply(text="one two three")]) as gw, client_of(gw) as client:
        stream = await client.chat.completions.create(
            model="big", messages=one_message("count"), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == "one two three"
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert chunks[-1].choices == []
        assert chunks[-1].usage.total_tokens > 0


def test_the_synchronous_client_works_too(home: Path) -> None:
    async def main() -> None:
        async with gateway(home, ["sync", "streamed"]) as gw:

            def blocking() -> tuple[str | None, str]:
                with openai.OpenAI(base_url=f"{gw.url}/v1", api_key=OWNER.secret) as client:
                    first = client.chat.completions.create(model="big", messages=one_message("a"))
                    stream = client.chat.completions.create(model="big", messages=one_message("b"), stream=True)
                    return first.choices[0].message.content, "".join(c.choices[0].delta.content or "" for c in stream)

            assert await asyncio.to_thread(blocking) == ("sync", "streamed")

    asyncio.run(main())


async def test_models_are_listed(home: Path) -> None:
    async with gateway(home) as gw, client_of(gw) as client:
        assert [model.id async for model in client.models.list()] == ["hermes", "big", "small"]


@pytest.mark.parametrize("session", [None, "tools"])
async def test_the_callers_own_tools_work_as_at_openai(home: Path, session: str | None) -> None:
    script = [calls(call("weather", {"city": "Rome"}, id="call_1")), "It is sunny."]
    extra = {"X-Hermes-Session-Id": session} if session else {}
    async with gateway(home, script) as gw, client_of(gw) as client:
        messages: list[Any] = one_message("weather?")
        answer = await client.chat.completions.create(
            model="big", messages=messages, tools=[WEATHER], extra_headers=extra
        )
        made = answer.choices[0].message.tool_calls
        assert answer.choices[0].finish_reason == "tool_calls"
        assert [(c.id, c.function.name, json.loads(c.function.arguments)) for c in made] == [
            ("call_1", "weather", {"city": "Rome"})
        ]
        messages += [
            answer.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
        ]
        answer = await client.chat.completions.create(
            model="big", messages=messages, tools=[WEATHER], extra_headers=extra
        )
        assert answer.choices[0].message.content == "It is sunny."
        sent = gw.model.calls[-1].messages
        assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool"]
        assert sent[-1]["content"] == "sun"


async def test_tool_calls_are_streamed(home: Path) -> None:
    async with gateway(home, [calls(call("weather", {"city": "Rome"}))]) as gw, client_of(gw) as client:
        stream = await client.chat.completions.create(
            model="big", messages=one_message("?"), tools=[WEATHER], stream=True
        )
        chunks = [c async for c in stream]
        made = [t for c in chunks if c.choices for t in c.choices[0].delta.tool_calls or ()]
        assert made[0].function.name == "weather"
        assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("session", [None, "slow"])
async def test_a_silent_stream_is_kept_alive_by_comments(home: Path, session: str | None) -> None:
    gate = asyncio.Event()
    async with gateway(home, [Reply(text="at last", before=gate.wait)], intervals=Intervals(keep_alive=0.03)) as gw:
        headers = gw.headers(**({"X_Hermes_Session_Id": session} if session else {}))
        body = {"messages": one_message("x"), "stream": True}
        async with gw.http.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert await answer.content.readline() == b": keep-alive\n"
            gate.set()
            rest = (await answer.content.read()).decode()
        assert "at" in rest
        assert rest.endswith("data: [DONE]\n\n")


async def test_pictures_reach_the_model(home: Path) -> None:
    dot = "data:image/png;base64,iVBORw0KGgo="
    for session in (None, "pics"):
        async with gateway(home) as gw:
            parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": dot}}]
            headers = {"X_Hermes_Session_Id": session} if session else {}
            status, _, _ = await gw.ask(
                "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]}, **headers
            )
            assert status == 200
            content = gw.model.calls[-1].messages[-1]["content"]
            assert content[-1] == {"type": "image_url", "image_url": {"url": dot}}


@pytest.mark.parametrize("session", [None, "long"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_cut_off_says_so(home: Path, session: str | None, stream: bool) -> None:
    async with gateway(home, [Reply(text="and then", finish_reason="length")]) as gw, client_of(gw) as client:
        extra = {"X-Hermes-Session-Id": session} if session else {}
        answer: Any = await client.chat.completions.create(
            model="big", messages=one_message("a tale"), max_tokens=2, stream=stream, extra_headers=extra
        )
        choices = [chunk.choices[0] async for chunk in answer] if stream else answer.choices
        assert choices[-1].finish_reason == "length"
        assert gw.model.bodies[0]["max_tokens"] == 2


async def test_an_answer_that_was_withheld_says_so_again_after_a_restart(home: Path) -> None:
    filtered, again = Reply(text="I would", finish_reason="content_filter"), {"Idempotency_Key": "k"}
    async with ModelServer([filtered, filtered]) as model:
        async with gateway(home, model=model) as gw:
            for headers in ({}, {"X_Hermes_Session_Id": "f", **again}):
                assert await ending(gw, **headers) == ("I would", "content_filter")
        async with gateway(home, model=model) as gw:
            assert await ending(gw, X_Hermes_Session_Id="f", **again) == ("I would", "content_filter")
            assert model.count == 2
            assert (await ending(gw, X_Hermes_Session_Id="f"))[1] == "stop"


async def ending(gw: Gateway, **headers: str) -> tuple[str, str]:
    _, answer, _ = await gw.ask("POST", "/v1/chat/completions", {"messages": one_message("a tale")}, **headers)
    return answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]


async def test_trouble_with_the_model_is_a_503_before_the_first_word(home: Path) -> None:
    failing = Failure(status=401, message="Incorrect API key", code="invalid_api_key")
    async with gateway(home, lambda _: failing) as gw:
        for session in ({}, {"X_Hermes_Session_Id": "e"}):
            for stream in (False, True):
                status, answer, headers = await gw.ask(
                    "POST", "/v1/chat/completions", {"messages": one_message("x"), "stream": stream}, **session
                )
                assert status == 503
                assert answer["error"]["type"] == "server_error"
                assert headers.get("X-Hermes-Session-Id") == session.get("X_Hermes_Session_Id")
                assert "Retry-After" in headers


async def test_a_base_url_that_is_not_ours_is_told_how_it_ends(home: Path) -> None:
    async with gateway(home) as gw:
        for method, path, hint in (
            ("POST", "/chat/completions", "It may be /v1/chat/completions."),
            ("POST", "/v1/v1/responses", "It may be /v1/responses."),
            ("GET", "/v1/jobs", "It may be /api/jobs."),
            ("GET", "/", "ends with /v1"),
            ("POST", "/v1/embeddings", "at this address. /docs lists all there is"),
        ):
            status, answer, _ = await gw.ask(method, path)
            assert (status, is_error_body(answer)) == (404, True)
            assert hint in answer["error"]["message"]
        status, answer, _ = await gw.ask("GET", "/v1/chat/completions")
        assert (status, answer["error"]["message"]) == (405, "GET does not work here; POST does.")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"messages": []}, "messages: it must have at least 1 item"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name: it must match the pattern ^[A-Za-z0-9_-]{1,64}$",
        ),
    ],
)
async def test_what_is_wrong_is_said_in_plain_words(home: Path, more: dict[str, Any], said: str) -> None:
    async with gateway(home) as gw:
        status, answer, _ = await gw.ask("POST", "/v1/chat/completions", {"messages": one_message("hi"), **more})
        assert (status, answer["error"]["message"]) == (400, said)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_model_that_nobody_has_configured_is_not_found(home: Path, path: str) -> None:
    async with gateway(home) as gw:
        for name, status in (("hermes", 200), ("small", 200), ("gpt-4o", 404), ("hermes2", 404)):
            body = {"model": name, "messages": one_message("hi")} if "chat" in path else {"model": name, "input": "hi"}
            found, answer, _ = await gw.ask("POST", path, body)
            assert found == status
            if status == 404:
                assert answer["error"]["code"] == "model_not_found"
                assert answer["error"]["param"] == "model"
        assert [body["model"] for body in gw.model.bodies] == ["big", "small"]


HINTS = {"top_k": 40, "min_p": 0.1, "repeat_penalty": 1.1, "keep_alive": "5m", "chat_template_kwargs": {"x": True}}


@pytest.mark.parametrize("session", ["", "user:42"])
@pytest.mark.parametrize("stream", [False, True])
async def test_sampling_hints_go_on_or_are_named_as_left_out(home: Path, session: str, stream: bool) -> None:
    def script(body: dict[str, Any]) -> Any:
        return bad_request("Unrecognized request argument supplied: top_k, min_p") if "top_k" in body else "fine"

    body = {"messages": one_message("hi"), "stream": stream, **HINTS}
    headers = {"X-Hermes-Session-Id": session} if session else {}
    async with gateway(home, script) as gw:
        async with gw.http.post(
            f"{gw.url}/v1/chat/completions", json=body, headers={**gw.headers(), **headers}
        ) as answer:
            assert "fine" in await answer.text()
            assert answer.headers["Warning"] == '299 hermes "left out: min_p, top_k"'
        first, second = gw.model.bodies
        assert {name: first[name] for name in HINTS} == HINTS
        assert {name for name in HINTS if name in second} == HINTS.keys() - {"top_k", "min_p"}
        for name in ("logprobs", "telepathy"):
            status, refused, _ = await gw.ask(
                "POST", "/v1/chat/completions", {"messages": one_message("x"), name: True}
            )
            assert (status, refused["error"]["param"]) == (400, name)


@pytest.mark.parametrize("session", ["", "user:42"])
async def test_a_recording_reaches_an_endpoint_that_takes_it(home: Path, session: str) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRgAAAABXQVZF" * 3_000, "format": "wav"}}
    said = [{"role": "user", "content": [{"type": "text", "text": "what is said?"}, sound]}]
    headers = {"X_Hermes_Session_Id": session} if session else {}
    async with gateway(home, ["Hello.", bad_request("input_audio is not supported by this model")]) as gw:
        status, answer, _ = await gw.ask("POST", "/v1/chat/completions", {"messages": said}, **headers)
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hello.")
        assert sound in gw.model.bodies[0]["messages"][-1]["content"]
        assert (await gw.ask("POST", "/v1/chat/completions", {"messages": said}, **headers))[0] == 400
