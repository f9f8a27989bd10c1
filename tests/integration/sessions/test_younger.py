"""A database that does not know what lies beside it is refused, and nothing of that is touched."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sessions import erase
from sessions.db import Database, open_database
from sessions.db.sqlite import ended_uncleanly, quick_check
from sessions.errors import Unusable
from sessions.restored import require_complete
from sessions.transcripts import Transcripts, transcript_path
from tests.integration.sessions.writing import conversation

KEY = "agent:main:telegram:group:-1"


def used(home: Path, messages: int = 3) -> str:
    """A home that was used for a while. Returns a session's id."""
    database = open_database(home)
    transcripts = Transcripts(home, database)
    session = conversation(database, KEY, *(f"message {number}" for number in range(messages)))
    transcripts.close()
    database.close()
    return session.id


def put_aside(home: Path) -> None:
    (home / "state.db").rename(home / "state.db.old")


def emptied(home: Path) -> None:
    (home / "state.db").write_bytes(b"")


def an_older_one(home: Path) -> None:
    (home / "state.db").unlink()
    database = open_database(home)
    conversation(database, KEY, "only one message")
    database.close()


@pytest.mark.parametrize("lose", [put_aside, emptied, an_older_one])
def test_a_database_that_is_younger_than_its_transcripts_is_refused_and_they_stay(
    home: Path, lose: Callable[[Path], None]
) -> None:
    session_id = used(home)
    lose(home)
    database = open_database(home)
    with pytest.raises(Unusable, match="does not know message 3") as refused:
        require_complete(home, database)
    assert f"mv {home / 'sessions'} {home / 'sessions.before'}" in str(refused.value)
    assert transcript_path(home, session_id).exists()
    (home / "sessions").rename(home / "sessions.before")
    require_complete(home, database)
    database.close()


def test_a_log_that_was_deleted_is_noticed(home: Path, tmp_path: Path) -> None:
    database = open_database(home)
    transcripts = Transcripts(home, database)
    conversation(database, KEY, "one")
    database.checkpoint()
    conversation(database, KEY, "two")
    transcripts.flush()
    copy = tmp_path / "copy"
    (copy / "sessions").mkdir(parents=True)
    for file in [home / "state.db", *(home / "sessions").glob("*.jsonl")]:
        (copy / file.relative_to(home)).write_bytes(file.read_bytes())
    database.close()
    without_log = open_database(copy)
    with pytest.raises(Unusable, match="has lost its log"):
        require_complete(copy, without_log)
    without_log.close()


def test_what_was_deleted_and_what_others_put_there_is_no_reason(home: Path, database: Database) -> None:
    transcripts = Transcripts(home, database)
    session = conversation(database, KEY, "one", "two")
    transcripts.flush()
    kept = transcript_path(home, session.id).read_bytes()
    erase.erase(home, database, [session.id], by="ann", now=1)
    transcript_path(home, session.id).write_bytes(kept)  # a copy that somebody has put back
    (home / "sessions" / "notes.jsonl").write_text("no JSON\n[1]\n{}\n")
    require_complete(home, database)


def damaged(home: Path, page: int) -> Path:
    path = home / "state.db"
    with path.open("r+b") as file:
        file.seek(page * 4_096)
        file.write(b"\xff" * 4_096)
    return path


def test_a_damaged_page_is_told_at_the_start_after_an_unclean_end(home: Path) -> None:
    used(home, 2_000)
    path = home / "state.db"
    assert quick_check(path)
    pages = path.stat().st_size // 4_096
    whole = path.read_bytes()
    for page in range(pages // 10, pages, pages // 8):
        path.write_bytes(whole)
        with pytest.raises(Unusable, match=r"is damaged .* and the folder sessions aside together"):
            quick_check(damaged(home, page))


def test_the_check_ends_when_its_time_is_over(home: Path) -> None:
    used(home, 2_000)
    now = iter(range(1_000_000))
    assert not quick_check(home / "state.db", seconds=0, clock=lambda: float(next(now)))


def test_an_end_was_unclean_as_long_as_the_log_holds_something(home: Path) -> None:
    path = home / "state.db"
    assert not ended_uncleanly(path)
    database = open_database(home)
    conversation(database, KEY, "one")
    assert ended_uncleanly(path)
    database.close()
    assert not ended_uncleanly(path)
