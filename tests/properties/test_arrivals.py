"""Messages at every moment of a run: each ends in exactly one outcome, in order, and the transcript is valid all the time."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Connection, select

from gateway.agent.prompt import Material, build
from gateway.agent.tokens import Tokens
from gateway.agent.window import Window
from sessions import runs, store
from sessions.db import open_database
from sessions.db.schema import inbox, outbox
from sessions.errors import LeaseLost
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Content
from sessions.records import InboxMode, InboxRow, Message, MessageState, Role, Route, Run, RunKind, RunStatus
from sessions.runs import ModelAnswer, Opening
from tests.conftest import HandClock
from tests.fakes.model_rules import Speaks, refuse

KEY = "agent:main:telegram:dm"
DM = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7"))
LEASE_MS = 30_000
DONE = "done"


def has_worker(machine: "Arrivals") -> bool:
    return machine.run is not None


def has_calls(machine: "Arrivals") -> bool:
    return machine.run is not None and bool(machine.calls())


def may_answer(machine: "Arrivals") -> bool:
    return machine.run is not None and not machine.calls()


class Arrivals(RuleBasedStateMachine):
    """One chat and its worker, which crashes, is stopped, asks, and ends in every way. `run` is what the worker holds."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.database = open_database(Path(self.folder.name))
        self.clock = HandClock()
        self.said: list[tuple[str, InboxMode]] = []
        self.run: Run | None = None
        self.lost: list[Run] = []
        self.call_number = 0

    # --- looking ---

    def calls(self) -> list[Message]:
        assert self.run is not None
        return self.database.read_now(runs.open_calls, self.run)

    def active(self) -> Run | None:
        return self.database.read_now(runs.active, KEY)

    def write(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        return self.database.write_now(work, *args, **kwargs)

    def held(self) -> Run:
        assert self.run is not None
        return self.run

    def let_go(self) -> None:
        self.lost.append(self.held())
        self.run = None

    # --- what comes in ---

    def accept(self, text: str, mode: InboxMode) -> runs.Accepted:
        route = DM if mode is InboxMode.TAKE_IN else None
        new = InboxRow(dedup_key=text, session_key=KEY, messages=[Message(content=text)], mode=mode, route=route)
        return self.write(runs.accept, new, Opening(), self.clock.tick())

    @rule(mode=st.sampled_from([InboxMode.TAKE_IN, InboxMode.TAKE_IN, InboxMode.QUEUE]), times=st.integers(1, 2))
    def arrives(self, mode: InboxMode, times: int) -> None:
        self.said.append((f"m{len(self.said)}", mode))
        fresh = [self.accept(*self.said[-1]).fresh for _ in range(times)]
        assert fresh == [True, False][:times]

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def arrives_again(self, data: st.DataObject) -> None:
        assert not self.accept(*data.draw(st.sampled_from(self.said))).fresh

    @rule()
    def is_stopped(self) -> None:
        active = self.active()
        if active is not None:
            assert self.write(runs.stop, active.id, self.clock.tick())
            assert not self.write(runs.stop, active.id, self.clock.tick())
            if self.run is not None:
                self.let_go()

    @rule()
    def is_answered_by_a_button(self) -> None:
        active = self.active()
        if active is not None and active.status is RunStatus.WAITING:
            assert self.write(runs.answer, active.id, "button", "Ann", self.clock.tick())

    # --- what the worker does ---

    def take(self, conn: Connection, owner: str) -> Run | None:
        run = runs.claim(conn, KEY, owner, Opening(), self.clock.tick(), lease_ms=LEASE_MS)
        if run is not None:
            runs.take_in_new_messages(conn, run, self.clock())
        return run

    @precondition(lambda self: self.run is None)
    @rule()
    def takes(self) -> None:
        self.run = self.write(self.take, "me")
        if self.run is None and (active := self.active()) and active.status is RunStatus.RUNNING:
            self.clock.tick(LEASE_MS + 1)  # it was another's, who has crashed
            self.run = self.write(self.take, "me")
            assert self.run is not None

    @precondition(has_worker)
    @rule()
    def crashes(self) -> None:
        self.let_go()

    @precondition(has_worker)
    @rule()
    def is_overtaken_when_its_lease_has_run_out(self) -> None:
        old = self.held()
        another = f"another{len(self.lost)}"
        assert self.write(self.take, another) is None
        self.clock.tick(LEASE_MS + 1)
        self.run = self.write(self.take, another)
        self.lost.append(old)

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def writes_too_late(self, data: st.DataObject) -> None:
        lost = data.draw(st.sampled_from(self.lost))
        current = self.database.read_now(runs.get, lost.id)
        if current.fence == lost.fence and current.status is RunStatus.RUNNING:
            return  # it has crashed, and nobody has taken over yet
        with pytest.raises(LeaseLost):
            self.write(
                runs.finish,
                lost,
                ModelAnswer(text="late"),
                self.clock.tick(),
                step=current.steps,
                reply=Content(text="late"),
            )

    @precondition(may_answer)
    @rule(count=st.integers(1, 3), twice=st.booleans())
    def asks_for_tools(self, count: int, twice: bool) -> None:
        made: list[dict[str, Any]] = []
        for _ in range(count):
            self.call_number += 1
            function = {"name": "tool", "arguments": "{}"}
            made.append({"id": f"c{self.call_number}", "type": "function", "function": function})
        step = self.database.read_now(runs.get, self.held().id).steps
        for _ in range(1 + twice):  # an ambiguous commit is repeated
            rows = self.write(
                runs.answered, self.held(), ModelAnswer(text="", tool_calls=made), self.clock.tick(), step=step
            )
            assert [row.tool_call_id for row in rows] == [call["id"] for call in made]

    @precondition(has_calls)
    @rule(which=st.integers(0, 2), times=st.integers(0, 2))
    def uses_a_tool(self, which: int, times: int) -> None:
        call = self.calls()[which % len(self.calls())]
        self.write(runs.tool_started, self.held(), call.id, self.clock.tick())
        for _ in range(times):  # not at all: it has only begun
            self.write(runs.tool_done, self.held(), call.id, DONE, self.clock.tick())

    @precondition(has_calls)
    @rule(which=st.integers(0, 2))
    def asks_a_human(self, which: int) -> None:
        call = self.calls()[which % len(self.calls())]
        if self.write(runs.park, self.held(), call, "which?", self.clock.tick(), card=Content(text="which?")):
            self.let_go()
        else:  # something is unread, which may be the answer already
            self.write(runs.tool_done, self.held(), call.id, "[not asked]", self.clock.tick())

    @precondition(may_answer)
    @rule()
    def folds(self) -> None:
        self.write(runs.take_in_new_messages, self.held(), self.clock.tick())

    @precondition(may_answer)
    @rule(twice=st.booleans())
    def finishes(self, twice: bool) -> None:
        run, step = self.held(), self.database.read_now(runs.get, self.held().id).steps
        ended = [
            self.write(
                runs.finish, run, ModelAnswer(text="end"), self.clock.tick(), step=step, reply=Content(text="end")
            )
            for _ in range(1 + twice)
        ]
        assert len(set(ended)) == 1
        if ended[0]:
            self.let_go()

    @precondition(has_worker)
    @rule()
    def fails(self) -> None:
        self.write(runs.fail, self.held(), "broken", self.clock.tick(), notice=Content(text="failed"))
        self.let_go()

    @precondition(has_worker)
    @rule()
    def is_drained(self) -> None:
        attempts = self.database.read_now(runs.get, self.held().id).attempts
        self.write(runs.give_back, self.held().id, self.held().fence)
        self.run = self.write(self.take, "next")
        assert self.run is not None
        assert self.run.attempts == attempts

    # --- what always holds ---

    @invariant()
    def the_transcript_is_valid(self) -> None:
        waiting: list[str] = []
        for message in self.database.read_now(transcript):
            if message.role is Role.TOOL:
                assert waiting.pop(0) == message.tool_call_id
                assert (message.content is not None) == (message.state in {MessageState.DONE, MessageState.UNKNOWN})
                continue
            assert not waiting
            waiting = [call["id"] for call in message.tool_calls or ()]
        assert not waiting

    @invariant()
    def what_goes_to_the_model_is_valid(self) -> None:
        rows = self.database.read_now(transcript)
        if any(message.role is Role.USER for message in rows):
            run_id = next((m.run_id for m in reversed(rows) if m.run_id), "")
            seen = {"history": rows, "message_count": len(rows), "run_id": run_id}
            request = build(
                Material(system_prompt="x", gateway_blocks=lambda _: ("y",), **seen), Tokens(), window=Window()
            ).request
            assert refuse({"messages": list(request.messages), "model": "m"}, Speaks()) is None

    @invariant()
    def nothing_follows_an_open_call(self) -> None:
        states = [message.state for message in self.database.read_now(transcript)]
        opened = next(
            (i for i, state in enumerate(states) if state in {MessageState.PENDING, MessageState.STARTED}), None
        )
        assert opened is None or self.active() is not None

    @invariant()
    def what_was_taken_in_is_there_once_and_in_order(self) -> None:
        messages = self.database.read_now(transcript)
        heard = [str(message.content) for message in messages if message.role is Role.USER]
        answers = [str(message.content) for message in messages if message.role is Role.TOOL]
        outcomes = self.database.read_now(outcomes_of)
        assert set(outcomes) == {text for text, _ in self.said}
        for text, outcome in outcomes.items():
            assert (heard.count(text), answers.count(text)) == {"folded": (1, 0), "answered": (0, 1), None: (0, 0)}[
                outcome
            ]
        for mode in InboxMode:
            said = [text for text, its in self.said if its is mode and text in heard]
            assert [text for text in heard if text in said] == said

    @invariant()
    def nobody_waits_for_an_answer_that_is_here(self) -> None:
        active = self.active()
        if active is not None and active.status is RunStatus.WAITING and active.kind is RunKind.CHAT:
            assert None not in self.database.read_now(outcomes_of).values()

    @invariant()
    def every_end_is_sent_once(self) -> None:
        keys = self.database.read_now(lambda conn: list(conn.scalars(select(outbox.c.dedup_key))))
        assert not keys or max(Counter(keys).values()) == 1
        assert "late" not in self.database.read_now(lambda conn: list(conn.scalars(select(outbox.c.body))))

    def teardown(self) -> None:
        """Whatever happened: a worker that does nothing but its duty settles everything."""
        try:
            for _ in range(200):
                self.is_answered_by_a_button()
                if self.run is None:
                    self.takes()
                if self.run is None and self.active() is None:
                    break
                while self.run is not None:
                    while self.calls():
                        self.uses_a_tool(0, 1)
                    self.finishes(twice=False)
            assert None not in self.database.read_now(outcomes_of).values()
            self.the_transcript_is_valid()
            self.what_was_taken_in_is_there_once_and_in_order()
        finally:
            self.database.close()
            self.folder.cleanup()


def transcript(conn: Connection) -> list[Message]:
    session = store.active(conn, KEY)
    return store.read_messages(conn, session.id) if session else []


def outcomes_of(conn: Connection) -> dict[str, str | None]:
    return {row.dedup_key: row.outcome for row in conn.execute(select(inbox))}


Arrivals.TestCase.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestArrivals = Arrivals.TestCase
