"""Messages at every moment of a run, crashes and stops between any two transitions: each ends in one outcome, and what goes to the
model is always a valid transcript."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Connection, select

from gateway.agent.context import Material, Window, build
from gateway.agent.tokens import Tokens
from sessions import runs, store
from sessions.db import open_database
from sessions.db.schema import inbox
from sessions.errors import LeaseLost
from sessions.inbox import NewInbox
from sessions.keys import Address, ChatKind, Platform
from sessions.records import Message, MessageState, Role, Route, Run, RunStatus
from sessions.runs import Opening, Said
from tests.fakes.model_replies import call
from tests.fakes.model_rules import Speaks, refuse

KEY = "agent:main:telegram:dm"
ROUTE = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7"))


class RunLife(RuleBasedStateMachine):
    """The worker's side holds `run`, as it was claimed; a crash makes it forget."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.database = open_database(Path(self._folder.name))
        self.run: Run | None = None
        self.now = 1_000
        self.said: list[str] = []
        self.calls = 0

    def teardown(self) -> None:
        self.run = None
        for _ in range(50):
            self._go_on()
        rows = self.database.read_now(lambda conn: list(conn.execute(select(inbox))))
        assert len(rows) == len(self.said)
        assert all(row.outcome is not None and row.run_id for row in rows)
        heard = [m.content for m in self._messages() if m.role is Role.USER or (m.content or "").startswith("said")]
        assert sorted(heard) == sorted(self.said)
        self.database.close()
        self._folder.cleanup()

    def _go_on(self) -> None:
        """What a worker does that nothing disturbs."""
        active = self.database.read_now(runs.active, KEY)
        if active is not None and active.status is RunStatus.WAITING:
            self.message()
        self.claim()
        for open_call in self._open():
            self._do(runs.tool_done, open_call.id, "late", self.now)
        self.finish()

    # --- the world -------------------------------------------------------------------------------------------------

    @rule(doubled=st.booleans())
    def message(self, doubled: bool = False) -> None:
        text = f"said {len(self.said)}"
        self.said.append(text)
        new = NewInbox(dedup_key=text, session_key=KEY, messages=[{"content": text}], route=ROUTE)
        for _ in range(1 + doubled):
            self.database.write_now(runs.accept, new, Opening(), self._tick())

    @rule()
    def stop(self) -> None:
        active = self.database.read_now(runs.active, KEY)
        if active is not None:
            assert self.database.write_now(runs.stop, active.id, self._tick())

    @rule()
    def crash(self) -> None:
        self.run = None

    # --- the worker ------------------------------------------------------------------------------------------------

    @rule()
    def claim(self) -> None:
        def take(conn: Connection) -> Run | None:
            run = runs.claim(conn, KEY, "me", Opening(), self.now, lease_ms=1_000)
            if run is not None:
                runs.fold(conn, run, self.now)
            return run

        self._tick()
        self.run = self.database.write_now(take) or self.run

    @precondition(lambda self: self.run)
    @rule()
    def fold(self) -> None:
        self._do(runs.fold, self._tick())

    @precondition(lambda self: self.run and not self._open())
    @rule(count=st.integers(1, 3), again=st.booleans())
    def answer_with_calls(self, count: int, again: bool) -> None:
        made = [call("files", id=f"c{self.calls + i}") for i in range(count)]
        self.calls += count
        step = self._step()
        for _ in range(1 + again):  # a commit whose confirmation was lost is made again
            self._do(runs.answered, Said(text="", tool_calls=made), self._tick(), step=step)

    @precondition(lambda self: self.run and self._open())
    @rule(which=st.integers(0, 2), again=st.booleans())
    def tool(self, which: int, again: bool) -> None:
        row = self._pick(which)
        self._do(runs.tool_started, row.id, self._tick())
        for _ in range(1 + again):
            self._do(runs.tool_done, row.id, "result", self._tick())

    @precondition(lambda self: self.run and self._open())
    @rule(which=st.integers(0, 2))
    def begin_tool(self, which: int) -> None:
        self._do(runs.tool_started, self._pick(which).id, self._tick())

    @precondition(lambda self: self.run and self._open())
    @rule(which=st.integers(0, 2))
    def park(self, which: int) -> None:
        if self._do(runs.park, self._pick(which), "Which?", self._tick()) is True:
            self.run = None

    @precondition(lambda self: self.run and not self._open())
    @rule(again=st.booleans())
    def finish(self, again: bool = False) -> None:
        if self.run is None:
            return
        step, run = self._step(), self.run
        over = self._do(runs.finish, Said(text="answer"), self._tick(), step=step, reply={"text": "answer"})
        if again and over is not None:
            assert self.database.write_now(runs.finish, run, Said(text="answer"), self.now, step=step) is over
        if over:
            self.run = None

    @precondition(lambda self: self.run)
    @rule()
    def fail(self) -> None:
        self._do(runs.fail, "broken", self._tick(), notice={"text": "failed"})
        self.run = None

    @precondition(lambda self: self.run)
    @rule()
    def give_back(self) -> None:
        assert self.run is not None
        self.database.write_now(runs.release, self.run.id, self.run.fence)
        self.run = None

    # --- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def what_goes_to_the_model_is_valid(self) -> None:
        rows = self._messages()
        if not any(message.role is Role.USER for message in rows):
            return
        newest = next((m.run_id for m in reversed(rows) if m.run_id), "")
        material = Material(
            system_prompt="x", notes=(), skills=(), history=rows, message_count=len(rows), run_id=newest or ""
        )
        request = build(material, (), Tokens(), window=Window())
        assert refuse({"messages": list(request.messages), "model": "m"}, Speaks()) is None

    @invariant()
    def nothing_is_written_twice(self) -> None:
        made = [message.tool_call_id for message in self._messages() if message.role is Role.TOOL]
        assert len(set(made)) == len(made)

    @invariant()
    def what_is_closed_stays_closed(self) -> None:
        for message in self._messages():
            if message.role is Role.TOOL and message.state in {MessageState.DONE, MessageState.UNKNOWN}:
                assert message.content

    # --- the hands -------------------------------------------------------------------------------------------------

    def _do(self, transition: Any, *arguments: Any, **more: Any) -> Any:
        """A worker that was stopped or overtaken hears of it at its next write."""
        if self.run is None:
            return None
        try:
            return self.database.write_now(transition, self.run, *arguments, **more)
        except LeaseLost:
            self.run = None
            return None

    def _tick(self) -> int:
        self.now += 10
        return self.now

    def _step(self) -> int:
        return self.database.read_now(runs.get, self.run.id).steps if self.run else 0

    def _open(self) -> list[Message]:
        return self.database.read_now(runs.open_calls, self.run) if self.run else []

    def _pick(self, which: int) -> Message:
        rows = self._open()
        return rows[which % len(rows)]

    def _messages(self) -> list[Message]:
        session = self.database.read_now(store.active, KEY)
        return self.database.read_now(store.read_messages, session.id) if session else []


RunLife.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
test_each_message_ends_in_one_outcome = RunLife.TestCase
