"""How an answer is read from its stream: tool calls however they are cut, and thoughts that nobody sees."""

import json

import pytest

from gateway.agent.models.interface import AFRESH
from tests.fakes.model_replies import Failure, Reply, call, calls
from tests.unit.gateway.agent.model_in_process import CLOCK, FILES, model_in_process


def _deltas(*deltas: dict, finish_reason: str = "stop") -> Reply:
    return Reply(deltas=tuple({"tool_calls": [delta]} for delta in deltas), finish_reason=finish_reason)


def _piece(name: str | None = None, arguments: object = None, **fields) -> dict:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**fields, "function": function}


TWO_CALLS = {
    "as the API says": (
        _piece("files", "", index=0, id="a", type="function"),
        _piece(arguments='{"n"', index=0),
        _piece("clock", "", index=1, id="b", type="function"),
        _piece(arguments=":1}", index=0),
        _piece(arguments='{"n":2}', index=1),
    ),
    "no index": (_piece("files", '{"n":1}', id="a"), _piece("clock", '{"n":2}', id="b")),
    "no index, in pieces": (
        _piece("files", "", id="a"),
        _piece(arguments='{"n":'),
        _piece(arguments="1}"),
        _piece("clock", '{"n":2}', id="b"),
    ),
    "neither index nor id": (_piece("files", '{"n":1}'), _piece("clock", '{"n":2}')),
    "every index is 0": (_piece("files", '{"n":1}', index=0, id="a"), _piece("clock", '{"n":2}', index=0, id="b")),
    "every index is 0, no id": (_piece("files", '{"n":1}', index=0), _piece("clock", '{"n":2}', index=0)),
    "id and name on every piece": (
        _piece("files", '{"n":', index=0, id="a"),
        _piece("files", "1}", index=0, id="a"),
        _piece("clock", '{"n":2}', index=1, id="b"),
    ),
    "empty ids on later pieces": (
        _piece("files", '{"n":', index=0, id="a"),
        _piece("", "1}", index=0, id=""),
        _piece("clock", '{"n":2}', index=1, id="b"),
    ),
    "nulls on later pieces": (
        _piece("files", '{"n":', index=0, id="a", type="function"),
        {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": "1}"}},
        _piece("clock", '{"n":2}', index=1, id="b"),
    ),
    "arguments as an object": (_piece("files", {"n": 1}, index=0, id="a"), _piece("clock", {"n": 2}, index=1, id="b")),
    "the same id twice": (_piece("files", '{"n":1}', index=0, id="a"), _piece("clock", '{"n":2}', index=1, id="a")),
}


@pytest.mark.parametrize("deltas", TWO_CALLS.values(), ids=TWO_CALLS.keys())
async def test_two_calls_however_they_are_cut(deltas):
    async with model_in_process([_deltas(*deltas)]) as talk:
        answer = await talk.ask(tools=[FILES, CLOCK])
        assert [(each.name, json.loads(each.arguments)) for each in answer.tool_calls] == [
            ("files", {"n": 1}),
            ("clock", {"n": 2}),
        ]
        assert len({each.id for each in answer.tool_calls}) == 2
        assert all(each.id and each.raw["type"] == "function" for each in answer.tool_calls)
        assert answer.finish_reason == "tool_calls"


async def test_a_legacy_function_call_is_a_tool_call():
    deltas = ({"function_call": {"name": "files", "arguments": ""}}, {"function_call": {"arguments": '{"n":1}'}})
    async with model_in_process([Reply(deltas=deltas, finish_reason="function_call")]) as talk:
        answer = await talk.ask(tools=[FILES])
        assert [(each.name, each.arguments) for each in answer.tool_calls] == [("files", '{"n":1}')]
        assert answer.finish_reason == "tool_calls"


async def test_arguments_that_are_no_json_are_told_as_written_and_sent_back_as_json():
    async with model_in_process([calls(call("files", "list all!"))]) as talk:
        (found,) = (await talk.ask(tools=[FILES])).tool_calls
        assert found.arguments == "list all!"
        assert json.loads(found.raw["function"]["arguments"]) == {"not_json": "list all!"}


async def test_empty_arguments_are_an_empty_object():
    async with model_in_process([calls(call("files", ""))]) as talk:
        (found,) = (await talk.ask(tools=[FILES])).tool_calls
        assert found.arguments == found.raw["function"]["arguments"] == "{}"


async def test_an_answer_cut_for_its_length_says_so_even_with_tool_calls():
    async with model_in_process([calls(call("files", '{"action": "wri'), finish_reason="length")]) as talk:
        assert (await talk.ask(tools=[FILES])).finish_reason == "length"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_fields_are_not_the_answer(field):
    async with model_in_process([Reply(text="42", reasoning="secret thoughts", reasoning_field=field)]) as talk:
        assert (await talk.ask()).text == "42"
        assert "".join(talk.shown) == "42"


THOUGHTS = {
    "whole": ("<think>secret</think>\n\nforty two",),
    "split": ("<th", "ink>sec", "ret</thi", "nk>", "\n\nforty", " two"),
    "letter by letter": tuple("<think>\nsecret\n</think>\n\nforty two"),
    "in the middle": ("forty", "<think>secret</think>", " two"),
    "capitals": ("<Thinking>secret</Thinking>forty two",),
}


@pytest.mark.parametrize("chunks", THOUGHTS.values(), ids=THOUGHTS.keys())
async def test_thoughts_in_the_text_are_never_shown(chunks):
    async with model_in_process([Reply(text="".join(chunks), chunks=chunks)]) as talk:
        assert (await talk.ask()).text == "forty two" == "".join(talk.shown)


async def test_a_closing_tag_alone_voids_what_was_shown_before_it():
    async with model_in_process([Reply(text="x", chunks=("secret ", "thoughts", "</think>", "forty", " two"))]) as talk:
        assert (await talk.ask()).text == "forty two"
        assert AFRESH in talk.shown
        assert "".join(talk.shown[talk.shown.index(AFRESH) + 1 :]) == "forty two"


async def test_thoughts_that_never_end_leave_no_answer():
    async with model_in_process([Reply(text="x", chunks=("<think>", "secret"), finish_reason="length")]) as talk:
        answer = await talk.ask()
        assert (answer.text, talk.shown, answer.finish_reason) == ("", [], "length")


@pytest.mark.parametrize(
    "text", ["Use `<think>` there", "```xml\n<think>a</think>\n```", "1 < 2 and a <thin line", "a <"]
)
async def test_text_about_tags_stays(text):
    async with model_in_process([Reply(text=text, chunks=tuple(text))]) as talk:
        assert (await talk.ask()).text == text == "".join(talk.shown)


async def test_content_as_parts_null_content_and_empty_choices():
    script = [Reply(text="in parts", parts=True, empty_choices=True), Reply(text=None)]
    async with model_in_process(script) as talk:
        assert (await talk.ask()).text == "in parts"
        assert (await talk.ask()).text == ""


async def test_only_the_first_choice_is_read():
    choices = [{"index": n, "delta": {"content": f"choice {n}"}, "finish_reason": "stop"} for n in range(2)]
    body = f"data: {json.dumps({'choices': choices})}\n\ndata: [DONE]\n\n".encode()
    async with model_in_process([Failure(status=200, body=body, content_type="text/event-stream")]) as talk:
        assert (await talk.ask()).text == "choice 0"
