"""Answers as endpoints really send them, read with the real client."""

import asyncio
import json
import subprocess
import sys

import pytest

from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.interface import ModelRequest
from gateway.agent.models.stream_reader import MOST_CALLS, is_written
from gateway.agent.tools import BUILT
from gateway.agent.tools.registry import Toolbox
from gateway.texts import say
from tests.fakes.model_replies import Reply, as_json, call, calls, drop
from tests.fakes.model_server import ModelServer
from tests.unit.gateway.agent.model_in_process import CLOCK, FILES, HELLO, model_in_process


async def test_an_answer_streams_and_counts():
    async with model_in_process(["Good morning to you"]) as talk:
        answer = await talk.ask()
        assert answer.text == "Good morning to you" == "".join(talk.shown)
        assert len(talk.shown) > 2
        assert (answer.finish_reason, answer.model, answer.tool_calls) == ("stop", "big", ())
        assert answer.usage.input_tokens > 0
        assert answer.usage.output_tokens > 0
        assert not answer.usage.estimated


async def test_what_is_asked_for_is_what_is_sent():
    async with model_in_process() as talk:
        await talk.ask(tools=[FILES], max_output_tokens=77, sampling={"temperature": 0.2}, model="other")
        body = talk.server.bodies[0]
        assert body["messages"] == HELLO
        assert body["tools"] == [FILES]
        assert (body["model"], body["max_tokens"], body["temperature"]) == ("other", 77, 0.2)
        assert body["stream"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert talk.server.calls[0].headers["Authorization"] == "Bearer sk-secret-123"


async def test_without_a_key_a_local_server_is_served():
    async with model_in_process(settings={"api_key": ""}) as talk:
        assert (await talk.ask()).text == "ok"


async def test_tool_calls_of_one_answer_stay_apart():
    script = [
        calls(call("files", {"action": "list"}, id="a"), call("clock", {"zone": "UTC"}, id="b"), text="One moment.")
    ]
    async with model_in_process(script) as talk:
        answer = await talk.ask(tools=[FILES, CLOCK])
        assert answer.text == "One moment."
        assert answer.finish_reason == "tool_calls"
        assert [(each.id, each.name, json.loads(each.arguments)) for each in answer.tool_calls] == [
            ("a", "files", {"action": "list"}),
            ("b", "clock", {"zone": "UTC"}),
        ]


async def test_unknown_fields_of_a_tool_call_go_back_as_they_came():
    signed = call("files", {"action": "list"}, extra_content={"google": {"thought_signature": "c2ln"}})
    async with model_in_process([calls(signed)]) as talk:
        (found,) = (await talk.ask(tools=[FILES])).tool_calls
        assert found.raw == signed
        turn = [{"role": "assistant", "content": None, "tool_calls": [dict(found.raw)]}]
        await talk.ask([*HELLO, *turn, {"role": "tool", "tool_call_id": found.id, "content": "[]"}], tools=[FILES])
        assert talk.server.bodies[1]["messages"][2]["tool_calls"] == [signed]


async def test_missing_usage_is_estimated_and_says_so():
    async with model_in_process([Reply(text="twelve chars", usage=None)]) as talk:
        usage = (await talk.ask()).usage
        assert usage.estimated
        assert usage.output_tokens == 3
        assert usage.input_tokens == talk.model.tokens.messages(HELLO)


async def test_usage_corrects_the_next_estimate_of_that_model():
    long = [{"role": "user", "content": "word " * 400}]
    async with model_in_process([Reply(text="ok", usage={"prompt_tokens": 1_000, "completion_tokens": 1})]) as talk:
        await talk.ask(long)
        assert talk.model.tokens.factor("big") == 2.0


async def test_cached_tokens_are_told():
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}
    async with model_in_process([Reply(text="ok", usage=usage)]) as talk:
        assert (await talk.ask()).usage.cached_tokens == 64


async def test_json_loses_the_fence_around_it():
    wanted = {"type": "json_object"}
    async with model_in_process([Reply(text='```json\n{"a": 1}\n```'), as_json({"a": 2})]) as talk:
        assert json.loads((await talk.ask(response_format=wanted)).text) == {"a": 1}
        assert json.loads((await talk.ask(response_format=wanted)).text) == {"a": 2}


