"""The transitions of a run, each through its happy path and its refusals, on both databases."""

from dataclasses import replace

import pytest
from sqlalchemy import Connection, select

from gateway.api.openai.agent_calls import outcome_of
from sessions import asks, inbox, outbox, runs, store
from sessions.db import Database
from sessions.db.schema import inbox as inbox_table
from sessions.errors import Busy, LeaseLost
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.messages import Button, Content
from sessions.records import (
    AskKind,
    CallOptions,
    EndReason,
    InboxKind,
    InboxMode,
    InboxRow,
    Message,
    MessageState,
    Role,
    Route,
    Run,
    RunStatus,
    StopReason,
)
from sessions.runs import ModelAnswer, Opening
from sessions.runs.journal import RunEnded, call_state
from sessions.topics import Topic

KEY = "agent:main:telegram:group:-100"
NOW = 1_750_000_000_000
CALL = {"id": "call_1", "type": "function", "function": {"name": "memory", "arguments": "{}"}}


def route(thread: str | None = None, message: str = "1") -> Route:
    address = Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id="-100", thread_id=thread)
    return Route(address=address, reply_to=message)


def message(number: int, *, mode: InboxMode = InboxMode.TAKE_IN, thread: str | None = None) -> InboxRow:
    return InboxRow(
        dedup_key=f"tg:1:{number}",
        session_key=KEY,
        messages=[Message(content=f"[Ann] message {number}", sender="Ann")],
        mode=mode,
        route=route(thread, str(number)),
    )


