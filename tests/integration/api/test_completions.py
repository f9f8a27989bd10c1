"""Chat Completions through the wire, with the real client and by hand."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.api.http.server_state import Intervals
from sessions import inbox, store
from sessions.keys import SessionKey
from tests.fakes.model_replies import Failure, Reply, call, calls
from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import OWNER, Gateway, gateway

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def client_of(gw: Gateway, **more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gw.url}/v1", api_key=OWNER.secret, max_retries=0, **more)


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def journal(gw: Gateway, session: str, key: str = "owner") -> list[tuple[str, str]]:
    def read(conn: Any) -> list[tuple[str, str]]:
        found = store.active(conn, str(SessionKey.api(key, session)))
        return [(m.role.value, m.content or "") for m in store.read_messages(conn, found.id)] if found else []

    return await gw.database.read(read)


async def test_a_stateless_call_is_answered_and_leaves_nothing(home: Path) -> None:
    async with gateway(home, ["Hello to you."]) as gw, client_of(gw) as client:
        answer = await client.chat.completions.create(
            model="big",
            messages=[{"role": "system", "content": "Be brief."}, *said("hi")],
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
    return [*said(city), {"role": "assistant", "content": None, "tool_calls": [made]}, result]


async def test_each_call_keeps_its_own_result_where_a_model_reuses_ids(home: Path) -> None:
    async with gateway(home, ["Sun in Rome."]) as gw, client_of(gw) as client:
        told = [*looked_up("Oslo", "rain"), {"role": "assistant", "content": "Rain."}, *looked_up("Rome", "sun")]
        await client.chat.completions.create(model="big", messages=told, tools=[WEATHER])
        assert [turn["content"] for turn in gw.model.bodies[0]["messages"] if turn["role"] == "tool"] == ["rain", "sun"]


async def test_the_whole_transcript_of_a_stateless_call_reaches_the_model(home: Path) -> None:
    long = "word " * 3_000
    async with gateway(home) as gw, client_of(gw) as client:
        messages = [*said(long), {"role": "assistant", "content": "yes"}, *said("and now?")]
        await client.chat.completions.create(model="big", messages=messages)
        sent = gw.model.calls[0].messages
        assert [m["role"] for m in sent] == ["system", "user", "assistant", "user"]
        assert sent[1]["content"] == long


async def test_a_stream_gives_words_usage_and_an_end(home: Path) -> None:
    async with gateway(home, [Reply(text="one two three")]) as gw, client_of(gw) as client:
        stream = await client.chat.completions.create(
            model="big", messages=said("count"), stream=True, stream_options={"include_usage": True}
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
                    first = client.chat.completions.create(model="big", messages=said("a"))
                    stream = client.chat.completions.create(model="big", messages=said("b"), stream=True)
                    return first.choices[0].message.content, "".join(c.choices[0].delta.content or "" for c in stream)

            assert await asyncio.to_thread(blocking) == ("sync", "streamed")

    asyncio.run(main())


async def test_models_are_listed(home: Path) -> None:
    async with gateway(home) as gw, client_of(gw) as client:
        assert [model.id async for model in client.models.list()] == ["big", "small"]


async def test_a_session_is_held_here_and_only_what_is_new_is_taken(home: Path) -> None:
    async with gateway(home, ["first", "second"]) as gw, client_of(gw) as client:
        headers = {"X-Hermes-Session-Id": "team/42:a"}
        raw = await client.chat.completions.with_raw_response.create(
            model="big", messages=said("one"), extra_headers=headers
        )
        assert raw.headers["X-Hermes-Session-Id"] == "team/42:a"
        history = [*said("a lie"), {"role": "assistant", "content": "another"}, *said("two")]
        answer = await client.chat.completions.create(
            model="big", messages=[{"role": "system", "content": "Rhyme."}, *history], extra_headers=headers
        )
        assert answer.choices[0].message.content == "second"
        assert await journal(gw, "team/42:a") == [
            ("user", "one"),
            ("assistant", "first"),
            ("user", "two"),
            ("assistant", "second"),
        ]
        last = gw.model.calls[-1].messages
        assert "Rhyme." in last[0]["content"]
        assert "a lie" not in json.dumps(last)


async def test_a_session_streams_from_the_first_word(home: Path) -> None:
    async with gateway(home, [Reply(text="a b c d")]) as gw, client_of(gw) as client:
        stream = await client.chat.completions.create(
            model="big", messages=said("x"), stream=True, extra_headers={"X-Hermes-Session-Id": "s"}
        )
        assert "".join([c.choices[0].delta.content or "" async for c in stream]) == "a b c d"


async def test_parallel_calls_on_one_session_strictly_alternate_in_order(home: Path) -> None:
    async with gateway(home, lambda body: "re " + body["messages"][-1]["content"].rpartition("\n")[2]) as gw:

        async def one(number: int) -> str:
            return await gw.chat(f"m{number}", "busy")

        tasks = []
        for number in range(32):
            tasks.append(asyncio.create_task(one(number)))
            await asyncio.sleep(0)
        answers = await asyncio.gather(*tasks)
        assert answers == [f"re m{number}" for number in range(32)]
        rows = await journal(gw, "busy")
        assert [role for role, _ in rows] == ["user", "assistant"] * 32
        for question, answer in zip(rows[::2], rows[1::2], strict=True):
            assert answer[1] == f"re {question[1]}"


async def test_sessions_of_different_keys_never_meet(home: Path) -> None:
    from tests.integration.api.serving import CHATTER

    async with gateway(home, ["for owner", "for chatter"]) as gw:
        await gw.chat("mine", "shared")
        await gw.chat("yours", "shared", CHATTER)
        assert await journal(gw, "shared") == [("user", "mine"), ("assistant", "for owner")]
        assert "mine" not in json.dumps(gw.model.calls[-1].messages)


@pytest.mark.parametrize("session", [None, "tools"])
async def test_the_callers_own_tools_work_as_at_openai(home: Path, session: str | None) -> None:
    script = [calls(call("weather", {"city": "Rome"}, id="call_1")), "It is sunny."]
    extra = {"X-Hermes-Session-Id": session} if session else {}
    async with gateway(home, script) as gw, client_of(gw) as client:
        messages: list[Any] = said("weather?")
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
        stream = await client.chat.completions.create(model="big", messages=said("?"), tools=[WEATHER], stream=True)
        chunks = [c async for c in stream]
        made = [t for c in chunks if c.choices for t in c.choices[0].delta.tool_calls or ()]
        assert made[0].function.name == "weather"
        assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_going_on_without_the_results_gets_a_note(home: Path) -> None:
    script = [calls(call("weather", {"city": "Rome"}, id="call_1")), "Never mind."]
    async with gateway(home, script) as gw:
        await gw.ask(
            "POST", "/v1/chat/completions", {"messages": said("a"), "tools": [WEATHER]}, X_Hermes_Session_Id="s"
        )
        assert await gw.chat("forget it", "s") == "Never mind."
        sent = gw.model.calls[-1].messages
        assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "user"]
        assert "went on without it" in sent[3]["content"]


async def test_results_that_nobody_waits_for_are_refused(home: Path) -> None:
    async with gateway(home) as gw:
        body = {"messages": [{"role": "tool", "tool_call_id": "call_9", "content": "x"}]}
        status, answer, _ = await gw.ask("POST", "/v1/chat/completions", body, X_Hermes_Session_Id="s")
        assert (status, answer["error"]["code"]) == (409, "unknown_tool_call")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_question_to_a_human_is_the_answer_and_the_next_call_answers_it(home: Path, stream: bool) -> None:
    script = [calls(call("ask_human", {"question": "Red or blue?", "options": ["red", "blue"]})), "Blue it is."]
    async with gateway(home, script) as gw, client_of(gw) as client:
        extra = {"X-Hermes-Session-Id": "ask"}
        raw = await client.chat.completions.with_raw_response.create(
            model="big", messages=said("paint"), extra_headers=extra, stream=stream
        )
        assert raw.headers["X-Hermes-Run-Status"] == "waiting_on_human"
        parsed = raw.parse()
        text = (
            "".join([c.choices[0].delta.content or "" async for c in parsed])
            if stream
            else parsed.choices[0].message.content
        )
        assert text.startswith("Red or blue?")
        assert await gw.chat("blue", "ask") == "Blue it is."
        assert gw.model.calls[-1].messages[-1] == {"role": "tool", "tool_call_id": "call_ask_human", "content": "blue"}


async def test_a_call_that_was_queued_behind_a_question_answers_it(home: Path) -> None:
    gate = asyncio.Event()
    script = [Reply(tool_calls=(call("ask_human", {"question": "Which?"}),), before=gate.wait), "Done."]
    async with gateway(home, script) as gw:
        first = asyncio.create_task(gw.chat("go", "q"))
        while not gw.model.calls:
            await asyncio.sleep(0.005)
        second = asyncio.create_task(gw.chat("this one", "q"))
        async with asyncio.timeout(30):
            while not await gw.database.read(inbox.unread, str(SessionKey.api("owner", "q"))):
                await asyncio.sleep(0.005)
        gate.set()
        assert await first == "Which?"
        assert await second == "Done."


async def test_a_caller_that_goes_away_does_not_stop_the_run(home: Path) -> None:
    gate = asyncio.Event()
    async with gateway(home, [Reply(text="late answer", before=gate.wait), "next"]) as gw:
        task = asyncio.create_task(gw.chat("go", "away"))
        while not gw.model.calls:
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gate.set()
        assert await gw.chat("still there?", "away") == "next"
        assert [text for _, text in await journal(gw, "away")] == ["go", "late answer", "still there?", "next"]


@pytest.mark.parametrize("session", [None, "slow"])
async def test_a_silent_stream_is_kept_alive_by_comments(home: Path, session: str | None) -> None:
    gate = asyncio.Event()
    async with gateway(home, [Reply(text="at last", before=gate.wait)], intervals=Intervals(keep_alive=0.03)) as gw:
        headers = gw.headers(**({"X_Hermes_Session_Id": session} if session else {}))
        body = {"messages": said("x"), "stream": True}
        async with gw.http.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert await answer.content.readline() == b": keep-alive\n"
            gate.set()
            rest = (await answer.content.read()).decode()
        assert "at" in rest
        assert rest.endswith("data: [DONE]\n\n")


async def test_the_same_idempotency_key_gives_the_same_answer_once(home: Path) -> None:
    async with gateway(home, ["once"]) as gw:
        body = {"messages": said("pay")}
        ask = lambda sent: gw.ask("POST", "/v1/chat/completions", sent, X_Hermes_Session_Id="i", Idempotency_Key="k1")  # noqa: E731
        first, second = await asyncio.gather(ask(body), ask(body))
        assert first[1]["choices"] == second[1]["choices"]
        assert gw.model.count == 1
        status, answer, _ = await ask({"messages": said("other")})
        assert (status, answer["error"]["code"]) == (422, "idempotency_key_reused")


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
            model="big", messages=said("a tale"), max_tokens=2, stream=stream, extra_headers=extra
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
    _, answer, _ = await gw.ask("POST", "/v1/chat/completions", {"messages": said("a tale")}, **headers)
    return answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]


async def test_trouble_with_the_model_is_a_503_before_the_first_word(home: Path) -> None:
    failing = Failure(status=401, message="Incorrect API key", code="invalid_api_key")
    async with gateway(home, lambda _: failing) as gw:
        for session in ({}, {"X_Hermes_Session_Id": "e"}):
            for stream in (False, True):
                status, answer, headers = await gw.ask(
                    "POST", "/v1/chat/completions", {"messages": said("x"), "stream": stream}, **session
                )
                assert status == 503
                assert answer["error"]["type"] == "server_error"
                assert headers.get("X-Hermes-Session-Id") == session.get("X_Hermes_Session_Id")
                assert "Retry-After" in headers


async def test_a_failed_run_is_not_repeated_by_the_client_library(home: Path) -> None:
    failing = Failure(status=401, message="Incorrect API key", code="invalid_api_key")
    async with gateway(home, lambda _: failing) as gw:
        eager = openai.AsyncOpenAI(base_url=f"{gw.url}/v1", api_key=OWNER.secret, max_retries=3)
        async with eager as client:
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(
                    model="big", messages=said("x"), extra_headers={"X-Hermes-Session-Id": "s"}
                )
        assert await journal(gw, "s") == [("user", "x")]


@pytest.mark.parametrize("session", ["a", "x" * 256, "team/42: a~", "Zoë", "会議室", "50% off"])
async def test_session_ids_come_back_as_they_were_sent(home: Path, session: str) -> None:
    async with gateway(home) as gw:
        body = {"messages": said("x")}
        status, _, headers = await gw.ask("POST", "/v1/chat/completions", body, X_Hermes_Session_Id=session)
        assert (status, headers["X-Hermes-Session-Id"]) == (200, session)
        assert (await journal(gw, session))[0] == ("user", "x")


@pytest.mark.parametrize("session", ["", "x" * 257, "tab\tinside"])
async def test_session_ids_are_checked(home: Path, session: str) -> None:
    async with gateway(home) as gw:
        status, _, _ = await gw.ask(
            "POST", "/v1/chat/completions", {"messages": said("x")}, X_Hermes_Session_Id=session
        )
        assert status == 400


async def test_one_database_of_each_kind_holds_a_conversation(home: Path, database_url: str) -> None:
    async with gateway(home, ["one", "two"], database_url=database_url) as gw:
        assert await gw.chat("a", "pg") == "one"
        assert await gw.chat("b", "pg") == "two"
        assert [role for role, _ in await journal(gw, "pg")] == ["user", "assistant"] * 2


async def test_a_question_is_answered_after_a_restart(home: Path) -> None:
    async with ModelServer([calls(call("ask_human", {"question": "Sure?"})), "Good."]) as model:
        async with gateway(home, model=model) as gw:
            assert await gw.chat("go", "r") == "Sure?"
        async with gateway(home, model=model) as gw:
            assert await gw.chat("yes", "r") == "Good."
