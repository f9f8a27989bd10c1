"""What processes on one PostgreSQL tell each other; two open databases stand for two processes."""

import json
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import text

from sessions import wakeups
from sessions.db import Database, bus, open_database
from sessions.db.bus import MOST_BYTES, payloads
from sessions.db.engine import record_touch, touch
from sessions.topics import RunStarted, Topic, Touch


class Heard:
    """What a process hears, in order."""

    def __init__(self, database: Database, *topics: Topic, only_own: bool = False) -> None:
        self.found: list[object] = []
        self._changed = threading.Condition()
        database.listen(self._touched, *topics, only_own=only_own)

    def _touched(self, touched: frozenset[Touch]) -> None:
        self.note(*(each for each in sorted(touched, key=lambda each: each.id) if each.topic is not Topic.LOOK))
        if any(each.topic is Topic.LOOK for each in touched):
            self.note("look")

    def note(self, *what: object) -> None:
        with self._changed:
            self.found += what
            self._changed.notify_all()

    def until(self, what: object, seconds: float = 10) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: what in self.found, seconds), (what, self.found)


@pytest.fixture
def others(postgres_url: str) -> Generator[tuple[Database, Database]]:
    two = [open_database(Path("/nowhere"), postgres_url) for _ in range(2)]
    for database in two:
        assert database.bus is not None
        database.bus.open()
    yield two[0], two[1]
    for database in two:
        database.close()


def test_a_commit_is_heard_by_every_process_once_and_a_rollback_by_none(others):
    here, there = others
    own, heard, only_own = Heard(here, Topic.RUN), Heard(there), Heard(there, only_own=True)
    heard.until("look")

    def commit(conn):
        touch(conn, Topic.RUN, "run_1")
        record_touch(conn, RunStarted.by("key", "run_1", ask_id=7))

    def fail(conn):
        touch(conn, Topic.RUN, "run_3")
        raise ValueError("rolled back")

    with pytest.raises(ValueError, match="rolled back"):
        here.write_now(fail)
    here.write_now(commit)
    for wanted in (Touch(Topic.RUN, "run_1"), RunStarted.by("key", "run_1", ask_id=7)):
        heard.until(wanted)
    there.write_now(touch, Topic.RUN, "run_4")
    own.until(Touch(Topic.RUN, "run_4"))
    assert sorted(each.id for each in own.found) == ["key", "run_1", "run_4"]  # its own commit once
    assert only_own.found == [Touch(Topic.RUN, "run_4")]
    assert Touch(Topic.RUN, "run_3") not in heard.found


def test_live_events_arrive_in_order_and_before_the_commit_after_them(others):
    here, there = others
    heard = Heard(there, Topic.RUN)
    Heard(there, Topic.LOOK).until("look")  # what is told before it listens is lost
    there.bus.on_live = lambda told: heard.note(*told)
    for number in range(300):
        here.bus.tell(["run_1", "token", f"{number} " + "ä" * 20])
    here.write_now(touch, Topic.RUN, "run_1")
    heard.until(Touch(Topic.RUN, "run_1"))
    assert [each[2].split()[0] for each in heard.found[:-1]] == [str(number) for number in range(300)]
    assert heard.found[-1] == Touch(Topic.RUN, "run_1")


def test_the_more_processes_there_are_the_less_often_each_tells(postgres_url, monkeypatch):
    monkeypatch.setattr(bus, "BEAT_SECONDS", 0.05)
    here, there = (open_database(Path("/nowhere"), postgres_url) for _ in range(2))
    for _ in range(4):
        here.write_now(wakeups.register, 1)
    for database in (here, there):
        database.bus.open()
    Heard(there, Topic.LOOK).until("look")
    heard = Heard(here, Topic.LOOK)
    for _ in range(2):  # two heartbeats
        heard.until("look")
        heard.found.clear()
    told = []
    there.listen(lambda _: told.append(1), Topic.RUN)
    began = time.monotonic()
    for number in range(50):
        here.write_now(touch, Topic.RUN, f"run_{number}")
        time.sleep(0.01)
    assert 0 < len(told) <= (time.monotonic() - began) / bus.LONGEST_PACE_SECONDS + 2
    for database in (here, there):
        database.close()


def test_what_comes_while_a_heartbeat_is_given_is_heard_with_it(others, monkeypatch):
    here, there = others
    heard = Heard(there)
    heard.until("look")
    beat, told = there.bus._beat, threading.Event()

    def slow(conn) -> None:
        if not told.is_set():
            here.write_now(touch, Topic.RUN, "run_1")
            time.sleep(0.2)  # it arrives before the statement of the beat does
            told.set()
        beat(conn)

    monkeypatch.setattr(there.bus, "_beat", slow)
    assert told.wait(10)
    heard.until(Touch(Topic.RUN, "run_1"), 1)


def test_whoever_was_cut_off_looks_and_hears_again(others):
    here, there = others
    heard = Heard(there)
    heard.until("look")
    heard.found.clear()
    here.write_now(
        lambda conn: conn.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT count%'")
        )
    )
    heard.until("look")  # at once, and not only with the next beat of an unbroken connection
    deadline = time.monotonic() + 10
    while Touch(Topic.RUN, "run_1") not in heard.found and time.monotonic() < deadline:
        here.write_now(touch, Topic.RUN, "run_1")  # the sender was cut off, too
        time.sleep(0.05)
    assert Touch(Topic.RUN, "run_1") in heard.found


def test_a_command_that_ends_at_once_is_heard(others, postgres_url):
    heard = Heard(others[0])
    heard.until("look")
    command = open_database(Path("/nowhere"), postgres_url)
    command.write_now(touch, Topic.MEMORY, "main")
    command.close()
    heard.until(Touch(Topic.MEMORY, "main"))


def test_much_goes_in_several_messages_and_what_fits_into_none_is_a_call_to_look():
    items = [("l", ["run_1", "token", "日" * 300]), ("t", ["run", "x" * 40]), ("l", ["run_1", "said", ""])] * 50
    items += [("t", ["started", "k" * 9_000, "run_1", None]), ("t", ["run", "last"])]
    told = payloads("me", items)
    assert max(len(payload) for payload in told) < MOST_BYTES
    parts = [(kind, each) for payload in told for kind in "lt" for each in json.loads(payload).get(kind, ())]
    wanted = [("t", ["look", ""]) if len(str(each)) > 9_000 else (kind, each) for kind, each in items]
    assert parts == wanted
