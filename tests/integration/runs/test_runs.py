"""What people see of a run that works: messages that come in meanwhile, tools, limits."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.observe.health import Standstills
from gateway.runs.loop import UNKNOWN
from gateway.texts import say
from sessions import runs, store
from sessions.clock import now_ms
from sessions.records import CallOptions, MessageState, Role, RunStatus, StopReason
from sessions.topics import Topic
from tests.app import configure
from tests.fakes.model_replies import OVERFLOWS, Reply, call, calls
from tests.integration.runs.test_going_on import NOTE, ToolGate
from tests.integration.runs.worker_in_process import (
    KEY,
    Plain,
    WorkerHarness,
    at_work,
    crashing,
    of_role,
    queued,
    tool,
    worker_in_process,
)


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


# --- messages that come in while a run works -----------------------------------------------------------------------


async def test_a_message_during_a_tool_is_seen_before_the_next_call(home: Path):
    gate = ToolGate()

    async def slow(*_: object) -> str:
        await gate()
        return "ok"

    async with worker_in_process(home, [calls(call("slow")), "both seen"], tools=[tool("slow", slow)]) as it:
        first = await it.accept("begin")
        await gate.reached.wait()
        second = await it.accept("and this too")
        gate.open.set()
        await it.settled(first.run_id)
        assert second.run_id == first.run_id
        assert roles(it.server.bodies[1]) == ["system", "user", "assistant", "tool", "user"]
        assert it.server.bodies[1]["messages"][-1]["content"].endswith("and this too")


async def test_a_message_during_the_last_call_is_answered_in_the_same_run(home: Path):
    gate = ToolGate()
    async with worker_in_process(home, [Reply(text="first", before=gate), "second"]) as it:
        run_id = (await it.accept("one")).run_id
        await gate.reached.wait()
        assert (await it.accept("two")).run_id == run_id
        gate.open.set()
        assert (await it.settled(run_id)).steps == 2
        assert await it.transcript() == [
            ("user", "one"),
            ("assistant", "first"),
            ("user", "two"),
            ("assistant", "second"),
        ]
        assert [row["text"] for row in await it.sent()] == ["first", "second"]
        assert await it.outcomes() == ["folded", "folded"]


async def test_queued_calls_run_one_after_the_other(home: Path, database_url: str):
    gate = ToolGate()
    async with worker_in_process(home, [Reply(text="first", before=gate), "second"], url=database_url) as it:
        await it.accept("one", route=None, **queued())
        await gate.reached.wait()
        await it.accept("two", route=None, **queued())
        gate.open.set()
        await wait_for_calls(it, 2)
        assert roles(it.server.bodies[1]) == ["system", "user", "assistant", "user"]


async def wait_for_calls(it: WorkerHarness, count: int) -> None:
    async with asyncio.timeout(30):
        while it.server.count < count or await it.database.read(runs.in_flight):
            await asyncio.sleep(0.005)


# --- tools ---------------------------------------------------------------------------------------------------------


async def test_a_tool_that_was_cut_off_by_a_crash_is_not_run_again(home: Path):
    gate, ran = ToolGate(), []

    async def pay(*_: object) -> str:
        ran.append(1)
        await gate()
        return "paid"

    async with worker_in_process(
        home, [calls(call("pay")), "I checked."], tools=[tool("pay", pay)], working=False
    ) as it:
        async with crashing(it):
            run_id = (await it.accept("pay")).run_id
            await gate.reached.wait()
        async with at_work(it):
            await it.settled(run_id)
        result = next(message for message in await it.messages() if message.role is Role.TOOL)
        assert (len(ran), result.content, result.state) == (1, UNKNOWN, MessageState.UNKNOWN)


async def test_an_idempotent_tool_is_run_again_under_the_same_key(home: Path):
    gate, keys = ToolGate(), []

    async def save(place: Any, _: object) -> str:
        keys.append(place.idem_key)
        if len(keys) == 1:
            await gate()
        return "saved"

    save_tool = tool("save", save, idempotent=True)
    async with worker_in_process(home, [calls(call("save")), "ok"], tools=[save_tool], working=False) as it:
        async with crashing(it):
            run_id = (await it.accept("save")).run_id
            await gate.reached.wait()
        async with at_work(it):
            await it.settled(run_id)
        assert len(keys) == 2
        assert len(set(keys)) == 1


async def test_an_answer_that_was_cut_off_runs_none_of_its_tools(home: Path):
    script = [calls(call("note"), finish_reason="length"), "shorter"]
    async with worker_in_process(home, script, tools=[NOTE]) as it:
        await it.say("write")
        assert of_role(await it.messages(), Role.TOOL)[0].startswith("[not executed: the answer was cut off")


async def test_unknown_tools_and_wrong_arguments_are_told_to_the_model(home: Path):
    script = [calls(call("fly", id="a"), call("note", "{no json", id="b")), "ok"]
    async with worker_in_process(home, script, tools=[NOTE]) as it:
        run = await it.say("go")
        missing, wrong = of_role(await it.messages(), Role.TOOL)
        assert missing == "[there is no tool fly; you have note, ask_human]"
        assert "no JSON" in wrong or wrong == "noted"
        assert run.status is RunStatus.COMPLETED


async def test_a_tool_with_a_bug_ends_only_its_run(home: Path):
    async def broken(*_: object) -> str:
        raise ZeroDivisionError("secret detail")

    async with worker_in_process(home, [calls(call("broken")), "fine"], tools=[tool("broken", broken)]) as it:
        run = await it.say("go")
        assert run.status is RunStatus.ERROR
        assert [row["text"] for row in await it.sent()] == [say("run.failed")]
        assert (await it.say("again")).status is RunStatus.COMPLETED


async def test_the_callers_tools_are_handed_over_after_ours(home: Path):
    theirs = {"type": "function", "function": {"name": "light", "parameters": {"type": "object", "properties": {}}}}
    script = [calls(call("note", id="n"), call("light", id="l")), "it is on"]
    async with worker_in_process(home, script, tools=[NOTE]) as it:
        first = await it.accept("light", route=None, **queued(options=CallOptions(tools=(theirs,))))
        assert first.run_id is None
        await wait_for_calls(it, 1)
        result = {"role": Role.TOOL, "tool_call_id": "l"}
        await it.accept("on", route=None, message=result, **queued())
        await wait_for_calls(it, 2)
        assert roles(it.server.bodies[1]) == ["system", "user", "assistant", "tool", "tool"]
        assert [m["content"] for m in it.server.bodies[1]["messages"][-2:]] == ["noted", "on"]


# --- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "told"),
    [({"steps_per_run": 2}, "2 steps"), ({"tokens_per_run": 10}, "10 tokens"), ({"seconds_per_run": 0}, "0 minutes")],
)
async def test_every_limit_ends_a_run_with_a_line(home: Path, limits: dict, told: str):
    script = lambda _: calls(call("note"))  # noqa: E731
    async with worker_in_process(home, script, tools=[NOTE], limits=limits) as it:
        run = await it.say("for ever")
        assert run.stop_reason is StopReason.BUDGET
        assert [row["text"] for row in await it.sent()] == [say("budget.run", limit=told)]


@pytest.mark.parametrize(("jump_ms", "reason"), [(31 * 86_400_000, StopReason.DONE), (9_000, StopReason.BUDGET)])
async def test_only_time_in_which_the_process_worked_counts(home: Path, jump_ms: int, reason: StopReason):
    """A jump of the clock is as long as a process stood still, or a machine slept; nine seconds are work."""
    later = 0

    async def jump(*_: object) -> str:
        nonlocal later
        later += jump_ms
        return "ok"

    clock = lambda: now_ms() + later  # noqa: E731
    script = [calls(call("jump")), "done"]
    async with worker_in_process(
        home, script, tools=[tool("jump", jump)], limits={"seconds_per_run": 9}, working=False
    ) as it:
        it.app.clock, it.app.standstills = clock, Standstills(clock)
        async with at_work(it):
            run = await it.say("go")
    assert run.stop_reason is reason


@pytest.mark.parametrize(
    "limits",
    [
        {"tokens_per_day": 5},
        {"spend_per_day": 0.001, "price_per_million_input_tokens": 1e3, "price_per_million_output_tokens": 1e3},
    ],
)
async def test_a_days_budget_counts_over_all_runs(home: Path, limits: dict):
    async with worker_in_process(home, limits=limits) as it:
        assert (await it.say("one")).stop_reason is StopReason.DONE
        assert (await it.say("two", key=f"{KEY}:8")).stop_reason is StopReason.BUDGET
        assert it.server.count == 1


async def test_a_days_budget_that_is_set_later_counts_what_was_used_before(home: Path):
    async with worker_in_process(home) as it:
        await it.say("one")
        configure(it.app, limits={"tokens_per_day": 5})
        assert (await it.say("two")).stop_reason is StopReason.BUDGET


async def test_a_request_that_is_too_long_is_made_shorter(home: Path):
    overflow = OVERFLOWS["gemini"]
    async with worker_in_process(home, [*["x" * 3_000] * 4, overflow, overflow, "short enough"]) as it:
        for text in ("a", "b", "c", "d"):
            await it.say(text * 3_000)
        assert (await it.say("now")).status is RunStatus.COMPLETED
        sizes = [len(str(body["messages"])) for body in it.server.bodies[-3:]]
        assert sizes[0] > sizes[1] > sizes[2]
        assert it.server.bodies[-1]["messages"][-1]["content"].endswith("now")


async def test_a_request_that_stays_too_long_fails_with_a_line(home: Path):
    async with worker_in_process(home, then=OVERFLOWS["anthropic"]) as it:
        assert (await it.say("now")).status is RunStatus.ERROR
        sizes = [len(str(body)) for body in it.server.bodies]
        assert 1 < len(sizes) < 8
        assert all(one > other for one, other in pairwise(sizes))
        assert (await it.sent())[-1]["text"].startswith("This is too long for the model in use")


async def test_every_committed_step_is_told(home: Path):
    told: list[Topic] = []

    async def look(_place: Any, _arguments: Plain) -> str:
        return "nothing new"

    async with worker_in_process(home, [calls(call("look", {"text": "x"})), "done"], tools=[tool("look", look)]) as it:
        it.database.listen(lambda touched: told.extend(t.topic for t in touched if t.topic in {Topic.STEP, Topic.RUN}))
        await it.say("go")
        assert told == [Topic.STEP, Topic.STEP, Topic.RUN]


async def test_the_same_call_a_third_time_is_answered_with_a_note(home: Path):
    made: list[str] = []

    async def look(_place: Any, arguments: Plain) -> str:
        made.append(arguments.text)
        return "nothing new"

    script = [calls(call("look", {"text": "x"}, id=f"c{number}")) for number in range(3)]
    script += [calls(call("look", {"text": "y"}, id="c9")), "done"]
    async with worker_in_process(home, script, tools=[tool("look", look)]) as it:
        await it.say("go")
        assert made == ["x", "x", "y"]
        assert of_role(await it.messages(), Role.TOOL)[2].startswith("[not done: you have made this very call twice")


async def test_a_session_keeps_with_what_it_began_and_every_message_its_tokens(home: Path, database_url: str):
    script = [calls(call("echo")), "done", "again"]
    echo = tool("echo", lambda *_: asyncio.sleep(0, "four words of a result"))
    async with worker_in_process(home, script, tools=[echo], url=database_url) as it:
        await it.say("hello there")
        first = await it.database.read(store.active, KEY)
        await it.command("/model other-model")
        await it.say("once more")
        session = await it.database.read(store.active, KEY)
        assert first is not None
        assert session is not None
        assert session.system_prompt == first.system_prompt
        assert (session.system_prompt or "").startswith("You are tested.")
        settings = json.loads(first.model_config or "")
        assert settings["name"] == "fake-model"
        assert json.loads(session.model_config or "") == {**settings, "model": "other-model"}
        assert session.chosen_model == "other-model"
        counts = {(m.role.value, m.content): m.token_count for m in await it.messages()}
        assert counts["user", "hello there"] == 3
        assert counts["tool", "four words of a result"] == 6
        assert all(counts.values())
