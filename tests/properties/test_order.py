"""Messages from several threads of one session: whoever came first has the next run, whenever the others came."""

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, select

from sessions import runs
from sessions.db import Database
from sessions.db.schema import inbox, messages, sessions
from sessions.keys import Address, ChatKind, Platform
from sessions.policy import ResetMode, ResetPolicy
from sessions.records import InboxKind, InboxMode, InboxRow, Message, Role, Route, Run
from sessions.runs import ModelAnswer, Opening
from tests.conftest import HandClock

IDLE_MINUTES = 10
OPENING = Opening(reset=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=IDLE_MINUTES), farewell=False)
THREADS = ("", "topic1", "topic2", "topic3")
numbers = count()


class ChatWithTopics:
    """One chat with topics, and the worker of its session. It says what is wrong as soon as somebody is overtaken."""

    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, HandClock()
        self.id = f"c{next(numbers)}"
        self.key = f"agent:main:telegram:group:{self.id}"
        self.run: Run | None = None
        self.said: dict[str, list[str]] = {}

    def route(self, thread: str) -> Route:
        address = Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id=self.id, thread_id=thread or None)
        return Route(address=address)

    def arrives(self, thread: str, wait_ms: int = 0) -> None:
        said = self.said.setdefault(thread, [])
        text = f"{self.id}/{thread}/{len(said)}"
        said.append(text)
        new = InboxRow(
            dedup_key=text,
            session_key=self.key,
            messages=[Message(content=text)],
            kind=InboxKind.JOB if thread == "job" else InboxKind.MESSAGE,
            mode=InboxMode.QUEUE if thread in {"job", "call"} else InboxMode.TAKE_IN,
            route=None if thread in {"job", "call"} else self.route(thread),
        )
        opening = Opening(reset=OPENING.reset, farewell=False, wait_ms=wait_ms)
        assert self.database.write_now(runs.accept, new, opening, self.clock.tick()).fresh

    def works(self, how: str) -> None:
        """One step of the worker: it takes the next run, or does something with the one that it has."""
        if self.run is None:
            self.run = self.database.write_now(self._claim)
        elif how == "folds":
            self.database.write_now(runs.take_in_new_messages, self.run, self.clock.tick())
        elif how == "fails":
            self.database.write_now(runs.fail, self.run, "broken", self.clock.tick())
            self.run = None
        elif how == "stops":
            self.database.write_now(runs.stop, self.run.id, self.clock.tick())
            self.run = None
        else:
            steps = self.database.read_now(runs.get, self.run.id).steps
            if self.database.write_now(runs.finish, self.run, ModelAnswer(text="done"), self.clock.tick(), step=steps):
                self.run = None

    def _claim(self, conn: Connection) -> Run | None:
        run = runs.claim(conn, self.key, "worker", OPENING, self.clock.tick(), lease_ms=30_000)
        if run is not None:
            runs.take_in_new_messages(conn, run, self.clock.tick())
        return run

    def check(self) -> None:
        """Nobody who waits is older than the message for which the active run was started."""
        active = self.database.read_now(runs.active, self.key)
        if active is None:
            return
        mine = select(inbox).where(inbox.c.session_key == self.key)
        rows = self.database.read_now(lambda conn: conn.execute(mine).all())
        started_by = min(row.id for row in rows if row.run_id == active.id)
        waiting = {row.id: row.dedup_key for row in rows if row.outcome is None and row.run_id is None}
        assert not [key for row, key in waiting.items() if row < started_by]

    def ends(self) -> None:
        for _ in range(200):
            self.clock.tick(2_000)
            self.works("finishes")
            if self.run is None and not self.database.read_now(self._is_busy):
                break
        heard = self.database.read_now(self._heard)
        for said in self.said.values():
            assert [text for text in heard if text in said] == said

    def _is_busy(self, conn: Connection) -> bool:
        return runs.active(conn, self.key) is not None or self.key in runs.in_flight(conn)

    def _heard(self, conn: Connection) -> list[str]:
        mine = select(sessions.c.id).where(sessions.c.session_key == self.key)
        query = select(messages.c.content).where(messages.c.session_id.in_(mine), messages.c.role == Role.USER)
        return list(conn.scalars(query.order_by(messages.c.id)))


arrivals = st.tuples(st.just("arrives"), st.sampled_from([*THREADS, "job", "call"]))
steps = st.tuples(st.just("works"), st.sampled_from(["finishes", "finishes", "folds", "fails", "stops"]))
pauses = st.tuples(st.just("waits"), st.sampled_from([1_000, 60_000, IDLE_MINUTES * 60_000 + 1, 86_400_000]))


@settings(max_examples=60)
@given(events=st.lists(st.one_of(arrivals, steps, steps, pauses), max_size=25), wait_ms=st.sampled_from([0, 1_000]))
def test_the_one_who_came_first_has_the_next_run(
    database: Database, events: list[tuple[str, object]], wait_ms: int
) -> None:
    chat = ChatWithTopics(database)
    for kind, what in events:
        if kind == "arrives":
            chat.arrives(str(what), wait_ms)
        elif kind == "works":
            chat.works(str(what))
        else:
            chat.clock.tick(int(str(what)))
        chat.check()
    chat.ends()