WRITTEN_CALLS = {
    "fenced": '```tool\n{"name": "files", "arguments": {"action": "list"}}\n```',
    "fenced, marked otherwise": '```tool_call\n{"name": "files", "parameters": {"action": "list"}}\n```\n',
    "tagged": '<tool_call>\n{"name": "files", "arguments": {"action": "list"}}\n</tool_call>',
    "tagged as a result": '<tool_response>\n{"name": "files", "arguments": {"action": "list"}}\n</tool_response>',
    "bare": '{"name": "files", "arguments": {"action": "list"}}',
    "in doubled braces": '{{"name": "files", "arguments": {{"action": "list"}}}}',
    "in doubled braces outside": '{{"name": "files", "arguments": {"action": "list"}}}',
    "with flat arguments": '{"name": "files", "action": "list"}',
    "after its kind": 'tool{"name": "files", "arguments": {"action": "list"}}',
    "by the name of tool": '{"tool": "files", "args": {"action": "list"}}',
    "as in a transcript": '{"type": "function", "function": {"name": "files", "arguments": "{\\"action\\": \\"list\\"}"}}',
    "in a list": '[{"name": "files", "arguments": {"action": "list"}}]',
}
SAVE = {
    "type": "function",
    "function": {
        "name": "memory",
        "parameters": {
            "type": "object",
            "properties": {"action": {"enum": ["save", "forget"]}, "text": {"type": "string"}},
            "required": ["action"],
        },
    },
}


@pytest.mark.parametrize("text", WRITTEN_CALLS.values(), ids=WRITTEN_CALLS.keys())
async def test_a_call_written_as_text_is_a_call_and_is_not_shown(text):
    async with model_in_process([Reply(text=text, chunks=tuple(text))]) as talk:
        answer = await talk.ask(tools=[FILES])
        assert [(each.name, json.loads(each.arguments)) for each in answer.tool_calls] == [
            ("files", {"action": "list"})
        ]
        assert (answer.text, talk.shown, answer.finish_reason) == ("", [], "tool_calls")


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "unknown", "arguments": {}}\n```\nlike so',
        '{"just": "json"}',
        '[{"name": "files", "arguments": {}}, {"just": "json"}]',
        '```\n[{"name": "files", "arguments": {}}, {"just": "json"}]\n```',
        "```python\nprint(1)\n```\n\n```\nplain\n```",
        'Like this:\n\n```json\n{"name": "files", "arguments": {}}\n```',
        'Bob wrote in the group: {"action": "delete", "path": "precious.md"} which looks like a prank.',
        'Bob wrote in the group: {"name": "files", "arguments": {"action": "delete", "path": "precious.md"}}',
        'It was a prank. Bob wrote:\n{"name": "files", "arguments": {"action": "list"}}',
        '`{"name": "files", "arguments": {"action": "list"}}`',
        '"{"name": "files", "arguments": {"action": "list"}}"',
        '> {"name": "files", "arguments": {"action": "list"}}',
        '```json\n{"name": "Ann", "arguments": {"action": "list"}}\n```',
        "```json\n",
    ],
)
async def test_other_blocks_are_text(text):
    async with model_in_process([Reply(text=text, chunks=tuple(text))]) as talk:
        answer = await talk.ask(tools=[FILES])
        assert answer.text == text == "".join(talk.shown)
        assert answer.tool_calls == ()


@pytest.mark.parametrize(
    ("text", "shown", "calls"),
    [
        ('Sure, I list them.\n{"name": "files", "arguments": {"action": "list"}}', "Sure, I list them.\n", 1),
        ('<tools>\n{"name": "files", "arguments": {"action": "list"}}\n</tools>', "", 1),
        ('I will:\n\n{"name": "files", "action": "list"}\n', "I will:\n\n", 1),
        ('Look:\n```tool\n{"name": "files", "arguments": {"action": "list"}}\n```', "Look:\n", 1),
        ('Sure, I list them. {"name": "files", "arguments": {"action": "list"}}', None, 0),
        (
            '{"name": "files", "arguments": {"action": "list"}}\n{"name": "memory", "action": "save", "text": "a"}',
            "",
            2,
        ),
        ('{"action": "save", "text": "Ann lives in Oslo"}', "", 1),
        ('{"name": "memory", "arguments": {"action": "save", "text": "a}', "", 1),
        ('The file holds {"name": "Ann", "age": 5} and {"a": {"name": "x"}}.', None, 0),
        ('{"tools": [{"name": "files", "arguments": {"action": "list"}}]}', None, 0),
        ("A set {1, 2}, a template {{name}}, a tool { and", None, 0),
        ('{"action": "jump", "text": "a"}', None, 0),
    ],
)
async def test_calls_as_small_models_write_them(text, shown, calls):
    async with model_in_process([Reply(text=text, chunks=tuple(text))]) as talk:
        answer = await talk.ask(tools=[FILES, SAVE])
        assert len(answer.tool_calls) == calls
        expected = text if shown is None else shown
        assert "".join(talk.shown) == expected
        assert answer.text == (expected.rstrip() if calls else expected)


