"""The agent loop: decides what a run does next. `ActiveRun` does it, and has committed it when it returns.

Each round looks at the journal and does the next thing, so a run that was cut off anywhere goes on by being started again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gateway.agent.models.interface import Answer, ContextOverflow
from sessions.records import Message, MessageState

if TYPE_CHECKING:
    from gateway.runs.run import ActiveRun

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


async def advance(work: "ActiveRun") -> LoopEnd:
    """Drives a run until it ends, waits for a human, or the process stops. Every return is at a step's end."""
    while not work.draining:
        await work.refresh()
        situation = work.situation()
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
            answer = await _ask_model(work)
            if answer.tool_calls:
                await work.commit_answer(answer)
            elif await work.finish(answer):
                return LoopEnd.FINISHED
    return LoopEnd.DRAINED


async def _ask_model(work: "ActiveRun") -> Answer:
    """Asks the model, and makes a request that is too long again with less, down to what the endpoint takes."""
    for _ in range(_SHRINKS):
        try:
            return await work.ask_model()
        except ContextOverflow:
            continue
    return await work.ask_model()


async def _run_calls(calls: Sequence[Message], work: "ActiveRun") -> None:
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


async def _run_together(calls: Sequence[Message], work: "ActiveRun") -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(_run_call(call, work))
    except ExceptionGroup as errors:  # callers catch LeaseLost and the like, which a group would hide
        raise errors.exceptions[0] from None


async def _run_call(call: Message, work: "ActiveRun") -> None:
    # It was started before a crash or a takeover, and nobody knows whether it did its work.
    if call.state is MessageState.STARTED and not work.may_repeat(call):
        await work.done(call, Result(content=UNKNOWN, state=MessageState.UNKNOWN))
        return
    result = await work.run_tool(call)
    if result is not None:
        await work.done(call, result)
