"""Endpoints that speak less than the whole API: each gap costs one refused call, once."""

import json

import pytest

from gateway.agent.models.errors import CallOutcome
from gateway.agent.models.interface import ModelRefused
from tests.fakes.model_replies import Failure, Reply, as_json, bad_request, call, calls
from tests.fakes.model_rules import Speaks
from tests.unit.gateway.agent.model_in_process import CLOCK, FILES, HELLO, model_in_process

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FOLD = {"type": "json_schema", "json_schema": {"name": "hermes_fold", "schema": SCHEMA, "strict": True}}
WRITTEN = 'Let me look.\n\n```tool\n{"name": "files", "arguments": {"action": "list"}}\n```\n'

GAPS = {
    "stream_options": (Speaks(stream_options=False), {}),
    "stream": (Speaks(stream=False), {}),
    "tools": (Speaks(tools=False), {"tools": [FILES]}),
    "json_schema": (Speaks(json_schema=False), {"response_format": FOLD}),
    "max_tokens": (Speaks(max_tokens=False), {}),
    "length": (Speaks(most_output=2_000), {}),
    "temperature": (Speaks(temperature=False), {"sampling": {"temperature": 0.1}}),
}


@pytest.mark.parametrize(("speaks", "fields"), GAPS.values(), ids=GAPS.keys())
async def test_a_gap_costs_one_call_once(speaks, fields):
    async with model_in_process(speaks=speaks) as talk:
        assert (await talk.ask(**fields)).text == "ok"
        assert (await talk.ask(**fields)).text == "ok"
        assert len(talk.server.refused) == 1
        assert talk.server.count == 3
        assert talk.time.slept == []
        assert [outcome for _, outcome, _, _ in talk.observed] == [
            CallOutcome.ADAPTED,
            CallOutcome.ANSWERED,
            CallOutcome.ANSWERED,
        ]


async def test_an_endpoint_that_speaks_next_to_nothing_still_answers():
    least = Speaks(
        stream=False, stream_options=False, tools=False, json_schema=False, json_object=False, max_tokens=False
    )
    async with model_in_process(speaks=least) as talk:
        answer = await talk.ask(tools=[FILES], response_format=FOLD)
        assert answer.text == "ok" == "".join(talk.shown)
        assert set(talk.server.bodies[-1]) == {"model", "messages", "max_completion_tokens"}


async def test_gaps_are_remembered_per_model():
    script = lambda body: bad_request("No tools: not supported") if body["model"] == "old" and "tools" in body else "ok"  # noqa: E731
    async with model_in_process(script) as talk:
        await talk.ask(tools=[FILES], model="old")
        await talk.ask(tools=[FILES])
        assert ["tools" in body for body in talk.server.bodies] == [True, False, True]


WORDS = {
    "stream_options": [
        "Unrecognized request argument supplied: stream_options",
        "[{'type': 'extra_forbidden', 'loc': ['body', 'stream_options'], 'msg': 'Extra inputs are not permitted'}]",
    ],
    "tools": [
        "registry.ollama.ai/library/gemma:2b does not support tools",
        "No endpoints found that support tool use. Try disabling files.",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "`tools` is not supported with this model",
        "Function calling is not enabled: unsupported",
    ],
    "response_format": [
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        "This model does not support structured outputs",
        "json mode is not available for this model",
    ],
}


@pytest.mark.parametrize(("field", "words"), [(field, each) for field, many in WORDS.items() for each in many])
async def test_gaps_are_told_in_many_ways(field, words):
    def script(body):
        old = body.get(field) if field != "response_format" else body.get(field, {}).get("type") == "json_schema"
        return bad_request(words, status=404 if "endpoints" in words else 400) if old else "ok"

    async with model_in_process(script) as talk:
        assert (await talk.ask(tools=[FILES], response_format=FOLD)).text == "ok"
        assert talk.server.count == 2


