"""Folds give way to people where answers were measured slower beside them, and nowhere else."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gateway.agent.models.interface import Answer, Model, ModelRequest, OnToken
from gateway.agent.models.side_work import FAR_SLOWER, LONG_SECONDS, PATIENCE_SECONDS, SideWork

AFTER_IT = math.inf
HELLO, FOLD = ModelRequest(messages=[{"role": "user", "content": "hello"}]), ModelRequest(messages=[])


@dataclass
class ModelForOne:
    """An endpoint whose first word takes so long, and longer beside a fold, or comes only after it. Folds end when they are told to."""

    beside: float
    now: float = 0.0
    folds: list[asyncio.Event] = field(default_factory=list[asyncio.Event])
    open: int = 0

    async def ask(self, request: ModelRequest, on_token: OnToken | None = None) -> Answer:
        if request is FOLD:
            self.folds.append(end := asyncio.Event())
            self.open += 1
            try:
                await end.wait()
            finally:
                self.open -= 1
            return Answer(text="folded")
        await asyncio.sleep(0)
        while self.open and self.beside == AFTER_IT:
            await asyncio.sleep(0)
        self.now += self.beside if self.open else 2.0
        if on_token is not None:
            on_token("hello")
        return Answer(text="hello")


async def begun(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def measured(beside: float) -> tuple[ModelForOne, SideWork]:
    """Two answers alone, two beside a fold."""
    slow = ModelForOne(beside)
    work = SideWork(clock=lambda: slow.now)
    model: Any = cast(Model, slow)
    for _ in range(2):
        await work.answer(model, HELLO, None)
    fold = asyncio.create_task(work.aside(model, FOLD))
    await begun()
    for _ in range(2):
        await work.answer(model, HELLO, None)
    slow.folds[-1].set()
    assert (await fold).text == "folded"
    return slow, work


async def test_where_answers_are_as_fast_beside_a_fold_nothing_waits_and_nothing_is_given_up() -> None:
    slow, work = await measured(beside=2.9)
    assert not work.slows_answers
    fold = asyncio.create_task(work.aside(cast(Model, slow), FOLD))
    await begun()
    await work.answer(cast(Model, slow), HELLO, None)
    assert slow.open == 1
    slow.folds[-1].set()
    await fold
    assert len(slow.folds) == 2


async def test_where_they_are_slower_a_fold_waits_is_given_up_for_a_message_and_done_afterwards() -> None:
    slow, work = await measured(beside=50.0)
    assert work.slows_answers
    answering = asyncio.Event()
    asked = asyncio.create_task(work.answer(cast(Model, slow), HELLO, lambda _: answering.set()))
    fold = asyncio.create_task(work.aside(cast(Model, slow), FOLD))
    await answering.wait()
    assert slow.open == 0, "it waits for the answer"
    await asked
    await begun()
    assert slow.open == 1
    before = slow.now
    await work.answer(cast(Model, slow), HELLO, None)
    assert slow.now - before == 2.0, "the fold was given up"
    await begun()
    slow.folds[-1].set()
    assert (await fold).text == "folded"
    assert len(slow.folds) == 3


async def test_after_two_minutes_a_fold_is_done_whoever_writes() -> None:
    slow, work = await measured(beside=50.0)
    fold = asyncio.create_task(work.aside(cast(Model, slow), FOLD))
    await begun()
    slow.now += PATIENCE_SECONDS
    await work.answer(cast(Model, slow), HELLO, None)  # gives it up for the last time
    await begun()
    await work.answer(cast(Model, slow), HELLO, None)
    assert slow.open == 1
    slow.folds[-1].set()
    await fold


async def test_a_fold_that_is_cancelled_ends_its_call() -> None:
    slow, work = await measured(beside=50.0)
    fold = asyncio.create_task(work.aside(cast(Model, slow), FOLD))
    await begun()
    fold.cancel()
    await asyncio.gather(fold, return_exceptions=True)
    await begun()
    assert (fold.cancelled(), slow.open) == (True, 0)


async def test_while_a_run_works_folds_wait_and_nothing_is_measured_that_is_no_answer() -> None:
    slow, work = await measured(beside=50.0)
    fold = asyncio.create_task(work.aside(cast(Model, slow), FOLD))
    await begun()
    assert slow.open == 1
    with work.held_back():
        await begun()
        assert slow.open == 0, "the fold was given up, and waits"
        slow.now += 50.0
    await begun()
    assert slow.open == 1
    before = slow.now
    await work.answer(cast(Model, slow), HELLO, None)
    assert slow.now - before == 2.0, "answers count as slower still"
    await begun()
    slow.folds[-1].set()
    await fold


async def test_a_fold_ends_for_an_answer_that_stays_silent_before_anything_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, passed, slow = asyncio.get_running_loop(), 0.0, ModelForOne(AFTER_IT)
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + passed)
    work = SideWork(clock=lambda: slow.now)
    await work.answer(cast(Model, slow), HELLO, None)
    fold = asyncio.create_task(work.aside(cast(Model, slow), FOLD))
    await begun()
    asked = asyncio.create_task(work.answer(cast(Model, slow), HELLO, None))
    await begun()
    assert (slow.open, asked.done()) == (1, False)
    passed = 2.0 * FAR_SLOWER + LONG_SECONDS
    await asked
    assert slow.open == 0, "it waits until the answer has come"
    await begun()
    assert slow.open == 1
    slow.folds[-1].set()
    assert (await fold).text == "folded"
