"""What people see of a run: steering, tools, limits, approvals, stops, and models that fail."""

import asyncio
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.loop import UNKNOWN
from gateway.observe.standstill import Standstills
from gateway.runs.live_events import LiveEvent
from gateway.texts import say
from sessions import asks, runs
from sessions.call_options import CallOptions
from sessions.clock import now_ms
from sessions.records import MessageState, Role, RunStatus, StopReason
from sessions.topics import Topic
from tests.fakes.model_replies import OVERFLOWS, Failure, Reply, bad_key, bad_request, call, calls
from tests.integration.runs.test_going_on import NOTE, ToolGate
from tests.integration.runs.worker_in_process import (
    GROUP,
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
        assert await it.said() == [("user", "one"), ("assistant", "first"), ("user", "two"), ("assistant", "second")]
        assert [row["text"] for row in await it.sent()] == ["first", "second"]
        assert await it.outcomes() == ["folded", "folded"]


async def test_queued_calls_run_one_after_the_other(home: Path):
    gate = ToolGate()
    async with worker_in_process(home, [Reply(text="first", before=gate), "second"]) as it:
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
    [({"steps": 2}, "2 steps"), ({"tokens": 10}, "10 tokens"), ({"seconds": 0}, "0 minutes")],
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
    async with worker_in_process(home, script, tools=[tool("jump", jump)], limits={"seconds": 9}, working=False) as it:
        it.services = replace(it.services, clock=clock, standstills=Standstills(clock))
        async with at_work(it):
            run = await it.say("go")
    assert run.stop_reason is reason


@pytest.mark.parametrize(
    "limits", [{"tokens_per_day": 5}, {"spend_per_day": 0.001, "input_price": 1_000.0, "output_price": 1_000.0}]
)
async def test_a_days_budget_counts_over_all_runs(home: Path, limits: dict):
    async with worker_in_process(home, limits=limits) as it:
        assert (await it.say("one")).stop_reason is StopReason.DONE
        assert (await it.say("two", key=f"{KEY}:8")).stop_reason is StopReason.BUDGET
        assert it.server.count == 1


async def test_a_days_budget_that_is_set_later_counts_what_was_used_before(home: Path):
    async with worker_in_process(home) as it:
        await it.say("one")
        it.limits["tokens_per_day"] = 5
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


# --- approvals -----------------------------------------------------------------------------------------------------


@pytest.fixture
def deeds() -> list[str]:
    return []


@pytest.fixture
def deed(deeds: list[str]):
    async def do(_: object, arguments: Any) -> str:
        deeds.append(arguments.text)
        return "done"

    return tool("deed", do, needs_approval=True)


async def test_a_deed_waits_for_its_approval_and_is_done_once(home: Path, deed, deeds: list[str]):
    script = [calls(call("deed", {"text": "rm x"}, id="d")), calls(call("deed", {"text": "rm x"}, id="d")), "ok"]
    async with worker_in_process(home, script, tools=[deed]) as it:
        run = await it.say("clean up")
        assert (run.status, deeds) == (RunStatus.WAITING, [])
        card = (await it.sent())[-1]
        assert "rm x" in card["text"]
        assert [button["data"] for button in card["buttons"]] == ["a:1:y", "a:1:n"]
        assert "Ann" in await it.command("/approve")
        again = await it.settled(run.id)
        assert deeds == ["rm x"]
        assert again.status is RunStatus.WAITING, "the same call again needs an approval of its own"
        await it.command("/deny too risky")
        await it.settled(run.id)
        assert deeds == ["rm x"]
        assert of_role(await it.messages(), Role.TOOL)[-1] == "[denied by Ann: too risky]"


@pytest.mark.parametrize(("answer", "done"), [("Yes.", True), ("ok, but only the first", False), ("no", False)])
async def test_only_a_bare_yes_approves(home: Path, deed, deeds: list[str], answer: str, done: bool):
    async with worker_in_process(home, [calls(call("deed", {"text": "x"})), "ok"], tools=[deed]) as it:
        await it.say("do it")
        await it.arrive()
        assert (await it.say(answer)).status is not RunStatus.WAITING
        assert bool(deeds) is done


async def test_the_reason_of_a_denial_approves_nothing(home: Path, deed, deeds: list[str]):
    async with worker_in_process(home, [calls(call("deed", {"text": "x"})), "ok"], tools=[deed]) as it:
        run = await it.say("do it")
        assert (await it.command("/deny ok")).startswith("Denied by Ann")
        await it.settled(run.id)
        assert deeds == []
        assert of_role(await it.messages(), Role.TOOL)[-1] == "[denied by Ann: ok]"


async def test_who_is_held_up_by_a_question_elsewhere_hears_of_it_and_is_answered_after_that(home: Path):
    gate = ToolGate()
    topics = [replace(GROUP, address=replace(GROUP.address, thread_id=number)) for number in ("11", "12")]
    ask = calls(call("ask_human", {"question": "Which?"}), before=gate)
    async with worker_in_process(home, [ask, "thanks", "four"]) as it:
        run_id = (await it.accept("choose", route=topics[0])).run_id
        await gate.reached.wait()
        await it.accept("what is two and two", route=topics[1])
        gate.open.set()
        await it.settled(run_id)
        assert [body["text"] for body in await it.sent()] == ["Which?", say("ask.held_up")]
        assert (await it.say("what is three and three", route=topics[1])).status is RunStatus.WAITING
        await it.say("red", route=topics[0])
        async with asyncio.timeout(30):
            while (await it.sent())[-1]["text"] != "four":
                await asyncio.sleep(0.01)
        assert ("tool", "red") in await it.said()


async def test_a_second_decision_changes_nothing(home: Path, deed, deeds: list[str]):
    async with worker_in_process(home, [calls(call("deed", {"text": "x"})), "ok"], tools=[deed]) as it:
        run = await it.say("do it")
        ask = await it.ask(run.id)
        assert ask is not None
        decide = lambda text: it.database.write(runs.answer, run.id, text, "Bo", now_ms(), ask_id=ask.id)  # noqa: E731
        assert await decide("no") is True
        assert await decide("yes") is False
        await it.settled(run.id)
        assert deeds == []
        assert (await it.database.read(asks.get, ask.id)).answer == "no"


async def test_a_question_is_withdrawn_when_a_message_was_first(home: Path):
    gate = ToolGate()
    ask = calls(call("ask_human", {"question": "Which?"}), before=gate)
    async with worker_in_process(home, [ask, "Blue then."]) as it:
        run_id = (await it.accept("paint")).run_id
        await gate.reached.wait()
        await it.accept("blue, by the way")
        gate.open.set()
        assert (await it.settled(run_id)).status is RunStatus.COMPLETED
        assert of_role(await it.messages(), Role.TOOL) == ["[not asked: a new message arrived first; it follows]"]
        assert await it.outcomes() == ["folded", "folded"]


# --- ends ----------------------------------------------------------------------------------------------------------


async def test_stop_cancels_the_call_and_keeps_a_valid_transcript(home: Path):
    gate = ToolGate()

    async def slow(*_: object) -> str:
        await gate()
        return "never"

    async with worker_in_process(home, [calls(call("slow")), "next"], tools=[tool("slow", slow)]) as it:
        run_id = (await it.accept("begin")).run_id
        await gate.reached.wait()
        assert await it.command("/stop") == say("run.stopped")
        assert (await it.settled(run_id)).stop_reason is StopReason.CANCELLED
        assert (await it.say("and now")).status is RunStatus.COMPLETED
        assert it.server.refused == []
        assert await it.command("/stop") == say("run.nothing_to_stop")


async def test_the_thread_of_work_survives_the_budget(home: Path):
    async def look(_place: Any, arguments: Plain) -> str:
        return f"result {arguments.text} " + "x" * 2_000

    script = [calls(call("look", {"text": str(number)}, id=f"c{number}")) for number in range(40)]
    async with worker_in_process(home, script, then="done", tools=[tool("look", look)], limits={"steps": 40}) as it:
        await it.say("Collect all forty results.")
        await it.say("go on")
        messages = it.server.bodies[-1]["messages"]
        assert messages[1]["content"].endswith("Collect all forty results.")
        assert messages[-1]["content"].endswith("go on")
        assert any("result 39" in str(message["content"]) for message in messages)
        assert it.server.refused == []


async def test_stop_keeps_what_was_said_and_counts_it(home: Path):
    gate, passed = ToolGate(), count(1)

    async def between() -> None:
        if next(passed) > 1:
            await gate()

    script = [Reply(chunks=("First words. ", "Never said."), between=between), "next"]
    async with worker_in_process(home, script) as it:
        begun: list[LiveEvent] = []
        it.services.live.listen("*", begun.append)
        run_id = (await it.accept("begin")).run_id
        await gate.reached.wait()
        async with asyncio.timeout(30):
            while not any(moment.kind == "token" for moment in begun):
                await asyncio.sleep(0.001)
        await it.command("/stop")
        async with asyncio.timeout(30):
            while not any(moment.kind == "ended" for moment in begun):
                await asyncio.sleep(0.001)
        run = await it.settled(run_id)
        assert (run.stop_reason, run.output_tokens) == (StopReason.CANCELLED, 3)
        assert run.input_tokens > 100
        assert (await it.said())[-1] == ("assistant", "First words.\n\n[stopped by the user]")
        assert [body["text"] for body in await it.sent()][-1] == "First words.\n\n(stopped here)"
        gate.open.set()
        await it.say("and now")
        assert it.server.bodies[-1]["messages"][2]["content"] == "First words.\n\n[stopped by the user]"


async def test_no_reply_and_empty_answers(home: Path):
    async with worker_in_process(home, ["NO_REPLY", "", "NO_REPLY", ""]) as it:
        for _ in range(2):
            await it.say("in a group", key="agent:main:telegram:group:-9", route=GROUP)
        assert await it.sent() == []
        await it.say("in a DM")
        await it.say("in a DM")
        assert [row["text"] for row in await it.sent()] == ["NO_REPLY", say("run.failed")]


# --- models that fail ----------------------------------------------------------------------------------------------


async def test_an_unreachable_model_is_told_at_once_in_the_terminal_and_retry_answers_the_message(home: Path):
    async with worker_in_process(home, then=Failure(status=500)) as it:
        run = await it.say("hello", route=None)
        assert run.status is RunStatus.ERROR
        assert "trouble of its own" in (run.error or "")
        it.server.then = "here I am"
        assert await it.command("/retry") == ""
        await wait_for_idle(it)
        assert await it.said() == [("user", "hello"), ("assistant", "here I am")]


async def wait_for_idle(it: WorkerHarness) -> None:
    async with asyncio.timeout(30):
        while await it.database.read(runs.in_flight):
            await asyncio.sleep(0.005)


async def test_a_refused_key_is_said_without_the_key(home: Path):
    async with worker_in_process(home, then=bad_key("sk-fake-key-1234567890")) as it:
        run = await it.say("hello")
        told = (await it.sent())[-1]["text"] + (run.error or "")
        assert run.status is RunStatus.ERROR
        assert "sk-fake-key-1234567890" not in told


async def test_a_refusal_of_one_transcript_stays_that_sessions_problem(home: Path):
    def script(body: dict[str, Any]) -> Any:
        return bad_request("messages.[1]: no") if "poison" in str(body["messages"]) else "fine"

    async with worker_in_process(home, script) as it:
        assert (await it.say("poison")).status is RunStatus.ERROR
        assert (await it.say("hello", key=f"{KEY}:8")).status is RunStatus.COMPLETED


async def test_a_fallback_answers_and_is_named(home: Path):
    def script(body: dict[str, Any]) -> Any:
        return Failure(status=500) if body["model"] == "fake-model" else "from the other"

    async with worker_in_process(home, script, settings={"fallbacks": ("spare",)}) as it:
        assert (await it.say("hello")).status is RunStatus.COMPLETED
        assert (await it.said())[-1] == ("assistant", "from the other")


async def test_thinking_is_neither_stored_nor_sent(home: Path):
    async with worker_in_process(home, ["<think>hm, a secret plan</think>Hello."]) as it:
        await it.say("hello")
        assert "secret plan" not in str(await it.said()) + str(await it.sent())
        assert (await it.said())[-1] == ("assistant", "Hello.")