async def test_without_tools_they_are_told_in_words_and_called_in_a_block():
    async with model_in_process([Reply(text=WRITTEN, chunks=tuple(WRITTEN))], speaks=Speaks(tools=False)) as talk:
        answer = await talk.ask(tools=[FILES, CLOCK])
        assert [(each.name, json.loads(each.arguments)) for each in answer.tool_calls] == [
            ("files", {"action": "list"})
        ]
        assert answer.text == "Let me look."
        assert "".join(talk.shown).strip() == "Let me look."
        assert answer.finish_reason == "tool_calls"
        system, user = talk.server.bodies[1]["messages"]
        assert system["content"].startswith("You are kind.")
        assert '"name": "clock"' in system["content"]
        assert user == HELLO[1]


async def test_without_tools_their_options_are_not_sent_either():
    async with model_in_process(speaks=Speaks(tools=False)) as talk:
        await talk.ask(tools=[FILES], sampling={"tool_choice": "auto", "parallel_tool_calls": True, "temperature": 0})
        assert "tool_choice" in talk.server.bodies[0]
        assert {"tool_choice", "parallel_tool_calls", "tools"}.isdisjoint(talk.server.bodies[1])
        assert talk.server.bodies[1]["temperature"] == 0


async def test_without_tools_two_blocks_are_two_calls_and_code_stays_code():
    text = '```tool\n{"name": "clock", "arguments": {}}\n```\n```tool\n{"name": "files", "arguments": {}}\n```'
    code = f"Code:\n\n```python\nx = 1\n```\n\n{text}"
    script = [Reply(text=each, chunks=tuple(each)) for each in (text, code)]
    async with model_in_process(script, speaks=Speaks(tools=False)) as talk:
        answer = await talk.ask(tools=[FILES, CLOCK], callers_tools=frozenset({"clock"}))
        assert [each.name for each in answer.tool_calls] == ["clock", "files"]
        assert answer.text == ""
        assert (await talk.ask(tools=[FILES, CLOCK])).text == code


async def test_without_tools_the_transcript_is_spelled_out_and_roles_alternate():
    turn = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("files", {"action": "list"}, id="a"), call("clock", id="b")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "notes.txt"},
        {"role": "tool", "tool_call_id": "b", "content": "noon"},
        {"role": "user", "content": "and now?"},
    ]
    async with model_in_process(speaks=Speaks(tools=False)) as talk:
        await talk.ask([*HELLO, *turn], tools=[FILES, CLOCK])
        sent = talk.server.bodies[1]["messages"]
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
        assert sent[2]["content"].count("```tool") == 2
        assert "notes.txt" in sent[3]["content"]
        assert sent[3]["content"].endswith("and now?")


async def test_json_goes_down_step_by_step_and_carries_its_schema_in_words():
    speaks = Speaks(json_schema=False, json_object=False)
    async with model_in_process([Reply(text='```json\n{"a": 1}\n```')], speaks=speaks) as talk:
        assert json.loads((await talk.ask(response_format=FOLD)).text) == {"a": 1}
        kinds = [body.get("response_format", {}).get("type") for body in talk.server.bodies]
        assert kinds == ["json_schema", "json_object", None]
        for body in talk.server.bodies[1:]:
            assert '"required": ["a"]' in body["messages"][0]["content"]
        assert talk.server.bodies[2]["messages"][1] == HELLO[1]


async def test_a_schema_that_is_spoken_is_sent_as_it_is():
    async with model_in_process([as_json({"a": 1})]) as talk:
        await talk.ask(response_format=FOLD)
        assert talk.server.bodies[0]["response_format"] == FOLD
        assert talk.server.bodies[0]["messages"] == HELLO


async def test_an_endpoint_that_ignores_stream_is_read_all_the_same():
    whole = {"choices": [{"message": {"role": "assistant", "content": "all at once"}, "finish_reason": "stop"}]}
    async with model_in_process([Failure(status=200, body=json.dumps(whole).encode())]) as talk:
        assert (await talk.ask()).text == "all at once" == "".join(talk.shown)


