"""After a delete no word of the session is in any file of the home."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sessions import erase, export, store
from sessions.db import Database, open_database
from sessions.db.postgres import make_engine
from sessions.records import EndReason
from sessions.transcripts import Transcripts
from tests.integration.sessions.writing import conversation, found, index_all

SECRET = "agent:main:telegram:group:-1"
KEPT = "agent:main:telegram:group:-2"
WORDS = ["swordfish", "Xylophonist", "quetzalcoatl"]
ROOT = Path(__file__).parents[3]


def traces(home: Path) -> list[str]:
    """Files that hold a word of the secret, also as a stem."""
    stems = "swordfish|xylophonist|quetzalcoatl|secretari"
    grep = subprocess.run(["grep", "-a", "-r", "-i", "-l", "-E", stems, home], capture_output=True, text=True)
    return grep.stdout.split()


def fill(home: Path, database: Database) -> str:
    transcripts = Transcripts(home, database)
    for number in range(40):
        conversation(database, KEPT, f"ordinary message {number}", f"and its answer {number}")
        conversation(
            database, SECRET, f"{' '.join(WORDS)} {number} secretaries", f"yes, {WORDS[number % 3]} {number} it is"
        )
        if number % 5 == 0:
            index_all(database)
        if number % 9 == 0:
            database.write_now(store.take_back, database.read_now(store.active, SECRET).id)  # type: ignore[union-attr]
    index_all(database)
    transcripts.flush()
    session = database.read_now(store.active, SECRET)
    assert session is not None
    return session.id


def test_no_word_stays_in_any_file(home: Path, sqlite: Database) -> None:
    session_id = fill(home, sqlite)
    assert len(traces(home)) >= 2
    told: list[tuple[int, int]] = []
    assert erase.erase(home, sqlite, [session_id], lambda done, of: told.append((done, of)), by="ann", now=1) == 1
    assert told == [(1, 1)]
    assert traces(home) == []
    assert len(found(sqlite, "ordinary", ns=KEPT, limit=100)) == 40


def test_what_was_deleted_gives_its_disk_back(home: Path, sqlite: Database) -> None:
    """Most of what a home holds goes; what is left takes what it took alone."""
    conversation(sqlite, KEPT, *["kept"] * 50)
    sqlite.checkpoint()
    before = (home / "state.db").stat().st_size
    ids = [conversation(sqlite, f"{SECRET}{number}", *["long " * 2_000] * 40).id for number in range(20)]
    sqlite.checkpoint()
    full = (home / "state.db").stat().st_size
    assert full > before + 5_000_000
    erase.erase(home, sqlite, ids, by="ann", now=1)
    assert (home / "state.db").stat().st_size < before + 200_000
    assert sqlite.read_now(lambda conn: conn.exec_driver_sql("PRAGMA freelist_count").scalar_one()) == 0


BYSTANDER = """
import sys, time
from pathlib import Path
from sessions.db import open_database
from sessions.search import message_index
database = open_database(Path(sys.argv[1]))
print(len(database.read_now(message_index.search, "swordfish")), flush=True)
sys.stdin.readline()
print(len(database.read_now(message_index.search, "swordfish")), flush=True)
database.close()
"""


def test_no_word_stays_while_another_process_has_it_open(home: Path, sqlite: Database) -> None:
    session_id = fill(home, sqlite)
    command = [sys.executable, "-c", BYSTANDER, home]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin
        assert other.stdout
        assert int(other.stdout.readline()) > 0
        erase.erase(home, sqlite, [session_id], by="ann", now=1)
        assert traces(home) == []
        other.stdin.write("\n")
        other.stdin.flush()
        assert int(other.stdout.readline()) == 0
        assert other.wait(60) == 0


def test_an_import_brings_it_back_and_a_second_delete_takes_it_away_again(home: Path, sqlite: Database) -> None:
    session_id = fill(home, sqlite)
    exported = sqlite.read_now(export.export_session, session_id)
    erase.erase(home, sqlite, [session_id], by="ann", now=1)
    sqlite.write_now(export.import_session, export.ImportedSession.model_validate(exported), "cli:ann")
    index_all(sqlite)
    assert traces(home)
    erase.erase(home, sqlite, [session_id], by="ann", now=1)
    assert traces(home) == []


def test_erasing_many_is_erasing_each(home: Path, database: Database) -> None:
    ids = [conversation(database, f"agent:main:slack:group:{number}", "swordfish").id for number in range(5)]
    index_all(database)
    database.write_now(store.end, ids[0], EndReason.USER, 1)
    assert erase.erase(home, database, ids, by="ann", now=1) == 5
    assert database.read_now(store.recent) == []
    assert erase.erase(home, database, [], by="ann", now=1) == 0


def test_postgresql_holds_no_word_in_its_tables_files(home: Path, postgres_url: str) -> None:
    """Its log and its backups are the operator's; tables and indexes are ours."""
    database = open_database(home, postgres_url)
    session_id = fill(home, database)
    erase.erase(home, database, [session_id], by="ann", now=1)

    leftovers = "SELECT count(*) FROM message_search WHERE stems @@ 'swordfish'::tsquery"
    assert database.read_now(lambda conn: conn.exec_driver_sql(leftovers).scalar_one()) == 0
    database.close()
    assert left_to_clean(postgres_url, "messages", "message_search") == {0}


def left_to_clean(url: str, *tables: str) -> set[int]:
    """What a vacuum still finds of dead rows. The server's statistics count them too, but a second late."""
    told: list[str] = []
    engine = make_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.connection.driver_connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        for table in tables:
            conn.exec_driver_sql(f"VACUUM (VERBOSE) {table}")
    engine.dispose()
    found = r"tuples: (\d+) removed|(\d+) are dead|(\d+) dead item identifiers"
    return {int(number) for match in re.findall(found, "\n".join(told)) for number in match if number}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_conversation_that_goes_on_elsewhere_is_not_touched(
    home: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    database = open_database(home, "" if kind == "sqlite" else request.getfixturevalue("postgres_url"))
    gone, kept = conversation(database, SECRET, "swordfish one"), conversation(database, KEPT, "swordfish two")
    index_all(database)
    erase.erase(home, database, [gone.id], by="ann", now=1)
    assert [m.content for m in database.read_now(store.read_messages, kept.id)] == ["swordfish two"]
    assert found(database, "swordfish") == ["swordfish two"]
    database.close()
