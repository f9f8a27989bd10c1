import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.tokens import Tokens


def test_four_characters_are_a_token_and_a_rest_counts_as_one():
    tokens = Tokens()
    assert [tokens.text(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_wide_scripts_cost_more_per_character():
    assert Tokens().text("日本語のテキスト") > Tokens().text("eight ch")


def test_the_last_usage_corrects_only_its_own_model():
    tokens = Tokens()
    tokens.learn("wordy", estimated=1_000, counted=1_500)
    assert tokens.text("x" * 400, "wordy") == 150
    assert tokens.text("x" * 400, "other") == 100
    tokens.learn("wordy", estimated=1_000, counted=1_000)
    assert tokens.text("x" * 400, "wordy") == 100


@pytest.mark.parametrize(("counted", "factor"), [(1, 0.5), (1_000_000, 3.0)])
def test_a_mad_usage_is_bounded(counted, factor):
    tokens = Tokens()
    tokens.learn("mad", estimated=1_000, counted=counted)
    assert tokens.factor("mad") == factor


def test_small_or_missing_counts_teach_nothing():
    tokens = Tokens()
    tokens.learn("m", estimated=10, counted=20)
    tokens.learn("m", estimated=1_000, counted=0)
    assert tokens.factor("m") == 1.0


def test_messages_count_text_parts_tool_calls_and_results():
    tokens = Tokens()
    call = {"id": "c1", "type": "function", "function": {"name": "files", "arguments": "x" * 400}}
    assert tokens.messages([{"role": "user", "content": "x" * 40}]) == 14
    assert tokens.messages([{"role": "user", "content": [{"type": "text", "text": "x" * 40}]}]) == 14
    assert tokens.messages([{"role": "assistant", "content": None, "tool_calls": [call]}]) > 100
    assert tokens.messages([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]) > 1_000
    assert tokens.messages([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]) > 4


def test_tools_count_their_schema():
    assert Tokens().tools([{"type": "function", "function": {"name": "f", "description": "x" * 400}}]) > 100


def test_a_text_within_its_budget_is_not_touched():
    assert Tokens().clip("short", 2) == "short"


def test_a_cut_shows():
    assert Tokens().clip("word " * 100, 10) == "word word word word word word word […]"
    assert Tokens().clip("word " * 100, 1) == "word"


@given(st.text(), st.integers(-2, 40), st.sampled_from([700, 1_000, 2_300]))
def test_clip_never_exceeds_its_budget(text, budget, counted):
    tokens = Tokens()
    tokens.learn("m", estimated=1_000, counted=counted)
    assert tokens.text(tokens.clip(text, budget, "m"), "m") <= max(budget, 0)


def test_a_lone_surrogate_is_counted_and_clipped():
    assert Tokens().clip("\ud800" * 100, 5)


def test_messages_are_measured_anew_when_one_is_another():
    tokens = Tokens()
    first, second = {"role": "user", "content": "a" * 400}, {"role": "user", "content": "b" * 800}
    assert tokens.messages([first]) == 104
    assert tokens.messages([first]) == 104
    assert tokens.messages([second]) == 204
    assert tokens.messages([first, second]) == 308
