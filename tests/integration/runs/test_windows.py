"""Small windows: what is found out about them, and that a long message in a chat becomes an answer that says what was left out."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.window import window_of
from gateway.texts import say
from sessions.records import RunStatus
from tests.fakes.model_replies import call, calls
from tests.fakes.model_rules import Speaks, prompt_tokens
from tests.integration.runs.worker_in_process import Plain, tool, worker_in_process

PAGE = "".join(f"This is sentence {number} of a page that somebody has pasted. " for number in range(600))  # 35 kB


@pytest.mark.parametrize("size", [2_048, 4_096, 8_192])
@pytest.mark.parametrize("named", [True, False])
async def test_a_pasted_page_is_answered_with_what_was_left_out(home: Path, size: int, named: bool) -> None:
    """The window is known from refusals alone."""
    async with worker_in_process(home, speaks=Speaks(window=size, names_window=named)) as it:
        run = await it.say(f"Remember the word tulip. {PAGE}")
        assert run.status is RunStatus.COMPLETED
        sizes = [prompt_tokens(body) for body in it.server.bodies]
        assert all(one > other for one, other in pairwise(sizes))
        assert "Remember the word tulip." in it.server.bodies[-1]["messages"][-1]["content"]
        assert "session_search with message=1 reads it" in it.server.bodies[-1]["messages"][-1]["content"]
        text = (await it.sent())[-1]["text"]
        assert text.startswith("ok\n\n(Your message is longer than I can read at once: I read ")
        assert f"of its {len(PAGE) + 25:,} characters" in text
        assert (await it.messages())[-1].content == text


async def test_an_answer_that_claims_a_reminder_ends_with_the_truth(home: Path) -> None:
    async def calendar(_: object, __: Plain) -> str:
        return "added"

    script = ["I will remind you.", calls(call("calendar")), "I will remind you."]
    async with worker_in_process(home, script, tools=[tool("calendar", calendar)]) as it:
        for told in (f"I will remind you.\n\n{say('run.nothing_scheduled')}", "I will remind you."):
            await it.say("Remind me tomorrow at nine to call my mother.")
            assert (await it.sent())[-1]["text"] == told == (await it.messages())[-1].content
        assert it.server.bodies[1]["messages"][-2]["content"] == "I will remind you.", "a model does not copy the line"


async def test_what_fits_is_answered_without_a_word_about_it(home: Path) -> None:
    async with worker_in_process(home) as it:
        await it.say(PAGE)
        assert (await it.sent())[-1]["text"] == "ok"
        assert it.server.bodies[-1]["messages"][-1]["content"].endswith(PAGE)


@pytest.mark.parametrize(
    "server",
    [
        {"about_models": {"meta": {"n_ctx": 4_096, "n_ctx_train": 32_768}}},  # llama.cpp
        {"about_models": {"max_model_len": 4_096}},  # vLLM
        {"about_models": {"context_length": 4_096}},  # OpenRouter
        {"ollama": {"model_info": {"qwen2.context_length": 32_768}, "parameters": "num_ctx    4096\nstop x"}},
        {"ollama": {"model_info": {"general.architecture": "qwen2", "qwen2.context_length": 4_096}}},
    ],
    ids=["llama.cpp", "vllm", "openrouter", "ollama's num_ctx", "ollama"],
)
async def test_a_window_that_the_endpoint_names_is_kept_from_the_first_call(home: Path, server: dict[str, Any]) -> None:
    settings = {"window_is_known": False, "api_key": ""}
    async with worker_in_process(home, settings=settings, speaks=Speaks(window=4_096 * 4 // 3), **server) as it:
        for text in ("one", PAGE, "three"):
            assert (await it.say(text)).status is RunStatus.COMPLETED
        assert it.server.refused == []
        assert window_of(it.app, None).size == 4_096
        assert all(body["max_tokens"] <= 1_024 for body in it.server.bodies)
        assert it.server.asked_about.count("models") == 1


async def test_a_configured_window_counts_where_the_endpoint_has_a_larger_one(home: Path) -> None:
    async with worker_in_process(
        home, settings={"context_window": 8_192}, about_models={"max_model_len": 100_000}
    ) as it:
        await it.say("hello")
        assert window_of(it.app, None).size == 8_192