class RunHarness:
    """Short ways to say what happens."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def accept(self, number: int, **more: object) -> runs.Accepted:
        return self.database.write_now(runs.accept, message(number, **more), Opening(), NOW + number)  # pyright: ignore

    def claim(self, owner: str = "a", now: int = NOW) -> Run | None:
        def take(conn: Connection) -> Run | None:
            run = runs.claim(conn, KEY, owner, Opening(), now, lease_ms=1_000)
            if run is not None:
                runs.take_in_new_messages(conn, run, now)
            return run

        return self.database.write_now(take)

    def claimed(self, owner: str = "a", now: int = NOW) -> Run:
        run = self.claim(owner, now)
        assert run is not None
        return run

    def journal(self, run: Run) -> list[Message]:
        return self.database.read_now(store.read_messages, run.session_id)

    def transcript(self, run: Run) -> list[tuple[str, str | None]]:
        return [(row.role.value, row.content) for row in self.journal(run)]

    def outcomes(self) -> list[str | None]:
        query = select(inbox_table.c.outcome).order_by(inbox_table.c.id)
        return self.database.read_now(lambda conn: list(conn.scalars(query)))

    def finish(self, run: Run, text: str, *, step: int = 0) -> bool:
        return self.database.write_now(
            runs.finish, run, ModelAnswer(text=text), NOW, step=step, reply=Content(text=text)
        )

    def calls(self, run: Run, *, step: int = 0) -> list[Message]:
        return self.database.write_now(runs.answered, run, ModelAnswer(text="", tool_calls=[CALL]), NOW, step=step)

    def to_send(self) -> list[str]:
        rows = self.database.write_now(outbox.claim, "telegram", "sender", NOW + 10**6, lease_ms=1)
        return [row.content.text for row in rows if row.content]

    def status(self, run: Run) -> RunStatus:
        return self.database.read_now(runs.get, run.id).status


@pytest.fixture
def harness(database: Database) -> RunHarness:
    return RunHarness(database)


def test_the_end_of_a_run_tells_what_a_caller_would_read_unless_the_run_may_have_asked(harness: RunHarness) -> None:
    told: list[RunEnded] = []
    heard = harness.database.listen(lambda touched: told.extend(each for each in touched if isinstance(each, RunEnded)))
    harness.accept(1)
    run = harness.claimed()
    assert harness.finish(run, "hello\0")
    harness.accept(2)
    again = harness.claimed()
    harness.database.write_now(runs.give_back, again.id, again.fence)
    assert harness.finish(harness.claimed(), "more")
    heard()

    (ended,) = told
    stored = harness.database.read_now(call_state, run.id)
    assert (ended.topic, ended.id, stored.said and stored.said.content) == (Topic.RUN, run.id, "hello\ufffd")
    assert outcome_of(ended.state) == outcome_of(stored)


def test_a_message_starts_a_run_and_the_answer_goes_out_with_its_end(harness: RunHarness) -> None:
    accepted = harness.accept(1)
    run = harness.claimed()
    assert run.id == accepted.run_id
    assert harness.finish(run, "hello")
    assert harness.transcript(run) == [("user", "[Ann] message 1"), ("assistant", "hello")]
    assert harness.to_send() == ["hello"]
    assert harness.status(run) is RunStatus.COMPLETED
    assert harness.outcomes() == ["folded"]


def test_a_run_that_waits_for_more_begins_when_it_is_time(harness: RunHarness) -> None:
    first = Opening(wait_ms=1_000)
    harness.database.write_now(runs.accept, message(1), first, NOW)
    harness.database.write_now(runs.accept, message(2), first, NOW + 900)
    assert harness.claim(now=NOW + 999) is None
    assert [text for _, text in harness.transcript(harness.claimed(now=NOW + 1_000))] == [
        "[Ann] message 1",
        "[Ann] message 2",
    ]


def test_the_same_event_twice_is_one_message(harness: RunHarness) -> None:
    first, second = harness.accept(1), harness.accept(1)
    assert (first.fresh, second.fresh) == (True, False)
    assert second.run_id == first.run_id
    assert len(harness.journal(harness.claimed())) == 1


def test_a_message_meanwhile_is_folded_and_only_from_the_same_thread(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    assert harness.accept(2).run_id == run.id
    harness.accept(3, thread="9")
    assert harness.database.write_now(runs.take_in_new_messages, run, NOW) == 1
    assert [text for _, text in harness.transcript(run)] == ["[Ann] message 1", "[Ann] message 2"]
    assert harness.finish(run, "both")
    other = harness.claimed()
    assert other.id != run.id
    assert other.route == route("9", "3")


def test_a_message_at_the_finish_line_makes_the_run_go_on(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    harness.accept(2)
    assert not harness.finish(run, "first")
    assert harness.finish(run, "second", step=1)
    assert [text for _, text in harness.transcript(run)] == ["[Ann] message 1", "first", "[Ann] message 2", "second"]
    assert harness.to_send() == ["first"]
    assert harness.outcomes() == ["folded", "folded"]


def test_queued_messages_get_runs_of_their_own_in_order(harness: RunHarness) -> None:
    for number in (1, 2, 3):
        assert harness.accept(number, mode=InboxMode.QUEUE).run_id is None
    texts = []
    for _ in range(3):
        run = harness.claimed()
        texts.append(harness.transcript(run)[-1][1])
        assert harness.claim("b") is None
        assert harness.finish(run, "done")
    assert texts == ["[Ann] message 1", "[Ann] message 2", "[Ann] message 3"]
    assert harness.claim() is None


def test_every_transition_may_be_repeated_after_an_ambiguous_commit(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    (call,) = harness.calls(run)
    assert [row.id for row in harness.calls(run)] == [call.id]
    for _ in range(2):
        harness.database.write_now(runs.tool_started, run, call.id, NOW)
    for text in ("result", "another"):
        harness.database.write_now(runs.tool_done, run, call.id, text, NOW)
    for _ in range(2):
        assert harness.finish(run, "done", step=1)
    assert harness.transcript(run) == [
        ("user", "[Ann] message 1"),
        ("assistant", ""),
        ("tool", "result"),
        ("assistant", "done"),
    ]
    assert harness.to_send() == ["done"]


def test_time_worked_is_kept_over_takeovers_and_does_not_grow_while_nobody_works(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed("a", NOW)
    harness.database.write_now(runs.tool_started, replace(run, worked_ms=400), 0, NOW + 400)
    run = harness.claimed("b", NOW + 60_000)
    assert run.worked_ms == 400
    harness.database.write_now(runs.tool_started, replace(run, worked_ms=500), 0, NOW + 60_100)
    assert harness.database.read_now(runs.get, run.id).worked_ms == 500


def test_a_worker_that_lost_its_lease_writes_nothing_more(harness: RunHarness) -> None:
    harness.accept(1)
    slow = harness.claimed("a", NOW)
    assert harness.claim("b", NOW + 500) is None
    quick = harness.claimed("b", NOW + 2_000)
    assert (quick.fence, quick.attempts) == (slow.fence + 1, 1)
    with pytest.raises(LeaseLost):
        harness.finish(slow, "too late")
    (call,) = harness.calls(quick)
    with pytest.raises(LeaseLost):
        harness.database.write_now(runs.tool_done, slow, call.id, "x", NOW)
    assert harness.database.read_now(runs.get, quick.id).attempts == 0


def test_a_run_that_is_given_back_counts_no_takeover(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed("a")
    harness.database.write_now(runs.give_back, run.id, run.fence)
    assert harness.claimed("b").attempts == 0


def park(harness: RunHarness, run: Run, **more: object) -> bool:
    call = harness.calls(run)[0]
    card = Content(text="blue?", buttons=(Button(label="yes", data="a:{ask}:0"),))
    return harness.database.write_now(runs.park, run, call, "blue?", NOW, options=["yes"], card=card, **more)  # pyright: ignore


def test_a_question_waits_as_a_row_and_the_next_message_answers_it(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    assert park(harness, run)
    assert harness.status(run) is RunStatus.WAITING
    assert harness.claim("b", NOW + 10**9) is None
    assert harness.accept(2).run_id == run.id
    assert harness.status(run) is RunStatus.RUNNING
    assert harness.transcript(run)[-1] == ("tool", "[Ann] message 2")
    assert harness.outcomes() == ["folded", "answered"]
    assert harness.claimed("c").id == run.id
    assert harness.to_send() == ["blue?"]


def test_a_question_is_not_asked_while_something_is_unread(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    harness.accept(2)
    assert not park(harness, run)
    assert harness.status(run) is RunStatus.RUNNING
    assert harness.to_send() == []


def test_an_answer_counts_once_and_for_its_own_question(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    assert park(harness, run)
    ask = harness.database.read_now(asks.open_of, run.id)
    assert ask is not None
    assert not harness.database.write_now(runs.answer, run.id, "no", "Bob", NOW, ask_id=ask.id + 1)
    assert harness.database.write_now(runs.answer, run.id, "yes", "Ann", NOW, ask_id=ask.id)
    assert not harness.database.write_now(runs.answer, run.id, "no", "Bob", NOW, ask_id=ask.id)
    assert harness.transcript(run)[-1] == ("tool", "yes")


def test_an_approval_lets_the_call_go_on_without_being_its_result(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    assert park(harness, run, kind=AskKind.APPROVAL, args_hash="h")
    assert harness.database.write_now(runs.answer, run.id, "yes", "Ann", NOW)
    (call,) = harness.database.read_now(runs.open_calls, harness.claimed("b"))
    assert call.state is MessageState.PENDING


@pytest.mark.parametrize("waiting", [False, True])
def test_stop_ends_it_at_once_and_leaves_a_whole_transcript(harness: RunHarness, waiting: bool) -> None:
    harness.accept(1)
    run = harness.claimed()
    if waiting:
        park(harness, run)
    else:
        harness.calls(run)
        harness.accept(2)
    assert harness.database.write_now(runs.stop, run.id, NOW)
    assert not harness.database.write_now(runs.stop, run.id, NOW)
    ended = harness.database.read_now(runs.get, run.id)
    assert (ended.status, ended.stop_reason) == (RunStatus.COMPLETED, StopReason.CANCELLED)
    assert all(row.state is not MessageState.PENDING for row in harness.journal(run))
    assert None not in harness.outcomes()
    with pytest.raises(LeaseLost):
        harness.finish(run, "too late", step=1)
    assert harness.accept(9).run_id != run.id


def test_a_failure_says_so_in_the_chat_and_keeps_the_message(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    harness.calls(run)
    harness.database.write_now(runs.fail, run, "no network", NOW, notice=Content(text="sorry"))
    ended = harness.database.read_now(runs.get, run.id)
    assert (ended.status, ended.error) == (RunStatus.ERROR, "no network")
    assert harness.to_send() == ["sorry"]
    assert harness.transcript(run)[0] == ("user", "[Ann] message 1")
    assert all(row.state in {MessageState.DONE, MessageState.UNKNOWN} for row in harness.journal(run))


def test_what_is_in_flight_is_known_after_a_start(harness: RunHarness) -> None:
    assert harness.database.read_now(runs.in_flight) == []
    harness.accept(1)
    run = harness.claimed()
    assert harness.database.read_now(runs.in_flight) == [KEY]
    harness.finish(run, "done")
    assert harness.database.read_now(runs.in_flight) == []


def test_a_session_that_is_worked_on_is_not_deleted(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    with pytest.raises(Busy):
        harness.database.write_now(store.delete_session, run.session_id)
    harness.finish(run, "done")
    harness.database.write_now(store.delete_session, run.session_id)
    assert harness.to_send() == []


def test_the_inbox_row_keeps_no_text_once_it_is_in_the_journal(harness: RunHarness) -> None:
    harness.accept(1)
    harness.claimed()
    row = harness.database.read_now(inbox.by_dedup_key, "tg:1:1")
    assert row is not None
    assert not row.body()


def test_roles_of_a_whole_run(harness: RunHarness) -> None:
    harness.accept(1)
    run = harness.claimed()
    (call,) = harness.calls(run)
    harness.database.write_now(runs.tool_done, run, call.id, "x", NOW)
    harness.finish(run, "y", step=1)
    assert [row.role for row in harness.journal(run)] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    session = harness.database.read_now(store.get, run.session_id)
    assert (session.message_count, session.tool_call_count) == (4, 1)


def test_a_key_of_the_terminal_opens_a_second_session_after_the_first_has_ended(database: Database) -> None:
    own_id = "20250305_091523_a1b2c3d4"
    key = f"agent:main:cli:{own_id}"
    first = database.write_now(runs.open_session, SessionKey.parse(key), Opening(), NOW)
    database.write_now(store.end, first.id, EndReason.USER, NOW)
    second = database.write_now(runs.open_session, SessionKey.parse(key), Opening(), NOW)
    assert first.id == own_id
    assert second.id != own_id
    assert database.write_now(runs.open_session, SessionKey.parse(key), Opening(), NOW) == second


def test_a_message_that_waited_for_a_job_in_its_thread_keeps_its_deployment(database: Database) -> None:
    key, options = "agent:dep_1:thread:t1", CallOptions(model="its/model")
    job = InboxRow(dedup_key="job:1", session_key=key, kind=InboxKind.JOB, mode=InboxMode.QUEUE)
    sent = InboxRow(dedup_key="http:1", session_key=key, messages=[Message(content="hello")], options=options)

    def claim(conn: Connection) -> Run:
        run = runs.claim(conn, key, "worker", Opening(), NOW, lease_ms=1_000)
        assert run is not None
        runs.take_in_new_messages(conn, run, NOW)
        return run

    database.write_now(runs.accept, job, Opening(), NOW)
    of_job = database.write_now(claim)
    database.write_now(runs.accept, sent, Opening(deployment="dep_1", thread_id="t1"), NOW + 1)
    database.write_now(runs.finish, of_job, ModelAnswer(text="done"), NOW + 2, step=0)
    run = database.write_now(claim)
    assert (run.deployment, run.thread_id, run.options.model) == ("dep_1", "t1", "its/model")