async def test_without_streaming_calls_and_legacy_calls_are_read():
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "clock", "arguments": "{}"}}
    script = [calls(call("files"), call("clock"), text="both"), Reply(message=legacy, finish_reason="function_call")]
    async with model_in_process(script, speaks=Speaks(stream=False)) as talk:
        assert [each.name for each in (await talk.ask(tools=[FILES, CLOCK])).tool_calls] == ["files", "clock"]
        assert [each.name for each in (await talk.ask(tools=[FILES, CLOCK])).tool_calls] == ["clock"]


async def test_a_refusal_about_tool_calls_in_the_transcript_is_not_a_gap():
    words = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'; unexpected role"
    async with model_in_process([bad_request(words)]) as talk:
        with pytest.raises(ModelRefused) as raised:
            await talk.ask(tools=[FILES])
        assert raised.value.about_transcript
        await talk.ask(tools=[FILES])
        assert "tools" in talk.server.bodies[1]


async def test_an_endpoint_that_refuses_for_ever_is_not_asked_for_ever():
    words = (
        "stream, stream_options, tools, response_format, max_tokens, max_completion_tokens, temperature: not supported"
    )
    async with model_in_process(then=bad_request(words)) as talk:
        with pytest.raises(ModelRefused):
            await talk.ask(tools=[FILES], response_format=FOLD, sampling={"temperature": 1})
        assert talk.server.count <= 10


@pytest.mark.parametrize(
    "words", ["System role not supported", "Developer instruction is not enabled for models/gemma"]
)
async def test_without_a_system_role_its_prompt_opens_the_first_user_message(words):
    script = lambda body: bad_request(words) if body["messages"][0]["role"] == "system" else "ok"  # noqa: E731
    async with model_in_process(script) as talk:
        await talk.ask()
        await talk.ask()
        assert talk.server.count == 3
        assert talk.server.bodies[2]["messages"] == [{"role": "user", "content": "You are kind.\n\nhello"}]
        await talk.ask(HELLO[1:])
        assert talk.server.bodies[3]["messages"] == HELLO[1:]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SEEN = [HELLO[0], {"role": "user", "content": [{"type": "text", "text": "what is this"}, PICTURE]}]
NO_PICTURES = [
    "Invalid content type. image_url is only supported by certain models.",
    "No endpoints found that support image input",
    "At most 0 image(s) may be provided in one request.",
    "llama3.2 is not a multimodal model",
    "Failed to deserialize the JSON body: messages[1]: unknown variant `image_url`, expected `text`",
    "'messages.1' : for 'role:user' the following must be satisfied['messages.1.content' : content must be a string]",
    "Image inputs are not supported by this model.",
    "this model is missing data required for image input",
    "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
]


def sighted(body: dict) -> bool:
    return "image_url" in json.dumps(body)


@pytest.mark.parametrize("words", NO_PICTURES)
@pytest.mark.parametrize("status", [400, 404, 422, 500])
async def test_a_model_that_takes_no_pictures_goes_on_without_and_is_told(words, status):
    script = lambda body: bad_request(words, status=status) if sighted(body) else "ok"  # noqa: E731
    async with model_in_process(script) as talk:
        assert (await talk.ask(SEEN, tools=[FILES])).text == "ok"
        assert (await talk.ask(SEEN, tools=[FILES])).text == "ok"
        assert [sighted(body) for body in talk.server.bodies] == [True, False, False]
        system, user = talk.server.bodies[-1]["messages"]
        assert system["content"].endswith("say so.")
        assert user["content"] == "what is this"
        assert "tools" in talk.server.bodies[-1]


@pytest.mark.parametrize(
    "words",
    [
        "You uploaded an unsupported image. Please make sure your image has one of the following formats: png, jpeg",
        "messages.1.content.1.image: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
        "Could not process image",
        "Invalid image data",
    ],
)
async def test_one_picture_that_is_refused_is_left_out_and_others_are_tried(words):
    script = lambda body: bad_request(words) if "AAAA" in json.dumps(body) else "ok"  # noqa: E731
    good = json.loads(json.dumps(SEEN).replace("AAAA", "BBBB"))
    async with model_in_process(script) as talk:
        assert (await talk.ask(SEEN)).text == "ok"
        assert (await talk.ask(good)).text == "ok"
        assert [sighted(body) for body in talk.server.bodies] == [True, False, True]