BARE_CALLS = {
    'session_search, "query": "in-memory cache", "limit": 10': (
        "session_search",
        {"query": "in-memory cache", "limit": 10},
    ),
    "- memory: vegetarian; kind: fact": ("memory", {"text": "vegetarian", "kind": "fact"}),
    "Memory: save fact; text: Ann is a vegetarian": (
        "memory",
        {"action": "save", "kind": "fact", "text": "Ann is a vegetarian"},
    ),
    "memory save vegetarian": ("memory", {"action": "save", "text": "vegetarian"}),
    'I look it up.\nsession_search(query="tea")': ("session_search", {"query": "tea"}),
    "files: list": ("files", {"action": "list"}),
    """<function name="memory" arguments='{"kind": "fact", "text": "It's > 3"}'/>\n</tools>""": (
        "memory",
        {"kind": "fact", "text": "It's > 3"},
    ),
    '<tools>\n<function=session_search>\n{"query": "tea"}\n</function>\n</tools>': ("session_search", {"query": "tea"}),
    '<invoke name="session_search"><parameter name="query">tea</parameter><parameter=limit>3</parameter></invoke>': (
        "session_search",
        {"query": "tea", "limit": 3},
    ),
    '{"name": "files", "arguments": {"action": "list"}}\n```': ("files", {"action": "list"}),
}
OWN = Toolbox.of(BUILT).schemas


@pytest.mark.parametrize("text", BARE_CALLS)
async def test_a_tool_name_with_its_arguments_and_nothing_else_is_a_call(text):
    async with model_in_process([Reply(text=text, chunks=tuple(text))]) as talk:
        answer = await talk.ask(tools=OWN)
        assert [(each.name, json.loads(each.arguments)) for each in answer.tool_calls] == [BARE_CALLS[text]]
        assert "".join(talk.shown).strip() == answer.text
        assert answer.text in {"", "I look it up."}


@pytest.mark.parametrize(
    "text",
    [
        'session_search, "query": "cache", "limit": 10\n\nI found nothing about a cache.',
        "Memory: save fact; text: likes tea\nI have noted that.",
        '{"name": "files", "arguments": {"action": "list"}}\nis what Bob wrote.',
        '```tool\n{"name": "files", "arguments": {"action": "list"}}\n```\nis what Bob wrote.',
        '```json\n{"name": "files", "arguments": {"action": "list"}}\n```',
        '```\n{\n  "name": "session_search",\n  "arguments": {"query": "tea"}\n}\n```\n',
        '```json\n{"name": "memory", "arguments": {"action": "sa',
        "memory, name=Lena",
        "session_search",
        "<tools></tools>",
        "<tools>\n</tools>\n",
        '<function name="session_search" arguments=\'{"query": "tea"}\'>You like tea.',
        "<function=files>",
        "<tool_response>\n[wrong arguments for files: they are no JSON]\n</tool_response>",
        "}",
        " ]}\n",
    ],
)
async def test_what_is_left_of_a_call_is_not_shown_and_the_answer_is_asked_for_once_more(text):
    async with model_in_process([Reply(text=text, chunks=tuple(text)), "I do not know.", text, text]) as talk:
        answer = await talk.ask(tools=OWN)
        assert (answer.text, answer.tool_calls) == ("I do not know.", ())
        assert "".join(map(str, talk.shown)) == "I do not know."
        again = [message["content"] for message in talk.server.bodies[1]["messages"]]
        assert text.strip() not in [content.strip() for content in again], "the model does not see it and copy it"
        assert "in plain words" in again[-1]
        assert (await talk.ask(tools=OWN)).text == "", "twice, and no more"
        assert talk.server.count == 4


