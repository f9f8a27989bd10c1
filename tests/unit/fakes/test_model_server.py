"""The scripted server keeps the protocol that it stands for."""

import asyncio
import json
import sys

import aiohttp
import pytest

from tests.fakes.model_replies import Failure, Reply, as_json, bad_request, call, calls, drop, hang, rate_limited
from tests.fakes.model_rules import Speaks, refuse
from tests.fakes.model_server import ModelServer

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
TOOL = {"type": "function", "function": {"name": "files", "parameters": {"type": "object"}}}


async def post(server, body=HELLO, headers=None):
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/chat/completions", json=body, headers=headers) as response,
    ):
        return response.status, response.headers, await response.text()


def events(text):
    datas = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert datas[-1] == "[DONE]"
    return [json.loads(data) for data in datas[:-1]]


async def test_the_script_is_taken_in_order_then_the_standing_answer():
    async with ModelServer(["one", calls(call("files"))], then="later") as server:
        first, second, third = [json.loads((await post(server))[2])["choices"][0] for _ in range(3)]
        assert first["message"]["content"] == "one"
        assert second["message"]["tool_calls"][0]["function"]["name"] == "files"
        assert second["finish_reason"] == "tool_calls"
        assert third["message"]["content"] == "later"
        assert server.count == 3
        assert server.bodies == [HELLO] * 3


async def test_a_script_may_look_at_the_request():
    async with ModelServer(lambda body: as_json({"heard": body["messages"][-1]["content"]})) as server:
        assert json.loads(json.loads((await post(server))[2])["choices"][0]["message"]["content"]) == {"heard": "hello"}


async def test_a_stream_is_server_sent_events_with_one_usage_at_the_end():
    async with ModelServer(["one two"]) as server:
        _, headers, text = await post(server, {**HELLO, "stream": True, "stream_options": {"include_usage": True}})
        assert headers["Content-Type"] == "text/event-stream"
        found = events(text)
        assert all(event["object"] == "chat.completion.chunk" for event in found)
        assert found[-1]["choices"] == []
        assert found[-1]["usage"]["completion_tokens"] > 0
        deltas = [event["choices"][0] for event in found[:-1]]
        assert "".join(each["delta"].get("content") or "" for each in deltas) == "one two"
        assert [each["finish_reason"] for each in deltas] == [None, None, None, "stop"]


async def test_usage_is_streamed_only_when_asked_for():
    async with ModelServer() as server:
        assert all(event["choices"] for event in events((await post(server, {**HELLO, "stream": True}))[2]))


async def test_the_pieces_of_a_call_make_the_call():
    async with ModelServer([calls(call("files", {"action": "list"}, id="a", extra_content={"s": 1}))]) as server:
        found = events((await post(server, {**HELLO, "stream": True}))[2])
        deltas = [each for event in found for each in event["choices"][0]["delta"].get("tool_calls", [])]
        assert deltas[0]["extra_content"] == {"s": 1}
        assert "".join(each["function"]["arguments"] for each in deltas) == '{"action": "list"}'


