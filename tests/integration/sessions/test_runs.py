"""The transitions of a run, each through its happy path and its refusals, on both databases."""

from dataclasses import replace

import pytest
from sqlalchemy import Connection, select

from sessions import asks, inbox, outbox, runs, store
from sessions.db import Database
from sessions.db.schema import inbox as inbox_table
from sessions.errors import Busy, LeaseLost
from sessions.inbox import InboxMode, NewInbox
from sessions.inbox_body import InboxBody, InboxMessage
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.messages import Button
from sessions.outbox_body import OutboxBody
from sessions.records import AskKind, EndReason, Message, MessageState, Role, Route, Run, RunStatus, StopReason
from sessions.runs import ModelAnswer, Opening

KEY = "agent:main:telegram:group:-100"
NOW = 1_750_000_000_000
CALL = {"id": "call_1", "type": "function", "function": {"name": "memory", "arguments": "{}"}}


def route(thread: str | None = None, message: str = "1") -> Route:
    address = Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id="-100", thread_id=thread)
    return Route(address=address, reply_to=message)


def message(number: int, *, mode: InboxMode = InboxMode.TAKE_IN, thread: str | None = None) -> NewInbox:
    return NewInbox(
        dedup_key=f"tg:1:{number}",
        session_key=KEY,
        messages=[InboxMessage(content=f"[Ann] message {number}", sender="Ann")],
        mode=mode,
        route=route(thread, str(number)),
    )


class RunHouse:
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

    def said(self, run: Run) -> list[tuple[str, str | None]]:
        return [(row.role.value, row.content) for row in self.journal(run)]

    def outcomes(self) -> list[str | None]:
        query = select(inbox_table.c.outcome).order_by(inbox_table.c.id)
        return self.database.read_now(lambda conn: list(conn.scalars(query)))

    def finish(self, run: Run, text: str, *, step: int = 0) -> bool:
        return self.database.write_now(
            runs.finish, run, ModelAnswer(text=text), NOW, step=step, reply=OutboxBody(text=text)
        )

    def calls(self, run: Run, *, step: int = 0) -> list[Message]:
        return self.database.write_now(runs.answered, run, ModelAnswer(text="", tool_calls=[CALL]), NOW, step=step)

    def to_send(self) -> list[str]:
        rows = self.database.write_now(outbox.claim, "telegram", "sender", NOW + 10**6, lease_ms=1)
        return [row.body.text for row in rows if isinstance(row.body, OutboxBody)]

    def status(self, run: Run) -> RunStatus:
        return self.database.read_now(runs.get, run.id).status


@pytest.fixture
def house(database: Database) -> RunHouse:
    return RunHouse(database)


def test_a_message_starts_a_run_and_the_answer_goes_out_with_its_end(house: RunHouse) -> None:
    accepted = house.accept(1)
    run = house.claimed()
    assert run.id == accepted.run_id
    assert house.finish(run, "hello")
    assert house.said(run) == [("user", "[Ann] message 1"), ("assistant", "hello")]
    assert house.to_send() == ["hello"]
    assert house.status(run) is RunStatus.COMPLETED
    assert house.outcomes() == ["folded"]


def test_a_run_that_waits_for_more_begins_when_it_is_time(house: RunHouse) -> None:
    first = Opening(wait_ms=1_000)
    house.database.write_now(runs.accept, message(1), first, NOW)
    house.database.write_now(runs.accept, message(2), first, NOW + 900)
    assert house.claim(now=NOW + 999) is None
    assert [text for _, text in house.said(house.claimed(now=NOW + 1_000))] == ["[Ann] message 1", "[Ann] message 2"]


def test_the_same_event_twice_is_one_message(house: RunHouse) -> None:
    first, second = house.accept(1), house.accept(1)
    assert (first.fresh, second.fresh) == (True, False)
    assert second.run_id == first.run_id
    assert len(house.journal(house.claimed())) == 1


