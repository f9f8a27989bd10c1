"""The loop on a journal in memory: what it does next, and in which order."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from gateway.agent.models.interface import Answer, ContextOverflow, InputTooLong, ToolCall
from gateway.runs.loop import UNKNOWN, LoopEnd, Result, Situation, advance
from sessions.errors import LeaseLost
from sessions.records import Message, MessageState, Role


def call_row(number: int, name: str, state: MessageState = MessageState.PENDING) -> Message:
    return Message(
        id=number,
        session_id="s",
        run_id="r",
        role=Role.TOOL,
        content=None,
        tool_calls=None,
        tool_call_id=f"c{number}",
        tool_name=name,
        token_count=None,
        created_at=0,
        sender=None,
        attachments=None,
        state=state,
        idem_key=None,
    )


@dataclass
class Journal:
    """`answers` come one after the other. Names of tools tell what they are: peek_, ask_, theirs_, repeat_."""

    answers: list[Answer | Exception]
    unread: int = 0
    limit: str | None = None
    calls: list[Message] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0
    is_parked: bool = False
    draining: bool = False
    drain_after: str = ""

    def tell(self, what: str) -> None:
        self.told.append(what)
        self.draining = self.draining or what == self.drain_after

    async def refresh(self) -> None:
        pass

    def situation(self) -> Situation:
        return Situation(calls=list(self.calls), unread=bool(self.unread), limit=self.limit)

    async def take_in_new_messages(self) -> None:
        self.unread = 0
        self.tell("take in")

    async def ask_model(self) -> Answer:
        self.tell("ask")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def commit_answer(self, answer: Answer) -> None:
        self.calls = [call_row(number, call.name) for number, call in enumerate(answer.tool_calls)]

    async def run_tool(self, call: Message) -> Result | None:
        name = call.tool_name or ""
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        self.tell(name)
        if name == "lost":
            raise LeaseLost("gone")
        if name.startswith("ask_"):
            self.is_parked = True
            return None
        return Result(content=name)

    async def done(self, call: Message, result: Result) -> None:
        self.calls = [other for other in self.calls if other.id != call.id]
        if result.state is MessageState.UNKNOWN:
            self.tell(result.content)

    async def finish(self, answer: Answer) -> bool:
        self.tell("finish")
        return not self.unread

    async def end_over_budget(self, limit: str) -> None:
        self.tell(f"over {limit}")

    async def hand_over_calls(self) -> None:
        self.tell("hand over")

    def is_callers(self, call: Message) -> bool:
        return (call.tool_name or "").startswith("theirs_")

    def may_run_beside_others(self, call: Message) -> bool:
        return (call.tool_name or "").startswith("peek_")

    def may_repeat(self, call: Message) -> bool:
        return (call.tool_name or "").startswith("repeat_")


def using(*names: str) -> Answer:
    return Answer(text="", tool_calls=tuple(ToolCall(id=name, name=name, arguments="{}") for name in names))


DONE = Answer(text="done")


async def test_an_answer_without_tools_ends_the_run():
    journal = Journal([DONE])
    assert await advance(journal) is LoopEnd.FINISHED
    assert journal.told == ["ask", "finish"]


async def test_what_is_unread_is_folded_before_the_next_call():
    journal = Journal([using("a"), DONE], unread=1)
    assert await advance(journal) is LoopEnd.FINISHED
    assert journal.told == ["take in", "ask", "a", "ask", "finish"]


async def test_a_run_goes_on_when_something_came_in_at_its_end():
    journal = Journal([DONE, DONE])

    async def finish(_: Answer) -> bool:
        journal.unread = 1 - journal.told.count("take in")
        return not journal.unread

    journal.finish = finish
    assert await advance(journal) is LoopEnd.FINISHED
    assert journal.told == ["ask", "take in", "ask"]


async def test_tools_that_only_look_run_side_by_side_and_the_others_alone_and_in_order():
    journal = Journal([using("peek_1", "peek_2", "a", "b", "peek_3"), DONE])
    await advance(journal)
    assert journal.most_at_once == 2
    assert journal.told[1:-2] == ["peek_1", "peek_2", "a", "b", "peek_3"]


async def test_a_lost_lease_in_one_of_several_ends_it_as_that():
    with pytest.raises(LeaseLost):
        await advance(Journal([], calls=[call_row(0, "lost"), call_row(1, "peek_1")]))


async def test_what_was_begun_before_a_crash_is_not_repeated_unless_it_may_be():
    begun = [call_row(0, "pay", MessageState.STARTED), call_row(1, "repeat_1", MessageState.STARTED)]
    journal = Journal([DONE], calls=begun)
    await advance(journal)
    assert journal.told == [UNKNOWN, "repeat_1", "ask", "finish"]


async def test_a_question_parks_the_run_and_what_follows_waits():
    journal = Journal([using("a", "ask_1", "b")])
    assert await advance(journal) is LoopEnd.PARKED
    assert journal.told == ["ask", "a", "ask_1"]
    assert [call.tool_name for call in journal.calls] == ["ask_1", "b"]


async def test_a_limit_is_looked_at_only_before_a_call():
    journal = Journal([], limit="3 steps", calls=[call_row(0, "a")], unread=1)
    assert await advance(journal) is LoopEnd.OVER_BUDGET
    assert journal.told == ["a", "take in", "over 3 steps"]


async def test_the_callers_tools_are_left_to_it():
    journal = Journal([using("theirs_1", "a")])
    assert await advance(journal) is LoopEnd.HANDED_OVER
    assert journal.told == ["ask", "a", "hand over"]


@pytest.mark.parametrize(("after", "told"), [("a", ["ask", "a"]), ("ask", ["ask"])])
async def test_draining_stops_between_two_steps(after: str, told: list[str]):
    journal = Journal([using("a", "b")], drain_after=after)
    assert await advance(journal) is LoopEnd.DRAINED
    assert journal.told == told


async def test_a_request_that_is_too_long_is_tried_with_less():
    journal = Journal([ContextOverflow("too long")] * 3 + [DONE])
    assert await advance(journal) is LoopEnd.FINISHED
    assert journal.told == ["ask", "ask", "ask", "ask", "finish"]
    with pytest.raises(ContextOverflow):
        await advance(replace(journal, answers=[ContextOverflow("too long")] * 9))
    with pytest.raises(InputTooLong):
        await advance(replace(journal, answers=[InputTooLong("too long"), DONE]))
