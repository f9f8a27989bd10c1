"""Restarts: a run goes on where it stopped, at once, and a wait for a human costs nothing."""

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest
from sqlalchemy import select, update

from gateway.dispatch.local import LEASE_MS
from gateway.texts import say
from sessions import runs
from sessions.clock import now_ms
from sessions.db.schema import runs as runs_table
from sessions.messages import Attachment, AttachmentKind
from sessions.records import InboxMode, RunStatus
from tests.fakes.model_replies import Reply, call, calls
from tests.integration.runs.worker_in_process import (
    DM,
    KEY,
    WorkerHarness,
    at_work,
    crashing,
    polls_every,
    tool,
    worker_in_process,
)


class ToolGate:
    """Something that begins and then does not go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


async def note(*_: object) -> str:
    return "noted"


NOTE = tool("note", note, idempotent=True)


async def test_a_run_that_crashed_in_its_third_step_goes_on_there_at_once(
    home: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    polls_every(monkeypatch, 3_600)  # the first look finds it
    gate = ToolGate()
    script = [calls(call("note", id="a")), calls(call("note", id="b")), Reply(text="lost", before=gate), "third"]
    async with worker_in_process(home, script, tools=[NOTE], working=False, url=database_url) as it:
        async with crashing(it):
            run_id = (await it.accept("begin")).run_id
            await gate.reached.wait()
        async with at_work(it), asyncio.timeout(LEASE_MS / 2_000):  # long before its lease runs out
            await it.settled(run_id)
        assert it.server.count == 4
        assert [body["messages"] for body in it.server.bodies][2] == it.server.bodies[3]["messages"]
        assert (await it.transcript())[-1] == ("assistant", "third")


async def test_a_drained_run_finishes_its_step_and_goes_on_without_counting_as_interrupted(home: Path):
    gate = ToolGate()

    async def slow(*_: object) -> str:
        await gate()
        return "done"

    async with worker_in_process(home, [calls(call("slow")), "end"], tools=[tool("slow", slow)], working=False) as it:
        async with at_work(it) as worker:
            run_id = (await it.accept("begin")).run_id
            await gate.reached.wait()
            draining = asyncio.create_task(worker.drain())
            await asyncio.sleep(0)
            gate.open.set()
            await draining
        run = await it.database.read(runs.get, run_id)
        assert (run.status, run.attempts, run.lease_owner) == (RunStatus.RUNNING, 0, None)
        assert it.server.count == 1
        async with at_work(it):
            run = await it.settled(run_id)
        assert (run.status, run.attempts, it.server.count) == (RunStatus.COMPLETED, 0, 2)
        assert ("tool", "done") in await it.transcript()


async def test_draining_gives_up_a_step_that_takes_too_long(home: Path):
    gate = ToolGate()
    async with worker_in_process(home, [Reply(text="late", before=gate), "second"], working=False) as it:
        async with at_work(it) as worker:
            run_id = (await it.accept("begin")).run_id
            await gate.reached.wait()
            await worker.drain(seconds=0.01)
        run = await it.database.read(runs.get, run_id)
        assert (run.status, run.attempts, run.lease_owner) == (RunStatus.RUNNING, 0, None)
        async with at_work(it):
            assert (await it.settled(run_id)).status is RunStatus.COMPLETED


async def test_draining_gives_back_what_is_just_being_claimed(home: Path):
    async with worker_in_process(home, working=False) as it:
        async with at_work(it) as worker:
            await asyncio.sleep(0.01)
            accepted = await it.accept("hello")
            it.app.dispatch.notify(KEY)
            await worker.drain()
        run = await it.database.read(runs.get, accepted.run_id)
        assert (run.attempts, run.lease_owner) == (0, None)


async def test_after_five_interruptions_without_progress_a_run_ends_with_a_line(home: Path, database_url: str):
    gates = [ToolGate() for _ in range(6)]
    async with worker_in_process(
        home, [Reply(text="x", before=gate) for gate in gates], working=False, url=database_url
    ) as it:
        run_id = (await it.accept("begin")).run_id
        for gate in gates:
            async with crashing(it):
                await gate.reached.wait()
        async with at_work(it):
            run = await it.settled(run_id)
        assert run.status is RunStatus.ERROR
        assert "interruptions" in (run.error or "")
        assert "/retry" in (await it.sent())[-1]["text"]


async def test_a_question_survives_a_restart_and_its_answer_wakes_the_run(home: Path, database_url: str):
    script = [calls(call("ask_human", {"question": "Which colour?"})), "Blue it is."]
    async with worker_in_process(home, script, working=False, url=database_url) as it:
        async with at_work(it) as worker:
            run = await it.say("paint it")
            assert run.status is RunStatus.WAITING
            async with asyncio.timeout(30):
                while worker.active:
                    await asyncio.sleep(0.001)
        async with at_work(it):
            answered = await it.say("blue")
        assert (answered.id, answered.status, answered.steps) == (run.id, RunStatus.COMPLETED, 2)
        assert it.server.bodies[1]["messages"][-1] == {
            "role": "tool",
            "tool_call_id": "call_ask_human",
            "content": "The person wrote: blue",
        }


async def test_one_of_the_options_is_an_answer(home: Path):
    script = [calls(call("ask_human", {"question": "Which colour?", "options": ["blue", "red"]})), "Red it is."]
    async with worker_in_process(home, script) as it:
        await it.say("paint it")
        await it.say("red")
        assert it.server.bodies[1]["messages"][-1]["content"] == "red"


@pytest.mark.parametrize("mode", InboxMode)
async def test_files_that_come_with_an_answer_reach_the_model(home: Path, mode: InboxMode):
    script = [calls(call("ask_human", {"question": "Which colour?"})), "That blue."]
    picture = Attachment(kind=AttachmentKind.IMAGE, name="blue.png", url="http://pictures.example/blue.png")
    async with worker_in_process(home, script) as it:
        run = await it.say("paint it")
        answered = await it.accept("this one", message={"attachments": (picture,)}, mode=mode)
        assert (await it.settled(run.id)).status is RunStatus.COMPLETED
        *_, answer, files = it.server.bodies[1]["messages"]
        assert (answer["role"], answer["content"]) == ("tool", "The person wrote: this one")
        assert files["role"] == "user"
        assert {"type": "image_url", "image_url": {"url": picture.url}} in files["content"]
        assert await it.outcomes() == ["folded", "answered"]
        assert answered.run_id == run.id


async def test_a_thousand_waiting_runs_cost_no_task_and_less_than_five_kilobytes_each(home: Path):
    async with worker_in_process(home, working=False) as it:
        await park_some(it, 20, "first")
        size = database_size(it, home)
        await park_some(it, 1_000, "more")
        assert (database_size(it, home) - size) / 1_000 < 5_000
        gc.collect()
        tracemalloc.start()
        tasks, memory = len(asyncio.all_tasks()), tracemalloc.get_traced_memory()[0]
        await park_some(it, 200, "and more")
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - memory
        tracemalloc.stop()
        assert len(asyncio.all_tasks()) == tasks
        assert grown / 200 < 2_000


async def park_some(it: WorkerHarness, count: int, name: str) -> None:
    """The transitions of so many runs, without calling a model for each."""
    from gateway.runs.replies import question_card
    from sessions.runs import ModelAnswer, Opening

    said = ModelAnswer(text="", tool_calls=[call("ask_human", {"question": "Which colour do you like best?"})])

    def park(conn, key: str) -> None:
        run = runs.claim(conn, key, "me", Opening(), now_ms(), lease_ms=1_000)
        assert run is not None
        runs.take_in_new_messages(conn, run, now_ms())
        (row,) = runs.answered(conn, run, said, now_ms(), step=0)
        card = question_card("Which colour do you like best?", ["Red", "Green", "Blue"])
        assert runs.park(conn, run, row, "Which colour do you like best?", now_ms(), card=card)

    keys = [f"{KEY}:{name}{number}" for number in range(count)]
    await asyncio.gather(*(it.accept("Please paint it", key=key, route=DM) for key in keys))
    await asyncio.gather(*(it.database.write(park, key) for key in keys))
    waiting = select(runs_table.c.id).where(runs_table.c.status == RunStatus.WAITING)
    assert len(await it.database.read(lambda conn: conn.scalars(waiting).all())) >= count


def database_size(it: WorkerHarness, home: Path) -> int:
    it.database.checkpoint()
    return (home / "state.db").stat().st_size


async def interrupted(it: WorkerHarness, gate: ToolGate, hours_off: int) -> str:
    """A run that was cut off in what it was doing, so long ago."""
    async with crashing(it):
        run_id = (await it.accept("begin")).run_id
        await gate.reached.wait()
    off = hours_off * 3_600_000
    earlier = {"updated_at": runs_table.c.updated_at - off, "lease_until": runs_table.c.lease_until - off}
    await it.database.write(lambda conn: conn.execute(update(runs_table).values(earlier)) and None)
    assert run_id is not None
    return run_id


@pytest.mark.parametrize(("hours_off", "said"), [(0, []), (2, [say("run.continued")])])
async def test_a_chat_hears_that_a_run_goes_on_only_when_it_was_away_for_long(
    home: Path, hours_off: int, said: list[str]
):
    gate = ToolGate()
    async with worker_in_process(home, [Reply(text="lost", before=gate), "the answer"], working=False) as it:
        run_id = await interrupted(it, gate, hours_off)
        async with at_work(it):
            await it.settled(run_id)
        assert [body["text"] for body in await it.sent()] == [*said, "the answer"]


@pytest.mark.parametrize("hours_off", [0, 2])
async def test_a_chat_hears_of_which_tool_nobody_knows_whether_it_went_through(home: Path, hours_off: int):
    gate = ToolGate()

    async def order(*_: object) -> str:
        await gate()
        return "ordered"

    steps = [calls(call("order", {"text": "milk"})), "the answer"]
    async with worker_in_process(home, steps, tools=[tool("order", order)], working=False) as it:
        run_id = await interrupted(it, gate, hours_off)
        async with at_work(it):
            await it.settled(run_id)
        line, answer = [body["text"] for body in await it.sent()]
        assert line == say("run.continued_unsure", what='order {"text": "milk"}')
        assert answer == "the answer"