def test_a_message_meanwhile_is_folded_and_only_from_the_same_thread(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    assert house.accept(2).run_id == run.id
    house.accept(3, thread="9")
    assert house.database.write_now(runs.take_in_new_messages, run, NOW) == 1
    assert [text for _, text in house.said(run)] == ["[Ann] message 1", "[Ann] message 2"]
    assert house.finish(run, "both")
    other = house.claimed()
    assert other.id != run.id
    assert other.route == route("9", "3")


def test_a_message_at_the_finish_line_makes_the_run_go_on(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    house.accept(2)
    assert not house.finish(run, "first")
    assert house.finish(run, "second", step=1)
    assert [text for _, text in house.said(run)] == ["[Ann] message 1", "first", "[Ann] message 2", "second"]
    assert house.to_send() == ["first"]
    assert house.outcomes() == ["folded", "folded"]


def test_queued_messages_get_runs_of_their_own_in_order(house: RunHouse) -> None:
    for number in (1, 2, 3):
        assert house.accept(number, mode=InboxMode.QUEUE).run_id is None
    texts = []
    for _ in range(3):
        run = house.claimed()
        texts.append(house.said(run)[-1][1])
        assert house.claim("b") is None
        assert house.finish(run, "done")
    assert texts == ["[Ann] message 1", "[Ann] message 2", "[Ann] message 3"]
    assert house.claim() is None


def test_every_transition_may_be_repeated_after_an_ambiguous_commit(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    (call,) = house.calls(run)
    assert [row.id for row in house.calls(run)] == [call.id]
    for _ in range(2):
        house.database.write_now(runs.tool_started, run, call.id, NOW)
    for text in ("result", "another"):
        house.database.write_now(runs.tool_done, run, call.id, text, NOW)
    for _ in range(2):
        assert house.finish(run, "done", step=1)
    assert house.said(run) == [
        ("user", "[Ann] message 1"),
        ("assistant", ""),
        ("tool", "result"),
        ("assistant", "done"),
    ]
    assert house.to_send() == ["done"]


def test_time_worked_is_kept_over_takeovers_and_does_not_grow_while_nobody_works(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed("a", NOW)
    house.database.write_now(runs.tool_started, replace(run, worked_ms=400), 0, NOW + 400)
    run = house.claimed("b", NOW + 60_000)
    assert run.worked_ms == 400
    house.database.write_now(runs.tool_started, replace(run, worked_ms=500), 0, NOW + 60_100)
    assert house.database.read_now(runs.get, run.id).worked_ms == 500


def test_a_worker_that_lost_its_lease_writes_nothing_more(house: RunHouse) -> None:
    house.accept(1)
    slow = house.claimed("a", NOW)
    assert house.claim("b", NOW + 500) is None
    quick = house.claimed("b", NOW + 2_000)
    assert (quick.fence, quick.attempts) == (slow.fence + 1, 1)
    with pytest.raises(LeaseLost):
        house.finish(slow, "too late")
    (call,) = house.calls(quick)
    with pytest.raises(LeaseLost):
        house.database.write_now(runs.tool_done, slow, call.id, "x", NOW)
    assert house.database.read_now(runs.get, quick.id).attempts == 0


def test_a_run_that_is_given_back_counts_no_takeover(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed("a")
    house.database.write_now(runs.release, run.id, run.fence)
    assert house.claimed("b").attempts == 0


def park(house: RunHouse, run: Run, **more: object) -> bool:
    call = house.calls(run)[0]
    card = OutboxBody(text="blue?", buttons=(Button(label="yes", data="a:{ask}:0"),))
    return house.database.write_now(runs.park, run, call, "blue?", NOW, options=["yes"], card=card, **more)  # pyright: ignore


def test_a_question_waits_as_a_row_and_the_next_message_answers_it(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    assert park(house, run)
    assert house.status(run) is RunStatus.WAITING
    assert house.claim("b", NOW + 10**9) is None
    assert house.accept(2).run_id == run.id
    assert house.status(run) is RunStatus.RUNNING
    assert house.said(run)[-1] == ("tool", "[Ann] message 2")
    assert house.outcomes() == ["folded", "answered"]
    assert house.claimed("c").id == run.id
    assert house.to_send() == ["blue?"]


def test_a_question_is_not_asked_while_something_is_unread(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    house.accept(2)
    assert not park(house, run)
    assert house.status(run) is RunStatus.RUNNING
    assert house.to_send() == []


def test_an_answer_counts_once_and_for_its_own_question(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    assert park(house, run)
    ask = house.database.read_now(asks.open_of, run.id)
    assert ask is not None
    assert not house.database.write_now(runs.answer, run.id, "no", "Bob", NOW, ask_id=ask.id + 1)
    assert house.database.write_now(runs.answer, run.id, "yes", "Ann", NOW, ask_id=ask.id)
    assert not house.database.write_now(runs.answer, run.id, "no", "Bob", NOW, ask_id=ask.id)
    assert house.said(run)[-1] == ("tool", "yes")


def test_an_approval_lets_the_call_go_on_without_being_its_result(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    assert park(house, run, kind=AskKind.APPROVAL, args_hash="h")
    assert house.database.write_now(runs.answer, run.id, "yes", "Ann", NOW)
    (call,) = house.database.read_now(runs.open_calls, house.claimed("b"))
    assert call.state is MessageState.PENDING


@pytest.mark.parametrize("waiting", [False, True])
def test_stop_ends_it_at_once_and_leaves_a_whole_transcript(house: RunHouse, waiting: bool) -> None:
    house.accept(1)
    run = house.claimed()
    if waiting:
        park(house, run)
    else:
        house.calls(run)
        house.accept(2)
    assert house.database.write_now(runs.stop, run.id, NOW)
    assert not house.database.write_now(runs.stop, run.id, NOW)
    ended = house.database.read_now(runs.get, run.id)
    assert (ended.status, ended.stop_reason) == (RunStatus.COMPLETED, StopReason.CANCELLED)
    assert all(row.state is not MessageState.PENDING for row in house.journal(run))
    assert None not in house.outcomes()
    with pytest.raises(LeaseLost):
        house.finish(run, "too late", step=1)
    assert house.accept(9).run_id != run.id


def test_a_failure_says_so_in_the_chat_and_keeps_the_message(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    house.calls(run)
    house.database.write_now(runs.fail, run, "no network", NOW, notice=OutboxBody(text="sorry"))
    ended = house.database.read_now(runs.get, run.id)
    assert (ended.status, ended.error) == (RunStatus.ERROR, "no network")
    assert house.to_send() == ["sorry"]
    assert house.said(run)[0] == ("user", "[Ann] message 1")
    assert all(row.state in {MessageState.DONE, MessageState.UNKNOWN} for row in house.journal(run))


def test_what_is_in_flight_is_known_after_a_start(house: RunHouse) -> None:
    assert house.database.read_now(runs.in_flight) == []
    house.accept(1)
    run = house.claimed()
    assert house.database.read_now(runs.in_flight) == [KEY]
    house.finish(run, "done")
    assert house.database.read_now(runs.in_flight) == []


def test_a_session_that_is_worked_on_is_not_deleted(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    with pytest.raises(Busy):
        house.database.write_now(store.delete_session, run.session_id)
    house.finish(run, "done")
    house.database.write_now(store.delete_session, run.session_id)
    assert house.to_send() == []


def test_the_inbox_row_keeps_no_text_once_it_is_in_the_journal(house: RunHouse) -> None:
    house.accept(1)
    house.claimed()
    row = house.database.read_now(inbox.by_dedup_key, "tg:1:1")
    assert row is not None
    assert row.body == InboxBody()


def test_roles_of_a_whole_run(house: RunHouse) -> None:
    house.accept(1)
    run = house.claimed()
    (call,) = house.calls(run)
    house.database.write_now(runs.tool_done, run, call.id, "x", NOW)
    house.finish(run, "y", step=1)
    assert [row.role for row in house.journal(run)] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    session = house.database.read_now(store.get, run.session_id)
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
