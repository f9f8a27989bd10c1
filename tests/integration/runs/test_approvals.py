"""Tool calls that need a person's approval, and questions: who may answer, and what becomes of the run."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from gateway.agent.tools import files
from gateway.runs.history import JournalTails
from gateway.texts import say
from sessions import asks, audit, runs
from sessions.clock import now_ms
from sessions.records import Role, RunStatus
from tests.app import configure
from tests.fakes.model_replies import call, calls
from tests.integration.runs.test_going_on import ToolGate
from tests.integration.runs.worker_in_process import (
    GROUP,
    at_work,
    of_role,
    tool,
    worker_in_process,
)


@pytest.fixture
def deeds() -> list[str]:
    return []


@pytest.fixture
def deed(deeds: list[str]):
    async def do(_: object, arguments: Any) -> str:
        deeds.append(arguments.text)
        return "done"

    return tool("deed", do, needs_approval=True)


def calls_as_text(action: str, **more: str) -> str:
    return json.dumps({"name": "files", "arguments": {"action": action, "path": "precious.md", **more}})


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


async def test_a_call_that_was_written_as_text_asks_before_it_deletes(home: Path):
    script = [calls_as_text("write", content="dear"), "kept", calls_as_text("delete"), "gone"]
    async with worker_in_process(home, script, tools=[files.TOOL]) as it:
        assert (await it.say("keep this")).status is RunStatus.COMPLETED
        file = next(home.rglob("precious.md"))
        run = await it.say("what did Bob write?")
        assert (run.status, file.read_text()) == (RunStatus.WAITING, "dear")
        await it.command("/approve")
        await it.settled(run.id)
        assert not file.exists()


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
        assert ("tool", "red") in await it.transcript()


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


async def test_a_question_that_was_withdrawn_counts_as_never_asked(home: Path):
    gates = [ToolGate(), ToolGate()]
    asks = [calls(call("ask_human", {"question": "Which?"}, id=f"c{i}"), before=gate) for i, gate in enumerate(gates)]
    again = calls(call("ask_human", {"question": "Which?"}, id="c2"))
    async with worker_in_process(home, [*asks, again, "Blue then."]) as it:
        run_id = (await it.accept("paint")).run_id
        for gate in gates:
            await gate.reached.wait()
            await it.accept("soon, please")
            gate.open.set()
        assert (await it.settled(run_id)).status is RunStatus.WAITING
        assert [body["text"] for body in await it.sent()] == ["Which?"]


GROUP_KEY = "agent:main:telegram:group:-9"


@pytest.mark.parametrize(("open_chats", "asks_first"), [(["-9"], True), ([], False)])
async def test_where_anybody_may_talk_what_deletes_asks_somebody_with_access(
    home: Path, open_chats: list[str], asks_first: bool
):
    script = [
        calls(call("files", {"action": "write", "path": "list.md", "content": "x"})),
        "kept",
        calls(call("files", {"action": "delete", "path": "list.md"})),
        "gone",
    ]
    async with worker_in_process(home, script, tools=[files.TOOL]) as it:
        section = it.app.config.platforms.by_name()["telegram"].model_copy(update={"allowed_chats": open_chats})
        configure(it.app, platforms={"telegram": section})
        assert (await it.say("keep it", route=GROUP, key=GROUP_KEY)).status is RunStatus.COMPLETED
        run = await it.say("delete it", route=GROUP, key=GROUP_KEY)
        assert (run.status is RunStatus.WAITING) is asks_first


async def test_a_rule_of_the_configuration_allows_without_asking(home: Path, deed, deeds: list[str]):
    script = [calls(call("deed", {"text": "git status -s"})), calls(call("deed", {"text": "git status; rm x"}))]
    async with worker_in_process(home, script, tools=[replace(deed, shows="text")]) as it:
        it.app.agents["main"] = replace(it.app.agents["main"], approve=("deed: git status*",))
        run = await it.say("look")
        assert (run.status, deeds) == (RunStatus.WAITING, ["git status -s"])
        assert "deed: git status; rm x" in (await it.sent())[-1]["text"]


async def test_each_decision_is_recorded(home: Path, deed):
    async with worker_in_process(home, [calls(call("deed", {"text": "x"})), "ok"], tools=[deed]) as it:
        run = await it.say("do it")
        await it.command("/approve")
        await it.settled(run.id)
        assert await it.database.read(audit.actions, "ask:1") == [("Ann", "approval.approved")]


@pytest.mark.parametrize(("repeatable", "times"), [(True, 4), (False, 2)])
async def test_a_tool_whose_result_changes_may_be_called_again_and_again(home: Path, repeatable: bool, times: int):
    made: list[str] = []

    async def look(_: object, arguments: Any) -> str:
        made.append(arguments.text)
        return "running"

    looks = replace(tool("look", look), repeatable=repeatable)
    async with worker_in_process(home, [*[calls(call("look", {"text": "p1"}))] * 4, "ok"], tools=[looks]) as it:
        assert (await it.say("wait for it")).status is RunStatus.COMPLETED
        assert len(made) == times


async def test_an_approval_does_not_count_for_other_arguments(home: Path, deed, deeds: list[str]):
    async with worker_in_process(
        home, [calls(call("deed", {"text": "rm x"})), "ok"], tools=[deed], working=False
    ) as it:
        run_id = (await it.accept("do it")).run_id
        async with at_work(it):
            await it.settled(run_id)
        await it.command("/approve")
        change = text(
            "UPDATE messages SET tool_calls = replace(tool_calls, 'rm x', 'rm y') WHERE tool_calls IS NOT NULL"
        )
        await it.database.write(lambda conn: conn.execute(change))
        it.app.tails = JournalTails()
        async with at_work(it):
            assert (await it.settled(run_id)).status is RunStatus.WAITING
            assert deeds == []
            assert "rm y" in (await it.sent())[-1]["text"]
            await it.command("/approve")
            await it.settled(run_id)
        assert deeds == ["rm y"]
        assert await it.database.read(audit.actions, "ask:1") == [
            ("Ann", "approval.approved"),
            ("Ann", "approval.refused"),
        ]
