"""Lets the model's work behind the conversations give way to people, where that makes their answers faster: a model on a machine of one's own
often serves one request at a time, and an answer waits for a whole fold.

Where answers are as fast beside a fold as without one, nothing waits for anything. Each process knows of its own requests.
"""

import asyncio
import contextlib
import statistics
import time
from collections import deque
from collections.abc import Callable, Generator

from gateway.agent.models.interface import Answer, Model, ModelRequest, OnToken, Shown

SLOWER, LEAST_SECONDS = 1.5, 0.5
"""An answer is slower beside a fold when its first word takes this many times as long, and at least so much longer."""
SAMPLES = 2
FAR_SLOWER, LONG_SECONDS = 3.0, 1.0
"""A fold is given up when the answer beside it has no first word after this many times the usual time, and so many seconds more. That holds also
before enough was measured to know whether folds slow answers."""
PATIENCE_SECONDS = 120.0
"""The longest time that a fold waits for a moment in which nobody is answered; then it is done all the same, and not given up."""


class SideWork:
    """Asks the model for answers to people, and for what is done beside them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answering = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._working = 0
        self._may_be_given_up: set[asyncio.Task[Answer]] = set()
        self._alone, self._beside = deque[float](maxlen=9), deque[float](maxlen=5)

    @property
    def slows_answers(self) -> bool:
        """Returns whether the first words of answers were measured to come later beside side work."""
        if min(len(self._alone), len(self._beside)) < SAMPLES:
            return False
        alone, beside = statistics.median(self._alone), statistics.median(self._beside)
        return beside > SLOWER * alone + LEAST_SECONDS

    async def answer(self, model: Model, request: ModelRequest, on_token: OnToken | None) -> Answer:
        """Asks for an answer to somebody, and measures how long its first word takes."""
        began, beside, first = self._clock(), self._working > 0, None

        def heard(token: Shown) -> None:
            nonlocal first
            first = first or self._clock()
            if on_token is not None:
                on_token(token)

        def end_if_silent() -> None:
            if first is None:
                self._give_up()

        with self.held_back(), contextlib.ExitStack() as stack:
            if beside and self._alone:
                usual = statistics.median(self._alone)
                late = asyncio.get_running_loop().call_later(FAR_SLOWER * usual + LONG_SECONDS, end_if_silent)
                stack.callback(late.cancel)
            answer = await model.ask(request, heard)
        if not self.slows_answers:  # from then on what was given up would be among the measurements
            (self._beside if beside else self._alone).append((first or self._clock()) - began)
        return answer

    @contextlib.contextmanager
    def held_back(self) -> Generator[None]:
        """While the block lasts, somebody waits for the model, also during a tool's call: side work that would slow it is given up, and begun again
        later."""
        if self.slows_answers:
            self._give_up()
        self._answering += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._answering -= 1
            if not self._answering:
                self._idle.set()

    def _give_up(self) -> None:
        for task in self._may_be_given_up:
            task.cancel()

    async def aside(self, model: Model, request: ModelRequest) -> Answer:
        """Asks for something that nobody waits for. Where it would slow answers, it waits until nobody is answered, for PATIENCE_SECONDS at most,
        and begins anew when somebody writes."""
        end, gave_way = self._clock() + PATIENCE_SECONDS, False
        while True:
            if self.slows_answers or gave_way:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._idle.wait(), max(0.0, end - self._clock()))
            task = asyncio.create_task(model.ask(request))
            if self._clock() < end:
                self._may_be_given_up.add(task)
            self._working += 1
            try:
                return await task
            except asyncio.CancelledError:
                # Either a person's message has ended the task, or somebody ends this one.
                if (current := asyncio.current_task()) is not None and current.cancelling():
                    task.cancel()
                    raise
                gave_way = True
            finally:
                self._working -= 1
                self._may_be_given_up.discard(task)
