"""Two workers on one PostgreSQL: who takes what, what each hears of the other, and what becomes of one that stood still."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from gateway.dispatch import procrastinate
from gateway.dispatch.fair_queue import FairPlaces
from gateway.runs.live import LiveEvent
from sessions import runs
from sessions.db import bus
from sessions.errors import LeaseLost
from sessions.records import InboxRow, Message, Run, RunStatus
from sessions.runs import Opening
from tests.fakes.model_replies import Reply
from tests.integration.runs.worker_in_process import (
    KEY,
    WorkerHarness,
    at_work,
    crashing,
    polls_every,
    queued,
    stop_heart,
    worker_in_process,
)

SOON = 0.3
"""What another worker does is heard of in this time."""


class HeldAnswer:
    """A model that has begun to answer and goes on when it may."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


@asynccontextmanager
async def two(
    home: Path, url: str, first: list[object], second: list[object]
) -> AsyncIterator[tuple[WorkerHarness, WorkerHarness]]:
    """Neither works yet."""
    homes = [home / "a", home / "b"]
    for each in homes:
        each.mkdir()
    async with (
        worker_in_process(homes[0], first, url=url, working=False) as a,
        worker_in_process(homes[1], second, url=url, working=False) as b,
    ):
        yield a, b


async def test_what_one_has_no_place_for_the_other_takes_at_once_and_in_order(home, postgres_url, monkeypatch):
    polls_every(monkeypatch, 3_600)
    async with two(home, postgres_url, [], ["one", "two", "three"]) as (a, b), at_work(a), at_work(b):
        for number in range(a.app.places.total):
            a.app.places.enter(f"busy{number}")
        began = time.monotonic()
        waiting = [await a.accept(f"m{number}", **queued()) for number in range(3)]
        await asyncio.gather(*(b.settled(each.run_id) for each in waiting if each.run_id))
        async with asyncio.timeout(10):
            while len([each for each in await b.transcript() if each[0] == "assistant"]) < 3:
                await asyncio.sleep(0.01)
        assert time.monotonic() - began < 5  # long before anybody looks by itself
        said = [content for role, content in await b.transcript() if role == "user"]
        assert said == ["m0", "m1", "m2"]
        assert a.server.count == 0


async def takes_work(it: WorkerHarness) -> None:
    assert it.database.bus is not None
    async with asyncio.timeout(10):
        while it.database.bus.first_worker() is None:
            await asyncio.sleep(0.005)


async def test_each_works_on_what_came_in_with_it_while_it_has_places(home, postgres_url, monkeypatch):
    polls_every(monkeypatch, 3_600)
    async with two(home, postgres_url, ["a"] * 24, ["b"] * 24) as (a, b), at_work(a), at_work(b):
        for it in (a, b):
            await takes_work(it)
        keys = {f"{KEY}:{number}": it for number in range(12) for it in [(a, b)[number % 2]]}
        accepted = await asyncio.gather(*(it.accept("hello", key=key) for key, it in keys.items()))
        await asyncio.gather(*(a.settled(each.run_id) for each in accepted))
        assert [(await a.transcript(key))[-1][1] for key in keys] == ["a", "b"] * 6


async def test_of_what_came_in_at_once_others_take_what_is_more_than_its_places(home, postgres_url, monkeypatch):
    polls_every(monkeypatch, 3_600)
    gate = HeldAnswer()
    held: list[object] = [Reply(text="late", before=gate)] * 4
    async with two(home, postgres_url, held, ["soon"] * 6) as (a, b):
        a.app.places = FairPlaces(len(held))
        async with at_work(a), at_work(b):
            await a.database.write(_accept, 6, a.now())
            async with asyncio.timeout(10):
                while a.server.count + b.server.count < 6:
                    await asyncio.sleep(0.01)
            assert b.server.count >= 2
            gate.open.set()


def _accept(conn: Connection, count: int, now: int) -> None:
    for number in range(count):
        new = InboxRow(dedup_key=f"e{number}", session_key=f"{KEY}:{number}", messages=[Message(content="hello")])
        runs.accept(conn, new, Opening(), now)


async def test_what_a_worker_leaves_lying_is_taken_by_another(home, postgres_url, monkeypatch):
    async with two(home, postgres_url, [], ["drained", "stuck"]) as (a, b), at_work(b):
        polls_every(monkeypatch, 3_600)
        async with at_work(a):
            for number in range(a.app.places.total):
                a.app.places.enter(f"busy{number}")
            async with _for_itself(a):
                waiting = await a.accept("hello", key=f"{KEY}:1")
            await asyncio.sleep(0.05)
            assert a.server.count + b.server.count == 0
        assert (await b.settled(waiting.run_id)).status is RunStatus.COMPLETED  # at once, since it was drained
        async with at_work(a):
            for number in range(a.app.places.total):
                a.app.places.enter(f"busy{number}")
            async with _for_itself(a):
                waiting = await a.accept("hello", key=f"{KEY}:2")
            await b.app.dispatch.poll()
            assert b.server.count == 1
            await b.app.dispatch.poll()
            assert (await b.settled(waiting.run_id)).status is RunStatus.COMPLETED
        assert (a.server.count, b.server.count) == (0, 2)


