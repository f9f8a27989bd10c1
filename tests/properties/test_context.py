"""What the model is sent, whatever the history is: bounded, valid, and with a start that stays the same."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent import context
from gateway.agent.context import FIXED, Material, Window, build
from gateway.agent.tokens import Tokens
from gateway.agent.tools.registry import Toolbox
from sessions.records import Message, Role
from tests.fakes.model_replies import call
from tests.fakes.model_rules import Speaks, refuse

TOKENS = Tokens()
TOOLS = Toolbox.of(["memory", "session_search", "skill", "files", "ask_human"])


def row(number: int, role: Role, content: str | None, **more: Any) -> Message:
    fields: dict[str, Any] = {
        "id": number,
        "session_id": "s",
        "run_id": None,
        "role": role,
        "content": content,
        "tool_calls": None,
        "tool_call_id": None,
        "tool_name": None,
        "token_count": None,
        "created_at": 1_750_000_000_000 + number * 60_000,
        "sender": None,
        "attachments": None,
        "state": "done",
        "idem_key": None,
    }
    return Message(**{**fields, **more})


def history(*turns: tuple[str, ...], run: int | None = None) -> list[Message]:
    """("user", text), ("assistant", text) or ("calls", result, …); from number `run` on they belong to the run."""
    rows: list[Message] = []
    for number, (kind, *texts) in enumerate(turns):
        own = {"run_id": "run" if run is not None and number >= run else f"r{number}"}
        if kind != "calls":
            rows.append(row(len(rows), Role(kind), texts[0], **own))
            continue
        made = [call("files", {"path": "x" * (len(text) // 2)}, id=f"c{i}") for i, text in enumerate(texts)]
        rows.append(row(len(rows), Role.ASSISTANT, "", tool_calls=made, **own))
        for i, text in enumerate(texts):
            rows.append(row(len(rows), Role.TOOL, text, tool_call_id=f"c{i}", tool_name="files", **own))
    return rows


def built(rows: list[Message], *, window: Window | None = None, count: int | None = None, **more: Any) -> list[Any]:
    fields: dict[str, Any] = {"system_prompt": "You are Hermes.", "notes": (), "skills": (), **more}
    material = Material(history=rows, message_count=len(rows) if count is None else count, run_id="run", **fields)
    request = build(material, TOOLS.schemas, TOKENS, window=window or Window())
    return list(request.messages)


def size(messages: list[Any]) -> int:
    return TOKENS.messages(messages)


texts = st.one_of(
    st.text(max_size=40),
    st.builds(lambda word, n: word * n, st.sampled_from(["word ", "ü", "日本"]), st.integers(0, 40_000)),
)
turns = st.lists(
    st.one_of(
        st.tuples(st.just("user"), texts),
        st.tuples(st.just("assistant"), texts),
        st.tuples(st.just("calls"), texts),
        st.tuples(st.just("calls"), texts, texts),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(turns=turns, run=st.integers(0, 30), window=st.sampled_from([4_000, 8_000, 32_000, 128_000]), notes=texts)
def test_every_prompt_is_bounded_and_valid(turns: list[Any], run: int, window: int, notes: str):
    rows = history(*turns, ("user", "the question"), run=min(run, len(turns)))
    room = Window(size=window, output=min(4_096, window // 4))
    messages = built(rows, window=room, notes=[notes] * 5, skills=[notes] * 3)

    assert refuse({"messages": messages, "tools": TOOLS.schemas, "model": "m"}, Speaks()) is None
    assert size(messages) <= int(FIXED * room.scale) + room.run + 200
    roles = [message["role"] for message in messages if message["role"] in {"user", "assistant"}]
    assert all(one != other for one, other in pairwise(roles) if one == "user")
    assert messages[1]["role"] == "user"
    last = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    assert last.endswith("the question")


@settings(max_examples=30, deadline=None)
@given(turns=st.lists(st.sampled_from(["short", "word " * 300]), min_size=1, max_size=30))
def test_each_turn_keeps_the_start_of_the_one_before_until_the_cut_moves(turns: list[str]):
    rows: list[Message] = []
    moved = 0
    before: list[Any] = []
    for text in turns:
        rows = [replace_run(message) for message in rows] + [row(len(rows), Role.USER, text, run_id="run")]
        messages = built(rows[-61:], count=len(rows))
        shared = before[:-1]  # the last user message was sent with the time above it
        moved += messages[: len(shared)] != shared
        before = messages
        rows.append(row(len(rows), Role.ASSISTANT, "answer", run_id="run"))
    assert moved <= 1 + len(rows) // context._CUT_STEP


def replace_run(message: Message) -> Message:
    from dataclasses import replace

    return replace(message, run_id="earlier")


def test_each_step_of_a_run_begins_with_the_one_before():
    rows = history(*[("user", "earlier"), ("assistant", "yes")] * 20)
    rows = [*rows, row(len(rows), Role.USER, "now", run_id="run")]
    before = built(rows)
    for step in range(10):
        rows = [*rows, *shifted(history(("calls", "result " * 50), run=0), len(rows), step)]
        messages = built(rows)
        assert messages[: len(before)] == before
        before = messages


def shifted(rows: list[Message], by: int, step: int) -> list[Message]:
    from dataclasses import replace

    return [replace(message, id=message.id + by) for message in rows]


def test_a_hello_costs_at_most_ten_kilobytes_with_all_tools():
    messages = built(history(("user", "hello"), run=0))
    assert len(json.dumps([messages, TOOLS.schemas])) <= 10_000


def test_a_retry_is_about_the_last_user_message_at_every_step():
    rows = history(("user", "one"), ("assistant", "yes"), ("user", "two"))
    before = built(rows)
    assert before[-1]["content"].startswith("[")
    after = built([*rows, *shifted(history(("calls", "result"), run=0), 3, 0)])
    assert after[: len(before)] == before


def test_what_is_not_shown_is_said():
    rows = history(*[("user", "word " * 900), ("assistant", "yes")] * 10, ("user", "now"), run=20)
    messages = built(rows, count=1_000 + len(rows))
    kept = sum(message["role"] in {"user", "assistant"} for message in messages)
    assert f"[{1_000 + len(rows) - kept} older messages not yet summarised" in messages[0]["content"]


def test_results_that_never_came_are_filled_in():
    rows = [row(0, Role.USER, "go"), row(1, Role.ASSISTANT, None, tool_calls=[call("files", id="a")])]
    messages = built([*rows, row(2, Role.USER, "and", run_id="run")])
    assert messages[3] == {"role": "tool", "tool_call_id": "a", "content": context._MISSING}


def test_ids_that_begin_anew_get_the_results_of_their_own_call():
    messages = built(history(("user", "go"), ("calls", "first"), ("calls", "second"), run=0))
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["first", "second"]


def test_a_picture_goes_with_its_message():
    rows = [row(0, Role.USER, "look", run_id="run", attachments=[{}])]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    content = built(rows, images=lambda _: [picture])[-1]["content"]
    assert content[1] == picture
    assert content[0]["text"].endswith("\n\nlook")


def test_the_oldest_results_of_a_long_run_are_cleared_first():
    messages = built(history(("user", "go"), *[("calls", f"{number} " * 9_000) for number in range(9)], run=0))
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert results[0].startswith("[cleared, message")
    assert results[-1].startswith("8 8 ")


def test_a_long_message_says_where_the_rest_is():
    messages = built(history(("user", "word " * 9_000), run=0))
    assert messages[-1]["content"].endswith("[cut; the whole is message 0]")
