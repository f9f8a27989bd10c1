"""The agent loop. It knows no platform and no store: every effect is handed in as `Steps`.

Each round looks at the journal and does the next thing, so a run that was cut off anywhere goes on by being started again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.agent.models.interface import Answer, ContextOverflow
from sessions.records import Message, MessageState

UNKNOWN = "[outcome unknown: the gateway was interrupted while this ran; check before you repeat it]"
_SHRINKS = 6


class LoopEnd(StrEnum):
    FINISHED = "finished"
    PARKED = "parked"
    OVER_BUDGET = "over_budget"
    HANDED_OVER = "handed_over"  # to the caller, whose tools these are
    DRAINED = "drained"
    ASLEEP = "asleep"  # until the model can be reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Where the run stands, in one consistent read. `limit`: the budget that is used up, in words for a person."""

    calls: Sequence[Message] = ()
    unread: bool = False
    limit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a tool gave back."""

    content: str = ""
    state: MessageState = MessageState.DONE


class Steps(Protocol):
    """One run and everything that may be done to it. A method that changes something has committed when it returns, or raises LeaseLost."""

    async def situation(self) -> Situation: ...

    async def take_in_new_messages(self) -> None: ...

    async def ask_model(self) -> Answer:
        """Asks the model once. Raises ContextOverflow when the request was too long and the next one will be smaller, InputTooLong when
        none could be.
        """
        ...

    async def commit_answer(self, answer: Answer) -> None: ...

    async def run_tool(self, call: Message) -> Result | None:
        """Runs the tool. Returns None when a human is asked, and the run may be parked."""
        ...

    async def done(self, call: Message, result: Result) -> None: ...

    async def finish(self, answer: Answer) -> bool:
        """Ends the run with this answer. Returns False when something came in meanwhile and the run goes on."""
        ...

    async def end_over_budget(self, limit: str) -> None: ...

    async def hand_over_calls(self) -> None: ...

    def is_callers(self, call: Message) -> bool: ...

    def may_run_beside_others(self, call: Message) -> bool: ...

    def may_repeat(self, call: Message) -> bool: ...

    @property
    def is_parked(self) -> bool: ...

    @property
    def draining(self) -> bool: ...


async def advance(work: Steps) -> LoopEnd:
    """Drives a run until it ends, waits for a human, or the process stops. Every return is at a step's end."""
    while not work.draining:
        situation = await work.situation()
        # Calls come first: endpoints refuse a transcript in which a call has no result. A new message comes before the limit: what a
        # person has sent is in the journal even when the budget lets nothing answer it.
        if situation.calls:
            if all(work.is_callers(call) for call in situation.calls):
                await work.hand_over_calls()
                return LoopEnd.HANDED_OVER
            await _run_calls([call for call in situation.calls if not work.is_callers(call)], work)
            if work.is_parked:
                return LoopEnd.PARKED
        elif situation.unread:
            await work.take_in_new_messages()
        elif situation.limit is not None:
            await work.end_over_budget(situation.limit)
            return LoopEnd.OVER_BUDGET
        else:
            answer = await _ask(work)
            if answer.tool_calls:
                await work.commit_answer(answer)
            elif await work.finish(answer):
                return LoopEnd.FINISHED
    return LoopEnd.DRAINED


async def _ask(work: Steps) -> Answer:
    """Asks the model, and makes a request that is too long again with less, down to what the endpoint takes."""
    for _ in range(_SHRINKS):
        try:
            return await work.ask_model()
        except ContextOverflow:
            continue
    return await work.ask_model()


async def _run_calls(calls: Sequence[Message], work: Steps) -> None:
    """Runs calls that only read side by side, and the others one after the other, in the model's order."""
    beside: list[Message] = []
    for call in calls:
        if work.may_run_beside_others(call):
            beside.append(call)
            continue
        await _run_together(beside, work)
        beside = []
        await _run_call(call, work)
        if work.is_parked or work.draining:
            return
    await _run_together(beside, work)


async def _run_together(calls: Sequence[Message], work: Steps) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(_run_call(call, work))
    except ExceptionGroup as errors:  # callers catch LeaseLost and the like, which a group would hide
        raise errors.exceptions[0] from None


async def _run_call(call: Message, work: Steps) -> None:
    # It was started before a crash or a takeover, and nobody knows whether it did its work.
    if call.state is MessageState.STARTED and not work.may_repeat(call):
        await work.done(call, Result(content=UNKNOWN, state=MessageState.UNKNOWN))
        return
    result = await work.run_tool(call)
    if result is not None:
        await work.done(call, result)
