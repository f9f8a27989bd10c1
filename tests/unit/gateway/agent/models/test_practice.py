import json

import pytest

from gateway.agent.models.interface import Model, ModelRequest
from gateway.agent.models.practice import PAUSE_SECONDS, SLOW_SECONDS, PracticeModel
from tests.fakes.model_rules import Speaks, refuse

ALL = ("memory", "session_search", "skill", "files", "schedule", "ask_human", "web_fetch", "process")
SYSTEM = {
    "role": "system",
    "content": "You are kind.\n\no3 2026-05-20 fact: Lives in Oslo\no7 2026-05-21 preference: Tea",
}


def tools(*names):
    parameters = {"type": "object", "properties": {}}
    return [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in names]


def user(text):
    return {"role": "user", "content": f"Now: Monday\nRecall: 2026-01-01 Ada: search the cellar\n\n{text}"}


async def ask(*messages, offered=ALL, model=None, shown=None, **fields):
    request = ModelRequest(messages=messages, tools=tools(*offered), **fields)
    return await (model or PracticeModel(pause=0)).ask(request, shown.append if shown is not None else None)


async def call_for(text, **fields):
    (call,) = (await ask(user(text), **fields)).tool_calls
    return call.name, json.loads(call.arguments)


async def test_it_says_what_it_is_and_what_it_understood():
    answer = await ask(user("what is the\n\nweather?"))
    assert "no real AI" in answer.text
    assert "> what is the\n> \n> weather?" in answer.text
    assert "Monday" not in answer.text
    assert (answer.finish_reason, answer.model, answer.usage.estimated) == ("stop", "practice", True)


async def test_a_message_without_a_context_block_and_one_of_a_group_are_understood():
    assert "> hello" in (await ask({"role": "user", "content": "hello"})).text
    name, arguments = await call_for("[Ada Lovelace] search engines")
    assert (name, arguments) == ("session_search", {"query": "engines"})


async def test_a_context_block_without_words_after_it_is_not_quoted():
    text = (await ask({"role": "user", "content": "[Wednesday, 2026-05-20 10:00 Etc/UTC]\n\n"})).text
    assert "> (nothing)" in text
    assert "Wednesday" not in text


CALLS = {
    "remember that I live in Oslo": ("memory", {"action": "save", "text": "I live in Oslo", "kind": "fact"}),
    "Please remember: the door is blue": ("memory", {"action": "save", "text": "the door is blue", "kind": "fact"}),
    "I prefer tea": ("memory", {"action": "save", "text": "I prefer tea", "kind": "preference"}),
    "forget about Oslo": ("memory", {"action": "forget", "text": "Oslo"}),
    "What do you know about me?": ("memory", {"action": "list"}),
    "search for red boats": ("session_search", {"query": "red boats"}),
    "what did we say about boats?": ("session_search", {"query": "boats"}),
    "write a file": (
        "files",
        {"action": "write", "path": "practice.md", "content": "A note from the practice model.\n"},
    ),
    "write a file notes/a.md: buy\nmilk": ("files", {"action": "write", "path": "notes/a.md", "content": "buy\nmilk"}),
    "list files": ("files", {"action": "list", "path": "."}),
    "read the file notes/a.md": ("files", {"action": "read", "path": "notes/a.md"}),
    "delete the file notes/a.md": ("files", {"action": "delete", "path": "notes/a.md"}),
    "save a skill greeting: say hello": ("skill", {"action": "save", "name": "greeting", "content": "say hello"}),
    "list skills": ("skill", {"action": "list"}),
    "remind me in 2 minutes to stretch": (
        "schedule",
        {"action": "add", "name": "stretch", "schedule": "2m", "prompt": "Remind the user: stretch"},
    ),
    "remind me every 3 hours to drink": (
        "schedule",
        {"action": "add", "name": "drink", "schedule": "every 3h", "prompt": "Remind the user: drink"},
    ),
    "fetch https://example.org/a": ("web_fetch", {"url": "https://example.org/a"}),
    "run the command uname -a": ("process", {"action": "start", "command": "uname -a"}),
}


@pytest.mark.parametrize(("text", "expected"), CALLS.items(), ids=CALLS.keys())
async def test_a_sentence_calls_its_tool(text, expected):
    assert await call_for(text) == expected


async def test_asking_gives_options_to_choose_from():
    name, arguments = await call_for("ask me something")
    assert name == "ask_human"
    assert arguments["question"].endswith("?")
    assert len(arguments["options"]) == 3


async def test_a_skill_without_words_gets_some():
    _, arguments = await call_for("save a skill")
    assert arguments["content"].startswith("# ")