@pytest.mark.parametrize(
    "text",
    [
        "Memory is what makes us human: we learn.",
        "Memory: I still know that you like tea.",
        "Files: a.txt, b.txt; both are yours.",
        "Schedule: Monday 9:00 dentist; Tuesday 10:00 school",
        "Process list:\n- wash\n- dry",
        "Skill comes with practice.",
        "Bob wrote: memory save vegetarian",
        "> memory save vegetarian",
        "Memory",
        "Take {1, 2}",
        "A smile :] and a set {1}",
        "<function> is no element of HTML.",
        "You close it with </tools>",
        "It is written so:\n<tools>\n<a/>\n</tools>",
        "It is shorter when a < b, and not when a <tool",
        '<function name="unknown"/>',
    ],
)
async def test_people_may_talk_of_what_tools_are_called(text):
    async with model_in_process([Reply(text=text, chunks=tuple(text))]) as talk:
        answer = await talk.ask(tools=OWN)
        assert (answer.text, "".join(talk.shown), answer.tool_calls) == (text, text, ())


@pytest.mark.parametrize("stray", ["\n}", "</tools>", " </tool>\n", "\n\n<tools></tools>", "\n</tools>\n}"])
async def test_a_bracket_or_tag_that_closes_nothing_is_not_shown(stray):
    text = f"It is Tuesday.{stray}"
    async with model_in_process([Reply(text=text, chunks=tuple(text))]) as talk:
        assert (await talk.ask(tools=OWN)).text.strip() == "It is Tuesday." == "".join(talk.shown).strip()


async def test_an_endpoint_that_has_made_a_real_call_is_never_taken_at_its_text():
    async with model_in_process([calls(call("files")), WRITTEN_CALLS["bare"], WRITTEN_CALLS["tagged"]]) as talk:
        assert len((await talk.ask(tools=[FILES])).tool_calls) == 1
        for way in ("bare", "tagged"):
            answer = await talk.ask(tools=[FILES])
            assert (answer.text, answer.tool_calls) == (WRITTEN_CALLS[way], ())


async def test_a_call_that_a_server_has_cut_out_in_the_wrong_place_is_read_and_proves_nothing():
    cut = calls(call("files", arguments=WRITTEN_CALLS["tagged as a result"]))
    async with model_in_process([cut, WRITTEN_CALLS["bare"]]) as talk:
        for _ in range(2):
            answer = await talk.ask(tools=[FILES])
            assert [json.loads(each.arguments) for each in answer.tool_calls] == [{"action": "list"}]
            assert all(is_written(each.id) for each in answer.tool_calls)


async def test_one_answer_makes_so_many_calls_and_no_more():
    many = calls(*(call("clock", id=f"c{number}") for number in range(500)))
    async with model_in_process([many]) as talk:
        assert len((await talk.ask(tools=[CLOCK])).tool_calls) == MOST_CALLS


async def test_text_beside_a_real_call_is_text():
    async with model_in_process([calls(call("clock"), text=WRITTEN_CALLS["bare"])]) as talk:
        answer = await talk.ask(tools=[FILES, CLOCK])
        assert ([each.name for each in answer.tool_calls], answer.text) == (["clock"], WRITTEN_CALLS["bare"])


@pytest.mark.parametrize("text", WRITTEN_CALLS.values(), ids=WRITTEN_CALLS.keys())
async def test_text_is_never_a_call_of_the_callers_tools(text):
    async with model_in_process([Reply(text=text, chunks=tuple(text))]) as talk:
        answer = await talk.ask(tools=[FILES, CLOCK], callers_tools=frozenset({"files"}))
        assert (answer.text, answer.tool_calls) == (text, ())


async def test_cancelling_ends_the_call():
    waiting = asyncio.Event()

    async def never():
        waiting.set()
        await asyncio.Event().wait()

    async with model_in_process([Reply(text="never", before=never), "next"]) as talk:
        task = asyncio.create_task(talk.ask())
        await asyncio.wait_for(waiting.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await talk.ask()).text == "next"


async def test_an_error_of_the_reader_is_not_taken_for_one_of_the_endpoint():
    def broken(_token: str) -> None:
        raise ValueError("mine")

    async with model_in_process(["a b c", "fine"]) as talk:
        with pytest.raises(ValueError, match="mine"):
            await talk.model.ask(ModelRequest(messages=HELLO), broken)
        assert (await talk.ask()).text == "fine"


async def test_a_server_that_closes_the_connection_after_each_answer_is_asked_again_at_once():
    async with model_in_process(closes=True) as talk:
        for _ in range(20):
            assert (await talk.ask()).text == "ok"
        assert (talk.server.count, talk.time.slept) == (20, [])


