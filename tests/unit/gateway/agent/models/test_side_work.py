"""Folds give way to people where the model is near, or answers were measured slower beside them, and nowhere else."""

import asyncio
import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest

from gateway.agent.models.interface import Answer, Model, ModelRequest, OnToken, Usage
from gateway.agent.models.side_work import FAR_SLOWER, LEAST_STEP, LONG_SECONDS, PATIENCE_SECONDS, SideWork

AFTER_IT = math.inf


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.agent.models.side_work.PAUSE", 0.0)


HELLO = ModelRequest(messages=[{"role": "user", "content": "hello"}])
FOLD = ModelRequest(messages=[{"role": "system", "content": "s" * 700}, {"role": "user", "content": "u" * 3_000}])


@dataclass
class ModelForOne:
    """An endpoint whose first word takes so long, and longer beside a fold, or comes only after it. Folds end when they are told to. Each new
    character of a part of a fold's prompt takes `reads` seconds."""

    beside: float
    is_near: bool = False
    reads: float = 0.0
    parts: list[ModelRequest] = field(default_factory=list[ModelRequest])
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
        if request.max_output_tokens == 1:
            size, before = length(request), length(self.parts[-1]) if self.parts else 0
            self.parts.append(request)
            self.now += self.reads * (size - before)
            return Answer(text="{", usage=Usage(input_tokens=size, cached_tokens=before))
        await asyncio.sleep(0)
        while self.open and self.beside == AFTER_IT:
            await asyncio.sleep(0)
        self.now += self.beside if self.open else 2.0
        if on_token is not None:
            on_token("hello")
        return Answer(text="hello")


def length(request: ModelRequest) -> int:
    return sum(len(message["content"]) for message in request.messages)


async def begun(times: int = 9) -> None:
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


def near(**how: Any) -> tuple[ModelForOne, SideWork, Any]:
    slow = ModelForOne(50.0, is_near=True, **how)
    return slow, SideWork(clock=lambda: slow.now), cast(Model, slow)


async def test_a_near_model_serves_one_at_a_time_until_it_has_shown_otherwise() -> None:
    slow, work, model = near()
    fold = asyncio.create_task(work.aside(model, FOLD))
    await begun()
    assert slow.open == 1, "nobody waits"
    await work.answer(model, HELLO, None)
    assert slow.now == 2.0, "the first answer of all had it given up"
    slow.beside = 2.0
    with work.held_back():
        for _ in range(2):
            await work.answer(model, HELLO, None)
    slow.now += PATIENCE_SECONDS
    await work.answer(model, HELLO, None)  # gives it up for the last time
    await begun()
    for _ in range(2):
        assert (slow.open, work.slows_answers) == (1, True)
        await work.answer(model, HELLO, None)
    assert not work.slows_answers, "as fast beside it"
    slow.folds[-1].set()
    await fold
    other = asyncio.create_task(work.aside(cast(Model, ModelForOne(50.0, is_near=True)), FOLD))
    await begun()
    assert work.slows_answers, "of another model nothing is known"
    other.cancel()


async def test_a_fold_begins_a_while_after_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.agent.models.side_work.PAUSE", 3.0)
    loop, passed = asyncio.get_running_loop(), 0.0
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + passed)
    slow, work, model = near()
    await work.answer(model, HELLO, None)
    fold = asyncio.create_task(work.aside(model, FOLD))
    passed = 5.0
    await begun()
    await work.answer(model, HELLO, None)
    passed = 10.0
    await begun()
    assert slow.open == 0
    passed = 12.0
    await begun()
    assert slow.open == 1
    slow.folds[-1].set()
    await fold


@pytest.mark.parametrize(("reads", "seconds"), [(0.004, 0.52), (0.0001, 0.3), (0.1, 13.0)])
async def test_a_near_model_reads_a_fold_in_steps_of_less_than_half_a_second(reads: float, seconds: float) -> None:
    slow, work, model = near(reads=reads)
    fold = asyncio.create_task(work.aside(model, FOLD))
    await begun(60)
    assert slow.open == 1
    sizes = [0, *map(length, slow.parts), length(FOLD)]
    assert max(after - before for before, after in pairwise(sizes)) * reads <= seconds
    assert len(sizes) < 4_000 / LEAST_STEP
    texts = ["".join(message["content"] for message in part.messages).rstrip("…") for part in slow.parts]
    assert all("".join(m["content"] for m in FOLD.messages).startswith(text) for text in texts)
    assert {part.messages[1]["role"] for part in slow.parts} == {"user"}
    slow.folds[-1].set()
    await fold
