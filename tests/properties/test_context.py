"""What the model is sent, whatever the history is: bounded, valid, and with a start that stays the same."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent import prompt
from gateway.agent.models.interface import encoded_body
from gateway.agent.tokens import Tokens
from gateway.agent.window import Window
from sessions.memory import PromptNote
from sessions.records import Message, Role
from tests.fakes.model_rules import Speaks, refuse
from tests.unit.gateway.agent.prompts import GATEWAY, TOKENS, built, history, row, shifted, size, whole

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
@given(
    turns=turns,
    run=st.integers(0, 30),
    window=st.sampled_from([1_024, 2_048, 4_000, 8_000, 32_000, 128_000, 1_000_000]),
    most=st.sampled_from([None, None, 400, 2_000, 10_000]),
    prompt=texts,
    notes=texts,
)
def test_every_prompt_is_bounded_and_valid(
    turns: list[Any], run: int, window: int, most: int | None, prompt: str, notes: str
):
    rows = history(*turns, ("user", "the question"), run=min(run, len(turns)))
    room = Window(size=window, output=4_096, most=most)
    known = [
        PromptNote(id=number, text=f"o{number} {notes}", weight=number % 3, chosen=number < 4) for number in range(6)
    ]
    past = [row(number, Role.USER, f"{notes} question") for number in range(1_000, 1_020)]
    remembered: dict[str, Any] = {"notes": known, "digest": notes, "recalled": past, "skills": [notes] * 3, "older": 7}
    sent = whole(rows, window=room, system_prompt=prompt, count=len(rows) + 99, **remembered)
    messages, tools = list(sent.request.messages), list(sent.request.tools)

    assert refuse({"messages": messages, "tools": tools or None, "model": "m"}, Speaks()) is None
    assert size(messages) + TOKENS.tools(tools) == sent.size <= room.whole
    assert 1 <= (sent.request.max_output_tokens or 0) <= window // 4
    assert GATEWAY[-1] in messages[0]["content"]
    roles = [message["role"] for message in messages if message["role"] in {"user", "assistant"}]
    assert all(one != other for one, other in pairwise(roles) if one == "user")
    assert messages[1]["role"] == "user"
    last = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    assert last.endswith("the question")


@settings(max_examples=40, deadline=None)
@given(turns=turns, windows=st.lists(st.sampled_from([4_000, 32_000, 128_000]), min_size=2, max_size=4))
def test_what_is_kept_of_a_message_is_what_would_be_computed_anew(turns: list[Any], windows: list[int]):
    """Whatever the settings were when it was last shown."""
    rows = history(*turns, ("user", "the question"), run=len(turns))
    tokens, derived = Tokens(), dict[str, Any]()
    notes = [PromptNote(id=each, text=f"o{each} {'x' * 90}", weight=1, chosen=each < 200) for each in range(220)]
    for number, wide in enumerate(windows):
        tokens.learn("m", 1_000, 1_000 + 200 * number)
        settings: Any = {"window": Window(size=wide), "timezone": ("UTC", "Asia/Tokyo")[number % 2]}
        settings |= {"tokens": tokens, "model": "m", "notes": notes, "digest": "d"}
        kept, anew = whole(rows, derived=derived, **settings), whole([replace(each) for each in rows], **settings)
        assert kept.request.messages == anew.request.messages
        assert kept.size == anew.size
        body = {"model": "m", "messages": list(kept.request.messages), "tools": list(kept.request.tools)}
        assert json.loads(encoded_body(body)) == json.loads(json.dumps(body))


@settings(max_examples=30, deadline=None)
@given(turns=st.lists(st.sampled_from(["short", "word " * 300]), min_size=1, max_size=30))
def test_each_turn_keeps_the_start_of_the_one_before_until_the_cut_moves(turns: list[str]):
    rows: list[Message] = []
    moved = 0
    before: list[Any] = []
    for text in turns:
        rows = [replace_run(message) for message in rows] + [row(len(rows), Role.USER, text, run_id="run")]
        messages = built(rows[-61:], count=len(rows))
        shared = before if "older messages" not in str(before) else before[:-1]
        moved += messages[: len(shared)] != shared
        before = messages
        rows.append(row(len(rows), Role.ASSISTANT, "answer", run_id="run"))
    assert moved <= 1 + len(rows) // prompt._CUT_STEP


def replace_run(message: Message) -> Message:
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