async def test_failures_look_like_failures():
    async with ModelServer([rate_limited("3"), Failure(status=503), bad_request("no", param="messages")]) as server:
        status, headers, text = await post(server)
        assert (status, headers["Retry-After"]) == (429, "3")
        assert json.loads(text)["error"]["code"] == "rate_limit_exceeded"
        assert (await post(server))[0] == 503
        status, _, text = await post(server)
        assert (status, json.loads(text)["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize("step", [drop(), Reply(text="a b c", drop_after=2)])
async def test_a_dropped_connection_is_dropped(step):
    async with ModelServer([step]) as server:
        with pytest.raises(aiohttp.ClientError):
            await post(server, {**HELLO, "stream": True})


async def test_hanging_ends_with_the_server():
    async with ModelServer([hang()]) as server:
        task = asyncio.create_task(post(server))
        await asyncio.sleep(0.02)
        assert not task.done()
    with pytest.raises(aiohttp.ClientError):
        await asyncio.wait_for(task, 30)


async def test_tokens_wait_for_whoever_holds_them():
    steps: asyncio.Queue[None] = asyncio.Queue()
    async with ModelServer([Reply(text="one two", before=steps.get, between=steps.get)]) as server:
        task = asyncio.create_task(post(server, {**HELLO, "stream": True}))
        for _ in range(3):
            await asyncio.sleep(0.005)
            assert not task.done()
            steps.put_nowait(None)
        steps.put_nowait(None)
        assert "two" in (await asyncio.wait_for(task, 30))[2]


async def test_only_the_right_key_is_let_in():
    async with ModelServer(api_key="sk-1") as server:
        assert (await post(server))[0] == 401
        assert (await post(server, headers={"Authorization": "Bearer sk-1"}))[0] == 200


async def test_the_models_are_listed():
    async with (
        ModelServer(speaks=Speaks(models=frozenset({"m"}))) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}/models") as response,
    ):
        assert [row["id"] for row in (await response.json())["data"]] == ["m"]


def user(content="x"):
    return {"role": "user", "content": content}


def asks(*tool_calls):
    return {"role": "assistant", "content": None, "tool_calls": list(tool_calls)}


def result(key="a"):
    return {"role": "tool", "tool_call_id": key, "content": "r"}


A, B = call("files", id="a"), call("files", id="b")
GOOD = {
    "plain": [user(), {"role": "assistant", "content": "y"}, user()],
    "a call and its result": [user(), asks(A), result()],
    "two calls, any order": [user(), asks(A, B), result("b"), result("a"), user()],
    "parts": [user([{"type": "text", "text": "x"}])],
}
BAD = {
    "nothing": [],
    "no role": [{"content": "x"}],
    "an unknown role": [{"role": "agent", "content": "x"}],
    "no content": [{"role": "user"}],
    "an empty answer": [user(), {"role": "assistant", "content": None}],
    "an orphaned result": [user(), result()],
    "a missing result": [user(), asks(A, B), result("a"), user()],
    "a missing result at the end": [user(), asks(A)],
    "a result twice": [user(), asks(A), result(), result()],
    "no calls": [user(), asks()],
    "a call without an id": [user(), asks({**A, "id": ""}), result("")],
    "arguments as an object": [user(), asks({**A, "function": {"name": "files", "arguments": {}}}), result()],
}


@pytest.mark.parametrize("messages", GOOD.values(), ids=GOOD.keys())
def test_good_transcripts_are_accepted(messages):
    assert refuse({"model": "m", "messages": messages}, Speaks()) is None


@pytest.mark.parametrize("messages", BAD.values(), ids=BAD.keys())
async def test_bad_transcripts_are_refused(messages):
    async with ModelServer() as server:
        status, _, text = await post(server, {"model": "m", "messages": messages})
        assert status == 400
        assert json.loads(text)["error"]["message"]


BAD_TOOLS = {
    "none": [],
    "no function": [{"type": "x"}],
    "a bad name": [{**TOOL, "function": {"name": "a b"}}],
    "the same name twice": [TOOL, TOOL],
    "a bad schema": [{**TOOL, "function": {"name": "f", "parameters": {"type": "objekt"}}}],
    "no object": [{**TOOL, "function": {"name": "f", "parameters": {"type": "string"}}}],
}


@pytest.mark.parametrize("tools", BAD_TOOLS.values(), ids=BAD_TOOLS.keys())
def test_bad_tools_are_refused(tools):
    failure = refuse({**HELLO, "tools": tools}, Speaks())
    assert failure is not None
    assert failure.status == 400


GAPS = {
    "stream": (Speaks(stream=False), {"stream": True}),
    "stream_options": (Speaks(stream_options=False), {"stream_options": {}}),
    "tools": (Speaks(tools=False), {"tools": [TOOL]}),
    "json_schema": (Speaks(json_schema=False), {"response_format": {"type": "json_schema"}}),
    "json_object": (Speaks(json_object=False), {"response_format": {"type": "json_object"}}),
    "max_tokens": (Speaks(max_tokens=False), {"max_tokens": 1}),
    "length": (Speaks(most_output=10), {"max_tokens": 11}),
    "temperature": (Speaks(temperature=False), {"temperature": 1}),
    "model": (Speaks(models=frozenset({"other"})), {}),
}


@pytest.mark.parametrize(("speaks", "fields"), GAPS.values(), ids=GAPS.keys())
def test_an_endpoint_can_speak_less(speaks, fields):
    assert refuse({**HELLO, **fields}, speaks) is not None
    assert refuse({**HELLO, **fields}, Speaks()) is None


async def test_the_fast_path_speaks_the_same_protocol():
    async with ModelServer(fast="prepared answer") as server:
        whole = json.loads((await post(server))[2])
        assert whole["choices"][0]["message"]["content"] == "prepared answer"
        found = events((await post(server, {**HELLO, "stream": True}))[2])
        text = "".join(each["delta"].get("content") or "" for event in found for each in event["choices"])
        assert text == "prepared answer"
        assert server.count == 2


async def test_it_transcribes_what_is_uploaded():
    async with ModelServer(["spoken"]) as server, aiohttp.ClientSession() as session:
        form = aiohttp.FormData({"model": "whisper-1"})
        form.add_field("file", b"OggS", filename="a.ogg")
        async with session.post(f"{server.url}/audio/transcriptions", data=form) as response:
            assert await response.json() == {"text": "spoken"}
        async with session.post(f"{server.url}/audio/transcriptions", data={"model": "x"}) as response:
            assert response.status == 400
        assert server.uploads == [{"model": "whisper-1", "name": "a.ogg", "audio": b"OggS"}]


async def test_as_a_process_it_prints_its_address():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.model_server", "--text", "from afar", stdout=asyncio.subprocess.PIPE
    )
    try:
        url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        async with aiohttp.ClientSession() as session, session.post(f"{url}/chat/completions", json=HELLO) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "from afar"
    finally:
        process.terminate()
        await process.wait()