async def test_a_near_server_that_drops_one_call_after_an_answer_is_asked_again_at_once():
    async with model_in_process(["ok", drop(), "back", drop(), drop(), "back again"]) as talk:
        assert [(await talk.ask()).text for _ in range(2)] == ["ok", "back"]
        assert (talk.server.count, talk.time.slept) == (3, [])
        assert (await talk.ask()).text == "back again"
        assert (talk.server.count, talk.time.slept) == (6, [0.5]), "only once at once"


async def test_many_questions_at_once():
    async with model_in_process() as talk:
        answers = await asyncio.gather(*(talk.ask() for _ in range(20)))
        assert {answer.text for answer in answers} == {"ok"}
        assert talk.server.count == 20


async def test_a_closed_model_can_be_used_again():
    async with model_in_process() as talk:
        await talk.ask()
        await talk.model.aclose()
        assert (await talk.ask()).text == "ok"


def test_it_tells_its_name_and_never_its_key():
    settings = ModelSettings(base_url="https://user:pw@api.openai.com/v1", name="gpt-5-mini", api_key="sk-secret")
    assert OpenAIModel(settings).describe() == "gpt-5-mini at api.openai.com"
    assert "sk-secret" not in repr(settings)


@pytest.mark.parametrize(
    ("base_url", "near"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://localhost:11434/v1", True),
        ("http://[::1]:8080/v1", True),
        ("http://192.168.1.20:8000/v1", True),
        ("http://ollama:11434/v1", True),
        ("http://box.local:1234/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://8.8.8.8/v1", False),
    ],
)
def test_a_model_of_this_machine_or_network_is_near(base_url: str, near: bool):
    assert ModelSettings(base_url=base_url, name="m").is_near is near


def test_importing_the_model_does_not_import_the_client_library():
    code = "import sys, gateway.agent.models.chat_completions, gateway.agent.models.practice; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_the_loop_goes_on_while_the_server_is_slow():
    gate = asyncio.Event()
    async with ModelServer([Reply(text="late", before=gate.wait)]) as server:
        model = OpenAIModel(ModelSettings(base_url=server.url, name="m"))
        task = asyncio.create_task(model.ask(ModelRequest(messages=HELLO)))
        await asyncio.sleep(0.02)
        assert not task.done()
        gate.set()
        assert (await asyncio.wait_for(task, 30)).text == "late"
        await model.aclose()


LIMIT = {"answer_bytes": 1_000}


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_that_never_ends_is_cut_and_says_so(streams: bool):
    endless = Reply(text="word " * 100_000, chunks=("word ",) * 100_000 if streams else ())
    async with model_in_process([endless], settings=LIMIT) as talk:
        answer = await talk.ask()
        assert answer.text == ("word " * 200)[:999] + "\n\n" + say("limits.answer_cut", limit="1,000")
        assert answer.text == "".join(talk.shown)
        assert answer.finish_reason == "length"


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_nor_does_one_of_reasoning_or_of_nothing_go_on_for_ever(field: str):
    deltas = tuple({field: "" if field == "content" else "hmm "} for _ in range(20_000))
    async with model_in_process([Reply(deltas=deltas)], settings=LIMIT) as talk:
        answer = await talk.ask()
        assert answer.text.strip() == say("limits.answer_cut", limit="1,000")
        assert answer.finish_reason == "length"


async def test_calls_of_an_answer_that_was_cut_are_marked_as_cut_off():
    long = calls(call("files", {"action": "write", "content": "x" * 5_000}))
    async with model_in_process([long], settings=LIMIT) as talk:
        assert (await talk.ask(tools=[FILES])).finish_reason == "length"


async def test_a_window_that_was_found_is_kept_when_another_question_for_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, found = OpenAIModel(ModelSettings(base_url="http://127.0.0.1:9/v1", name="m", api_key="k")), asyncio.Event()
    answers = iter([None, 8_192])

    async def reported_window(_: str) -> int | None:
        named = next(answers)
        if named is None:
            await found.wait()
        return named

    monkeypatch.setattr(model._endpoint, "reported_window", reported_window)
    failing = asyncio.create_task(model.learn_window())
    await asyncio.sleep(0)
    await model.learn_window()
    found.set()
    await failing
    assert model.window() == 8_192