async def test_the_action_is_one_that_the_tool_knows():
    offered = tools("schedule")
    offered[0]["function"]["parameters"]["properties"]["action"] = {"type": "string", "enum": ["create", "list"]}
    request = ModelRequest(messages=[user("remind me in 5 minutes to go")], tools=offered)
    (call,) = (await PracticeModel(pause=0).ask(request)).tool_calls
    assert json.loads(call.arguments)["action"] == "create"


@pytest.mark.parametrize("text", CALLS)
async def test_only_tools_that_are_offered_are_called(text):
    assert (await ask(user(text), offered=())).tool_calls == ()


async def test_help_lists_what_can_be_tried_with_the_tools_at_hand():
    everything = (await ask(user("help"))).text
    assert "no real AI" in everything
    assert "`list files`" in everything
    assert "`ask me something`" in everything
    assert "`list files`" not in (await ask(user("Help!"), offered=("memory",))).text


async def test_everything_in_the_help_works():
    examples = [line[3:-1] for line in (await ask(user("help"))).text.splitlines() if line.startswith("- `")]
    assert len(examples) > 12
    for example in examples:
        answer = await ask(user(example))
        assert "I understood that you wrote" not in answer.text, example


async def test_what_it_knows_comes_from_the_system_prompt():
    answer = await ask(SYSTEM, user("what do you know about me"))
    assert "- o3 2026-05-20 fact: Lives in Oslo\n- o7 2026-05-21 preference: Tea" in answer.text
    assert answer.tool_calls == ()
    assert "nothing about you" in (await ask(user("what do you know about me"), offered=())).text


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("what do I drink?", "From my notes: you prefer tea; you live in Oslo."),
        ("[Ada] Where do I live", "From my notes: you live in Oslo."),
        ("Do I prefer coffee or tea?", "From my notes: you prefer tea."),
    ],
)
async def test_a_question_about_the_person_is_answered_from_the_notes(question, answer):
    notes = "o1 2026-05-20 preference: I prefer tea\no2 2026-05-21 fact: I live in Oslo."
    assert (await ask({"role": "system", "content": notes}, user(question))).text == answer
    assert "no real AI" in (await ask(user(question))).text


async def test_two_tools_at_once():
    answer = await ask(user("call two tools at once"))
    assert len({call.id for call in answer.tool_calls}) == 2
    assert [call.name for call in answer.tool_calls] == ["files", "memory"]
    assert [
        call.name for call in (await ask(user("call two tools at once"), offered=("skill", "memory"))).tool_calls
    ] == [
        "memory",
        "skill",
    ]
    assert (await ask(user("call two tools at once"), offered=("files",))).tool_calls == ()


async def test_results_are_told_in_plain_words():
    first = await ask(user("call two tools at once"))
    turn = {"role": "assistant", "content": None, "tool_calls": [dict(call.raw) for call in first.tool_calls]}
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": f"result {n}"} for n, call in enumerate(first.tool_calls)
    ]
    answer = await ask(user("call two tools at once"), turn, *results)
    assert answer.tool_calls == ()
    assert "The tool `files` answered:\n\n> result 0" in answer.text
    assert "The tool `memory` answered:\n\n> result 1" in answer.text


async def test_a_humans_answer_is_repeated_and_an_empty_result_is_told():
    asked = (await ask(user("ask me something"))).tool_calls[0]
    turn = {"role": "assistant", "content": None, "tool_calls": [dict(asked.raw)]}
    told = await ask(user("ask me something"), turn, {"role": "tool", "tool_call_id": asked.id, "content": "Blue"})
    assert told.text == "You answered: Blue"
    unknown = await ask(user("x"), {"role": "tool", "tool_call_id": "?", "content": ""})
    assert "nothing to say" in unknown.text


async def test_what_it_writes_is_accepted_by_a_strict_endpoint():
    messages = [user("list files")]
    for _ in range(3):
        answer = await ask(*messages)
        messages.append(
            {"role": "assistant", "content": None, "tool_calls": [dict(call.raw) for call in answer.tool_calls]}
        )
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "a"} for call in answer.tool_calls]
        messages += [{"role": "assistant", "content": "There."}, user("list files")]
    assert refuse({"model": "m", "messages": messages, "tools": tools(*ALL)}, Speaks()) is None


async def test_ids_follow_from_the_transcript_and_never_repeat_in_it():
    one, other = await ask(user("list files")), await ask(user("list files"))
    assert one == other
    taken = {"role": "assistant", "content": None, "tool_calls": [{**dict(one.tool_calls[0].raw), "id": "call_2"}]}
    assert (await ask(taken, user("list files"))).tool_calls[0].id == "call_3"


