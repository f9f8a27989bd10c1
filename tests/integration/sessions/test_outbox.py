"""Order, retry and doubt in what has to be sent, on both databases."""

from sqlalchemy import Connection

from sessions import outbox
from sessions.db import Database
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Content
from sessions.records import OutRow, OutState, Route

NOW = 1_750_000_000_000
HOUR = 3_600_000


def put(database: Database, key: str, chat: str = "1", now: int = NOW) -> None:
    route = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id=chat))
    database.write_now(outbox.put, route, Content(text=key), now, dedup_key=key, session_key="k")


def claim(database: Database, now: int = NOW, owner: str = "me") -> list[OutRow]:
    return database.write_now(outbox.claim, "telegram", owner, now, lease_ms=1_000)


def texts(rows: list[OutRow]) -> list[str]:
    return [text_of(row) for row in rows]


def text_of(row: OutRow) -> str:
    return row.content.text if row.content else str((row.piece or {})["text"])


def send(database: Database, row: OutRow, now: int = NOW) -> None:
    def sent(conn: Connection) -> None:
        outbox.mark_sending(conn, row.id)
        outbox.mark_sent(conn, row.id, "77", now)

    database.write_now(sent)


def test_each_chat_in_order_and_chats_side_by_side(database: Database) -> None:
    for key, chat in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        put(database, key, chat)
        put(database, key, chat)
    rows = claim(database)
    assert texts(rows) == ["a1", "b1"]
    send(database, rows[0])
    assert texts(claim(database)) == ["a2", "b1"]


def test_messages_with_a_file_are_known_until_they_are_sent(database: Database) -> None:
    for key in ("file:1", "plain", "spoken"):
        put(database, key, chat=key)
    for row in claim(database):
        piece = {"path": "/outgoing/answer.ogg"} if row.dedup_key == "spoken" else {"text": "x"}
        database.write_now(outbox.split, row, [piece])
        assert set(database.read_now(outbox.unsent_files)) <= {"file:1", "spoken"}
    assert set(database.read_now(outbox.unsent_files)) == {"file:1", "spoken"}
    for row in claim(database):
        send(database, row)
    assert database.read_now(outbox.unsent_files) == []


def test_a_lease_holds_until_it_runs_out(database: Database) -> None:
    put(database, "a")
    assert claim(database, owner="one")
    assert claim(database, owner="two") == []
    assert claim(database, NOW + 1_001, owner="two")


def test_pieces_stand_where_the_whole_stood(database: Database) -> None:
    put(database, "long")
    put(database, "next")
    (row,) = claim(database)
    first, piece = database.write_now(outbox.split, row, [{"text": "1"}, {"text": "2"}, {"text": "3"}])
    assert piece == {"text": "1"}
    order = [text_of(first)]
    send(database, first)
    while rows := claim(database, NOW + 5_000):
        order += texts(rows)
        send(database, rows[0])
    assert order == ["1", "2", "3", "next"]


def test_put_off_comes_back_when_due_and_keeps_its_place(database: Database) -> None:
    put(database, "a")
    put(database, "b")
    (row,) = claim(database)
    database.write_now(outbox.put_off, row.id, NOW + 5_000, "slow down", ambiguous=False)
    assert claim(database, NOW + 4_999) == []
    assert database.read_now(outbox.next_due, "telegram", NOW) == 0
    assert texts(claim(database, NOW + 5_000)) == ["a"]


def test_a_clock_that_was_set_back_silences_no_chat(database: Database) -> None:
    put(database, "fresh")
    assert texts(claim(database, NOW - 86_400_000)) == ["fresh"]
    put(database, "put off", "other")
    row = claim(database)[-1]
    database.write_now(outbox.put_off, row.id, NOW + 60_000, "slow down", ambiguous=False)
    put(database, "behind it", "other")
    for now, due in ((NOW, []), (NOW + 60_000 - outbox.LONGEST_WAIT_MS, []), (NOW - 86_400_000, ["put off"])):
        found = [text for text in texts(claim(database, now)) if text != "fresh"]
        assert found == due
    assert database.read_now(outbox.next_due, "telegram", NOW - 86_400_000) == 0


def test_what_may_have_arrived_stays_in_doubt_when_it_is_put_off_again(database: Database) -> None:
    put(database, "a")
    for ambiguous, state in ((False, OutState.PENDING), (True, OutState.UNKNOWN), (False, OutState.UNKNOWN)):
        (row,) = claim(database)
        database.write_now(outbox.put_off, row.id, NOW, "timed out", ambiguous=ambiguous)
        assert list(database.read_now(outbox.counts)) == [("telegram", state)]


def interrupt(database: Database, now: int) -> list[OutRow]:
    def die(conn: Connection) -> None:
        (row,) = outbox.claim(conn, "telegram", "dead", now, lease_ms=0)
        outbox.mark_sending(conn, row.id)

    database.write_now(die)
    return database.write_now(outbox.interrupted, "telegram", now + 1)


def test_what_was_being_sent_gets_three_more_tries(database: Database) -> None:
    put(database, "a")
    for times in range(outbox.FURTHER_TRIES):
        assert interrupt(database, NOW + times * 10) == []
        (row,) = claim(database, NOW + times * 10 + 2, owner="dead")
        assert row.state is OutState.UNKNOWN
    (dead,) = interrupt(database, NOW + 2_000)
    assert dead.id == row.id
    assert claim(database, NOW + 10_000) == []
    assert [row.state for row in database.read_now(outbox.dead_letters)] == [OutState.DEAD]


def test_an_edit_that_was_cut_off_is_in_no_doubt(database: Database) -> None:
    put(database, "a")

    def die(conn: Connection) -> None:
        (row,) = outbox.claim(conn, "telegram", "dead", NOW, lease_ms=1_000)
        outbox.mark_editing(conn, row.id)
        outbox.release(conn, "telegram", [row.id])
        outbox.interrupted(conn, "telegram", NOW + 1)

    for tried in (0, 1, 2):
        (row,) = claim(database, NOW + tried, owner="dead")
        assert (row.state, row.attempts, row.doubts) == (OutState.PENDING, tried, 0)
        database.write_now(die)


def test_and_none_after_an_hour(database: Database) -> None:
    put(database, "a", now=NOW - HOUR - 1)
    interrupt(database, NOW)
    assert claim(database, NOW + 10_000) == []


def test_a_dead_letter_can_be_sent_again(database: Database) -> None:
    put(database, "a")
    put(database, "b")
    (row,) = claim(database)
    database.write_now(outbox.give_up, row.id, "the chat is gone")
    assert texts(claim(database)) == ["b"]
    (dead,) = database.read_now(outbox.dead_letters)
    assert dead.last_error == "the chat is gone"
    assert database.write_now(outbox.send_again, dead.id, NOW)
    assert not database.write_now(outbox.send_again, dead.id, NOW)
    assert "a" in texts(claim(database, NOW + 2_000))


def test_nor_when_the_second_try_would_come_after_an_hour(database: Database) -> None:
    put(database, "one")
    (row,) = claim(database)
    database.write_now(outbox.mark_sending, row.id)
    # It may be tried again, and the process dies before that.
    database.write_now(outbox.interrupted, "telegram", NOW + 2_000)
    database.write_now(outbox.interrupted, "telegram", NOW + HOUR + 1)
    assert claim(database, NOW + HOUR + 1) == []
    assert [letter.id for letter in database.read_now(outbox.dead_letters)] == [row.id]