@asynccontextmanager
async def _for_itself(it: WorkerHarness) -> AsyncIterator[None]:
    """What is accepted meanwhile waits for this worker, as if it had places."""
    dispatch, bus = it.app.dispatch, it.database.bus
    assert isinstance(dispatch, procrastinate.ProcrastinateDispatch)
    assert bus is not None
    before, bus.first_worker = bus.first_worker, lambda: before() or dispatch.worker
    yield
    bus.first_worker = before


async def test_a_run_is_stopped_by_another_worker_and_its_words_are_seen_there(home, postgres_url):
    gate = HeldAnswer()
    async with two(home, postgres_url, [Reply(text="slowly told", before=gate)], []) as (a, b), at_work(b), at_work(a):
        for number in range(b.app.places.total):
            b.app.places.enter(f"busy{number}")
        b.app.live.connect(b.database.bus)
        a.app.live.connect(a.database.bus)
        heard: list[LiveEvent] = []
        b.app.live.listen("*", heard.append)
        async with asyncio.timeout(10):
            while any(
                bus is None or bus.is_alone or bus.steady_since is None for bus in (a.database.bus, b.database.bus)
            ):
                await asyncio.sleep(0.02)
        run_id = (await a.accept("begin")).run_id
        await gate.reached.wait()
        began = time.monotonic()
        await b.database.write(runs.stop, run_id, b.now())
        async with asyncio.timeout(10):
            while a.worker is None or a.worker.active:
                await asyncio.sleep(0.005)
        assert time.monotonic() - began < SOON + 1.0  # on a machine that does much else
        async with asyncio.timeout(10):
            while not heard or heard[-1].kind != "ended":
                await asyncio.sleep(0.005)
        assert heard[0].kind == "begun"
        assert heard[0].run is not None
        assert heard[0].run.session_key == KEY


async def test_a_worker_that_stood_still_loses_its_run_once_and_can_write_no_more(home, postgres_url, monkeypatch):
    monkeypatch.setattr(bus, "STEADY_SECONDS", 0.0)
    polls_every(monkeypatch, 0.1)
    gate = HeldAnswer()
    script = [Reply(text="too late", before=gate)]
    async with two(home, postgres_url, script, ["in time", "next"]) as (a, b):
        async with crashing(a):
            run_id = (await a.accept("begin")).run_id
            await gate.reached.wait()
            for number in range(a.app.places.total):  # it takes nothing more
                a.app.places.enter(f"busy{number}")
            await a.database.write(stop_heart, a.app)
            async with at_work(b):
                run = await b.settled(run_id)
                assert (run.status, run.attempts, b.server.count) == (RunStatus.COMPLETED, 0, 1)
                gate.open.set()  # it goes on, and knows of nothing
                async with asyncio.timeout(10):
                    while await a.database.read(_jobs_of, a):
                        await asyncio.sleep(0.01)
                await b.say("and then?")
        assert [text for role, text in await b.transcript() if role == "assistant"] == ["in time", "next"]
        with pytest.raises(LeaseLost):
            await a.database.write(_write_as, run)


def _jobs_of(conn: Connection, it: WorkerHarness) -> int:
    dispatch = it.app.dispatch
    assert isinstance(dispatch, procrastinate.ProcrastinateDispatch)
    query = text("SELECT count(*) FROM procrastinate_jobs WHERE worker_id = :id")
    return conn.scalar(query, {"id": dispatch.worker}) or 0


def _write_as(conn: Connection, run: Run) -> None:
    runs.hand_over(conn, replace(run, fence=run.fence - 1), 0)


async def test_a_drained_worker_hands_its_run_over_at_once(home, postgres_url, monkeypatch):
    polls_every(monkeypatch, 3_600)
    gate = HeldAnswer()
    async with two(home, postgres_url, [Reply(text="too late", before=gate)], ["taken over"]) as (a, b), at_work(b):
        for number in range(b.app.places.total):
            b.app.places.enter(f"busy{number}")
        async with at_work(a) as worker:
            run_id = (await a.accept("begin")).run_id
            await gate.reached.wait()
            for number in range(b.app.places.total):
                b.app.places.leave(f"busy{number}")
            await worker.drain(0.01)
        run = await b.settled(run_id)
        assert (run.status, run.attempts, b.server.count) == (RunStatus.COMPLETED, 0, 1)
