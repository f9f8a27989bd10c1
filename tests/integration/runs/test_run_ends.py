"""How a run ends: stopped, silent, over its budget, or because its model fails."""

import asyncio
import gc
import sys
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text, update

from gateway.runs.live import LiveEvent
from gateway.runs.run import ActiveRun
from gateway.scheduler.jobs import Jobs
from gateway.texts import say
from sessions import jobs, runs
from sessions.db.schema import runs as runs_table
from sessions.jobs.delivery import deliver_to
from sessions.records import RunStatus, StopReason
from sessions.runs import Opening
from tests.conftest import HandClock
from tests.fakes.model_replies import Failure, Reply, bad_key, bad_request, call, calls
from tests.integration.runs.test_going_on import ToolGate
from tests.integration.runs.worker_in_process import (
    DM,
    GROUP,
    KEY,
    Plain,
    WorkerHarness,
    at_work,
    tool,
    worker_in_process,
)


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
    async with worker_in_process(
        home, script, then="done", tools=[tool("look", look)], limits={"steps_per_run": 40}
    ) as it:
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
        it.app.live.listen("*", begun.append)
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
        assert (await it.transcript())[-1] == ("assistant", "First words.\n\n[stopped by the user]")
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


async def test_an_unreachable_model_is_told_at_once_in_the_terminal_and_retry_answers_the_message(home: Path):
    async with worker_in_process(home, then=Failure(status=500)) as it:
        run = await it.say("hello", route=None)
        assert run.status is RunStatus.ERROR
        assert "trouble of its own" in (run.error or "")
        it.server.then = "here I am"
        assert await it.command("/retry") == ""
        await wait_for_idle(it)
        assert await it.transcript() == [("user", "hello"), ("assistant", "here I am")]


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
        assert (await it.transcript())[-1] == ("assistant", "from the other")


async def test_thinking_is_neither_stored_nor_sent(home: Path):
    async with worker_in_process(home, ["<think>hm, a secret plan</think>Hello."]) as it:
        await it.say("hello")
        assert "secret plan" not in str(await it.transcript()) + str(await it.sent())
        assert (await it.transcript())[-1] == ("assistant", "Hello.")


async def test_what_a_run_held_is_freed_with_it(home: Path):
    """Not some time later by the garbage collector: what the runs of a busy hour held would make the process grow."""
    async with worker_in_process(home, ["answered"] * 6) as it:
        await it.say("first")  # what is loaded or kept once
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                await it.say("again")
            left = [each for each in gc.get_objects() if isinstance(each, ActiveRun)]
        finally:
            gc.enable()
    assert len(left) <= 1, "the worker's loop may still hold the last one"


async def test_a_tool_that_wants_to_end_the_program_has_only_failed(home: Path):
    async def leave(*_: object) -> str:
        sys.exit("bye")

    async with worker_in_process(home, [calls(call("leave")), "I could not."], tools=[tool("leave", leave)]) as it:
        assert (await it.say("begin")).status is RunStatus.COMPLETED
        assert ("tool", "[leave failed: it tried to end the program]") in await it.transcript()


async def test_rows_of_an_odd_import_end_no_run(home: Path):
    async with worker_in_process(home, ["hi"]) as it:
        await it.say("begin")
        odd = "UPDATE messages SET tool_calls = '[{}, 5, {\"id\": \"x\"}]' WHERE role = 'assistant'"
        for statement in (odd, "UPDATE sessions SET model_config = 'garbage'"):
            await it.database.write(lambda conn, sql=statement: conn.execute(text(sql)) and None)
    async with worker_in_process(home, ["ho"]) as it:
        assert (await it.say("and now")).status is RunStatus.COMPLETED


async def test_a_job_that_is_given_up_says_so_where_it_reports(home: Path, clock: HandClock):
    async with worker_in_process(home, ["done"], working=False, clock=clock) as it:
        deliver, route = deliver_to(DM)
        when = {"schedule": "every 30m", "timezone": "UTC", "now": clock()}
        new = jobs.new_job(name="report", prompt="p", deliver=deliver, route=route, **when)
        job = await it.database.write(jobs.create, new)
        clock.tick(30 * 60_000)
        await Jobs(it.app).tick()

        def interrupted(conn: Connection) -> str:
            run = runs.claim(conn, job.session_key, "elsewhere:1:1", Opening(), clock(), lease_ms=1_000)
            assert run is not None
            changed = {"attempts": runs.MAX_TAKEOVERS, "lease_until": 0}
            conn.execute(update(runs_table).where(runs_table.c.id == run.id).values(changed))
            return run.id

        run_id = await it.database.write(interrupted)
        async with at_work(it):
            assert (await it.settled(run_id)).status is RunStatus.ERROR
        (told,) = await it.sent()
        assert told["text"].startswith("I could not finish “report”: given up after 6 interruptions")
