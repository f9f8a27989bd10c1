"""Lets the model's work behind the conversations give way to people, where that makes their answers faster: a model on a machine of one's own
often serves one request at a time, and an answer waits for a whole fold.

Where answers are as fast beside a fold as without one, nothing waits for anything. Each process knows of its own requests.
"""

import asyncio
import contextlib
import statistics
import time
from collections import deque
from collections.abc import Callable

from gateway.agent.models.interface import Answer, Model, ModelRequest, OnToken, Shown

SLOWER, LEAST_SECONDS = 1.5, 0.5
"""An answer is slower beside a fold when its first word takes this many times as long, and at least so much longer."""
SAMPLES = 2
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
        """Asks for an answer to somebody. Gives up side work that would slow it; it is begun again later."""
        began, beside, first = self._clock(), self._working > 0, None

        def heard(token: Shown) -> None:
            nonlocal first
            first = first or self._clock()
            if on_token is not None:
                on_token(token)

        if self.slows_answers and beside:
            for task in self._may_be_given_up:
                task.cancel()
        self._answering += 1
        self._idle.clear()
        try:
            answer = await model.ask(request, heard)
        finally:
            self._answering -= 1
            if not self._answering:
                self._idle.set()
        if not (beside and self.slows_answers):  # what was given up slowed nothing
            (self._beside if beside else self._alone).append((first or self._clock()) - began)
        return answer

    async def aside(self, model: Model, request: ModelRequest) -> Answer:
        """Asks for something that nobody waits for. Where it would slow answers, it waits until nobody is answered, for PATIENCE_SECONDS at most,
        and begins anew when somebody writes."""
        end = self._clock() + PATIENCE_SECONDS
        while True:
            if self.slows_answers:
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
            finally:
                self._working -= 1
                self._may_be_given_up.discard(task)
