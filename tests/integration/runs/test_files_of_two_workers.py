"""Two workers with homes of their own: what a run of one has stored a run of the other has, and what it has not stored counts as not done."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from gateway.agent.tools.process import Processes
from gateway.agent.tools.registry import Toolbox
from sessions import workspace_files
from sessions.db import bus
from sessions.db.schema import processes
from sessions.errors import LeaseLost
from sessions.records import RunStatus
from tests.app import give_tools
from tests.fakes.model_replies import call, calls
from tests.integration.runs.test_two_workers import two
from tests.integration.runs.worker_in_process import (
    WorkerHarness,
    at_work,
    crashing,
    polls_every,
    stop_heart,
)

NS = "agent:main"
PLAN = calls(call("files", {"action": "write", "path": "plan.md", "content": "milk"}))


def equip(*harnesses: WorkerHarness) -> None:
    for each in harnesses:
        give_tools(each.app, Toolbox.of(["files", "skill"]).tools)


def plan_in(it: WorkerHarness) -> Path:
    return it.app.workspace(NS) / "plan.md"


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.01)


def system_of(it: WorkerHarness) -> str:
    return it.server.calls[-1].messages[0]["content"]


async def test_files_and_skills_of_one_run_are_there_for_the_next_elsewhere(home: Path, postgres_url: str):
    save = calls(call("skill", {"action": "save", "name": "shop", "content": "How Ann shops\nSlowly."}))
    change = calls(call("files", {"action": "write", "path": "plan.md", "content": "tea"}))
    view = calls(call("skill", {"action": "view", "name": "shop"}))
    async with two(home, postgres_url, [PLAN, save, "a"], [change, view, "b"]) as (a, b):
        equip(a, b)
        async with at_work(a):
            await a.say("shop")
        async with at_work(b):
            await b.say("tea, not milk")
            assert "shop: How Ann shops" in system_of(b)
            assert "Slowly." in b.server.calls[-1].messages[-1]["content"]
            assert a.app.files is not None
            assert b.app.files is not None
            following = asyncio.create_task(b.app.files.run())  # hears of what is deleted, or finds it at its start
            assert plan_in(b).read_text() == "tea"
            await a.app.files.forget(NS)  # as when its deployment is deleted
            await until(lambda: not plan_in(b).parent.exists())
            following.cancel()


async def test_what_was_written_and_not_stored_is_done_again_by_whoever_takes_over(
    home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bus, "STEADY_SECONDS", 0.0)
    polls_every(monkeypatch, 0.1)
    written, may_go_on = asyncio.Event(), asyncio.Event()

    async def killed_before(*_: Any) -> None:
        written.set()
        await may_go_on.wait()

    async with two(
        home, postgres_url, [PLAN], ["b", calls(call("files", {"action": "read", "path": "plan.md"})), "b"]
    ) as (a, b):
        equip(a, b)
        assert a.app.files is not None
        monkeypatch.setattr(a.app.files, "keep", killed_before)
        async with crashing(a):
            run_id = (await a.accept("shop")).run_id
            await written.wait()
            assert plan_in(a).read_text() == "milk"
            assert await b.database.read(workspace_files.listing, NS) == {}
            await a.database.write(stop_heart, a.app)
        async with at_work(b):
            assert (await b.settled(run_id)).status is RunStatus.COMPLETED
            assert plan_in(b).read_text() == "milk"
            await b.say("what is in it?")
            assert "milk" in b.server.calls[-1].messages[-1]["content"]
        await a.app.files.bring("workspace", NS)
        assert [each.name for each in a.app.workspace(NS).iterdir()] == ["plan.md"], "the same words are no conflict"


async def test_who_has_lost_a_run_stores_nothing_more(home: Path, postgres_url: str):
    async with two(home, postgres_url, [PLAN, "a"], []) as (a, b):
        equip(a)
        async with at_work(a):
            run = await a.say("shop")
        stored = await b.database.read(workspace_files.listing, NS)
        plan_in(a).write_text("written by a zombie")
        assert a.app.files is not None
        with pytest.raises(LeaseLost):
            await a.app.files.keep("workspace", NS, replace(run, fence=run.fence - 1), a.now())
        assert await b.database.read(workspace_files.listing, NS) == stored


async def test_what_a_command_writes_in_the_background_is_there_when_it_has_ended(home: Path, postgres_url: str):
    start = calls(call("process", {"action": "start", "command": "sleep 0.1; echo milk > plan.md"}))
    read = calls(call("files", {"action": "read", "path": "plan.md"}))
    async with two(home, postgres_url, [start, "a"], [read, "b"]) as (a, b):
        a.app.processes = Processes(a.app, foreground_seconds=0.05)
        equip(b)
        toolbox = Toolbox({"process": replace(Toolbox.of(["process"]).tools["process"], needs_approval=False)})
        give_tools(a.app, toolbox.tools)
        async with at_work(a):
            await a.say("shop")
            async with asyncio.timeout(20):
                while await a.database.read(lambda conn: conn.scalar(select(processes.c.outcome))) != "exit code 0":
                    await asyncio.sleep(0.01)
        async with at_work(b):
            await b.say("what is in it?")
            assert "milk" in b.server.calls[-1].messages[-1]["content"]
        await a.app.processes.aclose()