async def test_words_stream_one_by_one_and_slowly_when_asked():
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    shown = []
    model = PracticeModel(sleep=sleep)
    answer = await ask(user("count to 4 slowly"), model=model, shown=shown)
    assert shown == ["1\n", "2\n", "3\n", "4"]
    assert "".join(shown) == answer.text
    assert pauses == [SLOW_SECONDS] * 4
    await ask(user("count to 2"), model=model, shown=shown)
    assert pauses[4:] == [PAUSE_SECONDS] * 2


async def test_without_a_pause_nobody_sleeps():
    async def sleep(seconds):
        raise AssertionError

    await ask(user("write a long answer"), model=PracticeModel(pause=0, sleep=sleep), shown=[])


async def test_counting_ends():
    assert (await ask(user("count to 999999999"))).text.endswith("300")


async def test_a_long_answer_is_longer_than_any_chat_allows_and_is_markdown():
    text = (await ask(user("write a long answer"))).text
    assert len(text) > 4_096
    assert all(mark in text for mark in ("# ", "```python", "|---|", "> ", "- ", "1. "))


FOLD = {
    "type": "json_schema",
    "json_schema": {
        "name": "hermes_fold",
        "schema": {
            "type": "object",
            "properties": {"observations": {"type": "array"}, "digest": {"type": "string"}},
            "required": ["observations", "digest"],
        },
    },
}


async def test_a_fold_gets_its_json_with_what_people_said_about_themselves():
    lines = "12 2026-03-09 user: Hello. I prefer tea to coffee. Bye\n13 2026-03-09 agent: Noted.\n14 user: we decided on boats"
    answer = await ask({"role": "user", "content": lines}, offered=(), response_format=FOLD)
    assert json.loads(answer.text) == {
        "digest": "",
        "observations": [
            {
                "kind": "preference",
                "text": "I prefer tea to coffee.",
                "cause": None,
                "happened": None,
                "src": [12],
                "replaces": None,
            },
            {
                "kind": "decision",
                "text": "we decided on boats",
                "cause": None,
                "happened": None,
                "src": [14],
                "replaces": None,
            },
        ],
    }


async def test_any_other_schema_gets_its_smallest_instance():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "enum": ["x", "y"]},
            "b": {"type": "object", "properties": {"c": {"type": "integer"}, "d": {"type": "boolean"}}},
            "e": {"type": "null"},
            "f": {"type": "string"},
        },
        "required": ["a", "b", "e"],
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "other", "schema": schema}}
    answer = await ask(user("x"), response_format=wanted)
    assert json.loads(answer.text) == {"a": "x", "b": {"c": 0, "d": False}, "e": None}
    assert (await ask(user("x"), response_format={"type": "json_object"})).text == "{}"


async def test_it_takes_the_place_of_a_model():
    model: Model = PracticeModel(pause=0)
    assert (await model.ask(ModelRequest(messages=[]))).text
    practice = PracticeModel()
    assert "no real AI" in practice.describe()
    assert practice.window("any") > 16_000
    await practice.aclose()


async def test_content_in_parts_is_read():
    parts = [{"type": "text", "text": "list files"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert (await ask({"role": "user", "content": parts})).tool_calls[0].name == "files"


async def test_the_tools_of_a_caller_are_called_when_they_are_named_or_asked_for():
    given = {"offered": ("weather", "time", "memory"), "callers_tools": frozenset({"weather", "time"})}
    assert await call_for('call weather {"city": "Oslo"}', **given) == ("weather", {"city": "Oslo"})
    assert await call_for("use the tool `time`", **given) == ("time", {})
    assert await call_for("hello", **given, sampling={"tool_choice": "required"}) == ("weather", {})
    one = {"type": "function", "function": {"name": "time"}}
    assert await call_for("hello", **given, sampling={"tool_choice": one}) == ("time", {})
    for choice, said in (("none", "call weather"), ("none", "I prefer tea"), ("auto", "hello")):
        answer = await ask(user(said), **given, sampling={"tool_choice": choice})
        assert (answer.tool_calls, answer.finish_reason) == ((), "stop")
    assert "- `call weather`" in (await ask(user("help"), **given)).text


async def test_an_answer_is_no_longer_than_it_may_be():
    shown: list[str] = []
    answer = await ask(user("write a long answer"), max_output_tokens=5, shown=shown)
    assert (answer.finish_reason, answer.usage.output_tokens <= 5, "".join(shown)) == ("length", True, answer.text)
    assert answer.text.startswith("# A long answer")
