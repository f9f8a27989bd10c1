"""Lets folds and other work of the model behind the conversations wait for answers, where answers would wait for them.

A model on a machine of one's own often serves one request at a time, and an answer waits for a whole fold.
A model that is near counts as one of these until it has shown otherwise, any other until it has shown that it is one. Where answers are as fast
beside a fold as without one, nothing waits for anything. Each process knows of its own requests.
"""

import asyncio
import contextlib
import statistics
import time
from collections import deque
from collections.abc import Callable, Generator

from gateway.agent.models.interface import Answer, Model, ModelRefused, ModelRequest, OnToken, Shown

SLOWER, LEAST_SECONDS = 1.5, 0.5
"""An answer is slower beside a fold when its first word takes this many times as long, and at least so much longer."""
SAMPLES = 2
FAR_SLOWER, LONG_SECONDS = 3.0, 1.0
"""A fold is given up when the answer beside it has no first word after this many times the usual time, and so many seconds more. That holds also
before enough was measured to know whether folds slow answers."""
PATIENCE_SECONDS = 120.0
"""The longest time that a fold waits for a moment in which nobody is answered; then it is done all the same, and not given up."""
PAUSE, LONGEST_PAUSE_SECONDS = 3.0, 15.0
"""A fold begins when nobody has been answered for so many times as long as a first word usually takes: people write the next message."""
FIRST_STEP, LEAST_STEP, STEP_SECONDS = 128, 96, 0.4
"""llama.cpp cannot be stopped while it reads a prompt, and keeps what it has read. So a near model gets a fold's prompt in steps, and an answer waits
for one step at most. Characters of the first step, of the shortest one, and the seconds that a step is to take."""


class SideWork:
    """Asks the model for answers to people, and for what is done beside them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answering = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._pause: asyncio.TimerHandle | None = None
        self._working = 0
        self._may_be_given_up: set[asyncio.Task[Answer]] = set()
        self._model: Model | None = None
        self._step = FIRST_STEP
        self._alone, self._beside = deque[float](maxlen=9), deque[float](maxlen=5)

    @property
    def slows_answers(self) -> bool:
        """Returns whether the first words of answers come later beside side work: as measured, else where the model is near."""
        if min(len(self._alone), len(self._beside)) < SAMPLES:
            return self._model is not None and self._model.is_near
        alone, beside = statistics.median(self._alone), statistics.median(self._beside)
        return beside > SLOWER * alone + LEAST_SECONDS

    async def answer(self, model: Model, request: ModelRequest, on_token: OnToken | None) -> Answer:
        """Asks for an answer to somebody, and measures how long its first word takes."""
        self._meet(model)
        began, first = self._clock(), None
        beside = self._working - (len(self._may_be_given_up) if self.slows_answers else 0)
        # An answer for which side work is given up waits for the end of it: that is neither.
        measured = self._beside if beside else None if self._working else self._alone

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
                late = asyncio.get_running_loop().call_later(FAR_SLOWER * self._usual + LONG_SECONDS, end_if_silent)
                stack.callback(late.cancel)
            answer = await model.ask(request, heard)
            if measured is not None:
                measured.append((first or self._clock()) - began)
        return answer

    def _meet(self, model: Model) -> None:
        """Forgets what was measured of another model."""
        if model is not self._model:
            self._model, self._step = model, FIRST_STEP
            self._alone.clear()
            self._beside.clear()

    @property
    def _usual(self) -> float:
        """Seconds to the first word of an answer, alone; 0 before the first."""
        return statistics.median(self._alone or [0.0])

    @contextlib.contextmanager
    def held_back(self) -> Generator[None]:
        """While the block lasts, somebody waits for the model, also during a tool's call: side work that would slow it is given up, and begun again
        later."""
        if self.slows_answers:
            self._give_up()
        self._answering += 1
        self._quiet.clear()
        if self._pause is not None:
            self._pause.cancel()
        try:
            yield
        finally:
            self._answering -= 1
            if not self._answering:
                pause = min(PAUSE * self._usual, LONGEST_PAUSE_SECONDS)
                self._pause = asyncio.get_running_loop().call_later(pause, self._quiet.set)

    def _give_up(self) -> None:
        for task in self._may_be_given_up:
            task.cancel()

    async def aside(self, model: Model, request: ModelRequest) -> Answer:
        """Asks for something that nobody waits for. Where that would slow answers, it waits until nobody has been answered for a while, for
        PATIENCE_SECONDS at most, and begins anew when somebody writes. The request begins with a system message and a user's."""
        self._meet(model)
        end, gave_way = self._clock() + PATIENCE_SECONDS, False
        while True:
            if self.slows_answers or gave_way:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._quiet.wait(), max(0.0, end - self._clock()))
            gives_way = self._clock() < end
            in_steps = gives_way and self.slows_answers and model.is_near
            task = asyncio.create_task(self._in_steps(model, request) if in_steps else model.ask(request))
            if gives_way:
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

    async def _in_steps(self, model: Model, request: ModelRequest) -> Answer:
        """Asks with a longer and longer part of the prompt, for one token each, and then with the whole."""
        system, asked = (str(message["content"]) for message in request.messages[:2])
        read = self._step
        with contextlib.suppress(ModelRefused):  # it may want the whole
            while read < len(system) + len(asked):
                part = [
                    {"role": "system", "content": system[:read]},
                    {"role": "user", "content": asked[: max(0, read - len(system))] or "…"},
                ]
                began = self._clock()
                usage = (await model.ask(ModelRequest(messages=part, model=request.model, max_output_tokens=1))).usage
                new = (usage.input_tokens - usage.cached_tokens) / max(usage.input_tokens, 1)
                if new * read > self._step / 2:  # not of what it had read before
                    faster = STEP_SECONDS / max(self._clock() - began, 0.001)
                    self._step = max(LEAST_STEP, int(self._step * min(faster, 2.0)))
                read += self._step
        return await model.ask(request)
