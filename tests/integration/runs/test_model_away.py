"""A model that cannot be reached: the runs sleep as rows, say so once, and go on in order when it is back."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from gateway.runs.outages import GIVE_UP_MS, LONGEST_PAUSE_MS, ModelOutages
from gateway.texts import say
from sessions import runs
from sessions.db.schema import runs as runs_table
from sessions.keys import Address, ChatKind, Platform
from sessions.records import InboxMode, InboxRow, Message, Route, Run, RunStatus, StopReason
from sessions.runs import Opening
from tests.conftest import HandClock
from tests.fakes.model_replies import Failure, Reply
from tests.integration.runs.worker_in_process import WorkerHarness, crashing, polls_every, worker_in_process

AWAY = say("model.unreachable", minutes=30)
DOWN = Failure(status=503)


class AwayEndpoint:
    """Down until told otherwise; counts the calls at once, and keeps the order of the answers."""

    def __init__(self) -> None:
        self.up = False
        self.busy = self.most = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.answered: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Reply | Failure:
        if not self.up:
            return DOWN
        text = str(body["messages"][-1]["content"]).rpartition("\n")[2]
        self.answered.append(text)
        self.busy += 1
        self.most = max(self.most, self.busy)

        async def before() -> None:
            try:
                await self.hold.wait()
                await asyncio.sleep(0)
            finally:
                self.busy -= 1

        return Reply(text=f"answer to {text}", before=before)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def asleep(it: WorkerHarness, count: int) -> None:
    async with asyncio.timeout(60):
        while len(await it.database.read(_asleep, it.now())) < count:
            await asyncio.sleep(0.01)


def _asleep(conn: Connection, now: int) -> list[str]:
    rows = conn.execute(select(runs_table)).mappings()
    return [run.session_key for run in map(Run.from_row, rows) if runs.is_asleep(run, now) and run.lease_owner is None]


def texts(sent: list[dict[str, Any]]) -> list[str]:
    return [body["text"] for body in sent]


async def test_it_says_so_once_sleeps_and_goes_on_by_itself(home: Path, database_url: str, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, url=database_url, clock=clock) as it:
        accepted = await it.accept("hello")
        await asleep(it, 1)
        assert texts(await it.sent()) == [AWAY]
        for _ in range(3):
            calls = it.server.count
            await it.passes(clock, LONGEST_PAUSE_MS)
            await until(lambda calls=calls: it.server.count > calls)
            await asleep(it, 1)
        endpoint.up = True
        await it.passes(clock, LONGEST_PAUSE_MS)
        assert (await it.settled(accepted.run_id)).status is RunStatus.COMPLETED
        assert texts(await it.sent()) == [AWAY, "answer to hello"]


async def test_what_is_said_meanwhile_waits_with_it_and_stop_ends_it(home: Path, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, clock=clock) as it:
        accepted = await it.accept("hello")
        await asleep(it, 1)
        assert (await it.accept("and more")).run_id == accepted.run_id
        calls = it.server.count
        await it.passes(clock, 1)
        assert it.server.count == calls
        assert "try again at" in await it.command("/status")
        assert await it.command("/stop") == say("run.stopped")
        run = await it.settled(accepted.run_id)
        assert (run.status, run.stop_reason) == (RunStatus.COMPLETED, StopReason.CANCELLED)
        endpoint.up = True
        await it.passes(clock, LONGEST_PAUSE_MS)
        assert await it.say("again?")
        assert texts(await it.sent()) == [AWAY, "answer to again?"]


async def test_retry_tries_at_once_and_says_it_again_when_that_fails(home: Path, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, clock=clock) as it:
        accepted = await it.accept("hello")
        await asleep(it, 1)
        clock.tick(1)
        assert await it.command("/retry") == ""
        await until(lambda: it.now() and len(texts_of(it)) == 2)
        await asleep(it, 1)
        endpoint.up = True
        clock.tick(1)
        assert await it.command("/retry") == ""
        assert (await it.settled(accepted.run_id)).status is RunStatus.COMPLETED
        assert texts(await it.sent()) == [AWAY, AWAY, "answer to hello"]


def texts_of(it: WorkerHarness) -> list[str]:
    from tests.integration.runs.worker_in_process import _sent

    return texts(it.database.read_now(_sent))


async def test_after_half_an_hour_it_ends_in_error_and_retry_takes_it_up(home: Path, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, clock=clock) as it:
        accepted = await it.accept("hello")
        await asleep(it, 1)
        for _ in range(GIVE_UP_MS // LONGEST_PAUSE_MS + 1):
            it.app.standstills.check()
            for _ in range(6):  # time that passes in steps; a jump would count as a machine that slept
                clock.tick(LONGEST_PAUSE_MS // 6)
                it.app.standstills.check()
            await it.passes(clock, 0)
            await it.app.dispatch.poll()
            run = await it.database.read(runs.get, accepted.run_id)
            if run.status is RunStatus.ERROR:
                break
            await asyncio.sleep(0.02)
        run = await it.settled(accepted.run_id)
        assert run.status is RunStatus.ERROR
        assert texts(await it.sent()) == [AWAY, say("model.given_up", minutes=30)]
        endpoint.up = True
        await it.passes(clock, LONGEST_PAUSE_MS)
        assert await it.command("/retry") == ""
        await until(lambda: texts_of(it)[-1] == "answer to hello")


async def test_the_hours_in_which_the_machine_slept_do_not_count(home: Path, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, clock=clock) as it:
        accepted = await it.accept("hello")
        await asleep(it, 1)
        it.app.standstills.check()
        calls = it.server.count
        await it.passes(clock, 8 * 3_600_000)
        await until(lambda: it.server.count > calls)
        await asleep(it, 1)
        endpoint.up = True
        await it.passes(clock, LONGEST_PAUSE_MS)
        assert (await it.settled(accepted.run_id)).status is RunStatus.COMPLETED


async def test_a_clock_that_is_set_back_lets_nobody_sleep_for_days(home: Path, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, clock=clock) as it:
        accepted = await it.accept("hello")
        await asleep(it, 1)
        endpoint.up = True
        await it.passes(clock, -3 * 86_400_000)
        assert (await it.settled(accepted.run_id)).status is RunStatus.COMPLETED


async def test_it_goes_on_after_a_crash(home: Path, database_url: str, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, url=database_url, clock=clock, working=False) as it:
        async with crashing(it):
            accepted = await it.accept("hello")
            await asleep(it, 1)
        endpoint.up = True
        clock.tick(LONGEST_PAUSE_MS)
        async with crashing(it):
            assert (await it.settled(accepted.run_id)).status is RunStatus.COMPLETED
        assert texts(await it.sent()) == [AWAY, "answer to hello"]


async def test_after_a_restart_the_first_answer_wakes_the_others(home: Path, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, clock=clock, working=False) as it:
        async with crashing(it):
            for number in range(20):
                await it.accept(f"m{number}", key=_key(number), route=_route(number))
                clock.tick()
            await asleep(it, 20)
        endpoint.up = True
        clock.tick(LONGEST_PAUSE_MS)
        it.app.outages = ModelOutages()  # what another process knew is known no more
        async with crashing(it):
            await until(lambda: len(endpoint.answered) == 1)
            await it.app.dispatch.poll()
            await until(lambda: len(texts_of(it)) == 40)
        assert endpoint.most <= 8


async def test_runs_of_threads_sleep_too_and_calls_are_answered(home: Path, clock: HandClock):
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, clock=clock) as it:
        key = "agent:dep_x:thread:thread_1"
        new = InboxRow(dedup_key="t", session_key=key, messages=[Message(content="hello")])
        opening = Opening(deployment="dep_x", thread_id="thread_1")
        accepted = await it.database.write(runs.accept, new, opening, it.now())
        await asleep(it, 1)
        call = await it.accept("a call", key="agent:main:api:k:s", route=None, mode=InboxMode.QUEUE)
        assert call.run_id is None

        def ended(conn: Connection) -> list[str]:
            rows = conn.execute(select(runs_table).where(runs_table.c.kind == "call")).mappings()
            return [row["status"] for row in rows]

        async with asyncio.timeout(30):
            while await it.database.read(ended) != ["error"]:
                await asyncio.sleep(0.01)
        endpoint.up = True
        await it.passes(clock, LONGEST_PAUSE_MS)
        assert (await it.settled(accepted.run_id)).status is RunStatus.COMPLETED


@pytest.mark.parametrize("chats", [200])
async def test_two_hundred_chats_that_waited_are_answered_once_in_order_and_not_all_at_once(
    home: Path, database_url: str, clock: HandClock, monkeypatch: pytest.MonkeyPatch, chats: int
):
    polls_every(monkeypatch, 0.1)
    endpoint = AwayEndpoint()
    async with worker_in_process(home, endpoint, url=database_url, clock=clock, working=False) as it:
        async with crashing(it):
            for number in range(chats // 2):
                await it.accept(f"m{number}", key=_key(number), route=_route(number))
                clock.tick()
            await asleep(it, chats // 2)
        async with crashing(it):  # killed in between
            for number in range(chats // 2, chats):
                await it.accept(f"m{number}", key=_key(number), route=_route(number))
                clock.tick()
            await asleep(it, chats)
            await until(lambda: it.app.places.free == it.app.places.total)  # nobody is at work on any of them
            for _ in range(10):  # minutes
                for _ in range(6):
                    clock.tick(10_000)
                    it.app.standstills.check()
            assert texts(await it.sent()) == [AWAY] * chats
            calls = it.server.count
            endpoint.up = True
            endpoint.hold.clear()
            clock.tick(LONGEST_PAUSE_MS)
            await until(lambda: endpoint.busy)
            endpoint.hold.set()
            await until(lambda: len(endpoint.answered) == 1)
            endpoint.hold.clear()
            await until(lambda: endpoint.busy >= 8)
            assert endpoint.most == 8
            endpoint.hold.set()
            await until(lambda: len(texts_of(it)) == 2 * chats)
        assert sorted(texts_of(it)[chats:]) == sorted(f"answer to m{number}" for number in range(chats))
        places = [int(text[1:]) for text in endpoint.answered]
        # So many are at it side by side.
        assert max(abs(place - number) for number, place in enumerate(places)) < it.app.places.total
        assert calls < chats  # most never asked while it was known to be away


def _key(number: int) -> str:
    return f"agent:main:telegram:dm:{number}"


def _route(number: int) -> Route:
    return Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id=str(number)))
