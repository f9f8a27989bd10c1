"""A database comes to the schema of this version, from nothing or from an older one, and a newer one is respected."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, insert, inspect, select, text

from sessions import asks, store
from sessions.db import Database, drop_copies, drop_copies_with_forgotten, keep_copy, migrate, migrations, open_database
from sessions.db.schema import HEAD, OLDEST, meta, metadata
from sessions.erase import erase
from sessions.errors import NewerSchema, OlderSchema
from sessions.keys import SessionKey
from sessions.records import Message, Role, Source
from tests.integration.sessions.writing import found, index_all

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(new_home: Path) -> Path:
    return new_home


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest, home: Path) -> tuple[Path, str]:
    """A home and a database address with nothing in them."""
    return home, "" if request.param == "sqlite" else request.getfixturevalue("fresh_postgres_url")


def differences(conn: Connection) -> list[object]:
    ours = set(metadata.tables)

    def is_ours(thing: object, name: str | None, kind: str, reflected: bool, other: object) -> bool:
        return kind != "table" or name in ours

    context = MigrationContext.configure(
        conn, opts={"compare_type": True, "compare_server_default": True, "include_object": is_ours}
    )
    return compare_metadata(context, metadata)


def test_a_migrated_database_is_what_the_code_believes(fresh: tuple[Path, str]) -> None:
    database = open_database(*fresh)
    assert database.read_now(differences) == []
    database.close()


def constraints(conn: Connection) -> dict[str, tuple[object, ...]]:
    """What the comparison above does not look at: keys, uniqueness, and the conditions of partial indexes."""
    found = inspect(conn)
    partial = ("sqlite_where", "postgresql_where")
    return {
        table: (
            sorted(found.get_pk_constraint(table)["constrained_columns"]),
            sorted(sorted(c["column_names"]) for c in found.get_unique_constraints(table)),
            sorted(
                (
                    str(i["name"]),
                    tuple(i["column_names"]),
                    bool(i["unique"]),
                    any(k in i.get("dialect_options", {}) for k in partial),
                )
                for i in found.get_indexes(table)
                if not i.get("duplicates_constraint")
            ),
            sorted((c["name"], c["nullable"], c["default"] is not None) for c in found.get_columns(table)),
        )
        for table in metadata.tables
    }


def test_keys_and_partial_indexes_are_those_of_the_code_too(fresh: tuple[Path, str]) -> None:
    database = open_database(*fresh)
    migrated = database.read_now(constraints)

    def recreate(conn: Connection) -> dict[str, tuple[object, ...]]:
        metadata.drop_all(conn)
        for index in (index for table in metadata.tables.values() for index in table.indexes if index.info):
            index.dialect_options[conn.dialect.name]["where"] = index.info["where"]
        metadata.create_all(conn)
        return constraints(conn)

    assert migrated == database.write_now(recreate)
    database.close()


def with_data(home: Path, url: str) -> Database:
    database = open_database(home, url)
    session = database.write_now(store.start, SessionKey.cli("x"), 1, source=Source.CLI)
    database.write_now(store.append, session.id, [Message(role=Role.USER, content="kept")], 2)
    return database


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """A folder with the migration of a version to come."""
    folder = tmp_path / "100% later versions"
    folder.mkdir()
    (folder / "v9999_later.py").write_text(
        dedent("""
        from alembic import op

        revision = "9999"
        down_revision = "%s"

        def upgrade():
            op.execute("ALTER TABLE sessions ADD COLUMN mood text")
            op.execute("UPDATE sessions SET mood = 'calm'")
            op.execute("INSERT INTO meta (key, value) VALUES ('usable_from', '9999')")
        """)
        % HEAD
    )
    return folder


def test_an_older_database_is_upgraded_with_its_data(fresh: tuple[Path, str], later: Path) -> None:
    database = with_data(*fresh)
    database.write_now(migrate, head="9999", more=[later])
    database.write_now(migrate, head="9999", more=[later])  # nothing is left to do
    assert database.read_now(lambda conn: conn.execute(text("SELECT mood, message_count FROM sessions")).all()) == [
        ("calm", 1)
    ]
    database.close()


def test_before_an_upgrade_a_copy_is_kept_for_some_days_and_deleting_takes_it_away(home: Path) -> None:
    database = with_data(home, "")
    session_id = database.read_now(store.recent)[0].id
    database.write_now(lambda conn: conn.execute(text("UPDATE alembic_version SET version_num = '0011'")))
    database.close()
    copy = keep_copy(home / "state.db")
    assert copy == home / "state.before-0011.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as conn:
        assert conn.execute("SELECT content FROM messages").fetchall() == [("kept",)]
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as conn:
        conn.execute("UPDATE alembic_version SET version_num = ?", (HEAD,))
    drop_copies(home, older_than=0)
    assert copy.exists()
    assert keep_copy(home / "state.db") is None
    database = open_database(home, "")
    assert copy.exists()
    erase(home, database, [session_id], by="ann", now=1)
    database.close()
    assert not copy.exists()


def test_a_copy_in_which_a_forgotten_note_stands_is_taken_away(home: Path) -> None:
    copy = home / "state.before-0002.db"
    with closing(sqlite3.connect(copy)) as conn:
        conn.execute("CREATE TABLE forgotten (id INTEGER PRIMARY KEY)")
        conn.execute("INSERT INTO forgotten VALUES (3)")
        conn.commit()
    (older := home / "state.before-0001.db").touch()
    drop_copies_with_forgotten(home, 0)
    assert older.exists()
    drop_copies_with_forgotten(home, 3)
    assert (copy.exists(), older.exists()) == (True, False)
    drop_copies_with_forgotten(home, 4)
    assert not copy.exists()


OLDEST_ROWS = """
INSERT INTO sessions (id, session_key, source, agent, started_at, message_count, ns, settled_to, indexed_to)
    VALUES ('s', 'agent:main:cli:local:dm:x', 'cli', 'main', 1, 1, 'agent:main', 1, {indexed_to});
INSERT INTO messages (session_id, role, content, created_at) VALUES ('s', 'user', 'kept', 2);
INSERT INTO asks (run_id, tool_call_id, kind, question, options, created_at) VALUES ('r', 'c', 'question', 'Which?', '["Red"]', 3)
"""


def test_the_oldest_database_is_upgraded_with_its_data(
    fresh: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_it_was(conn: Connection) -> None:
        migrations.upgrade(conn, to=OLDEST)
        # What SQLite's index held at that time is indexed anew.
        indexed_to = int(conn.dialect.name == "sqlite")
        for statement in OLDEST_ROWS.format(indexed_to=indexed_to).split(";\n"):
            conn.exec_driver_sql(statement)

    with monkeypatch.context() as patch:
        patch.setattr("sessions.db.migrate", as_it_was)
        open_database(*fresh).close()
    database = open_database(*fresh)
    assert database.read_now(differences) == []
    (session,) = database.read_now(store.recent)
    assert [(m.content, m.token_count) for m in database.read_now(store.read_messages, session.id)] == [("kept", 1)]
    ask = database.read_now(asks.of_call, "r", "c")
    assert ask
    assert (ask.question, ask.options) == ("Which?", ("Red",))
    index_all(database)
    assert found(database, "kept", ns=session.ns) == ["kept"]
    database.close()


def test_a_database_from_before_the_oldest_is_refused_with_a_sentence(fresh: tuple[Path, str]) -> None:
    database = with_data(*fresh)
    database.write_now(lambda conn: conn.execute(text("UPDATE alembic_version SET version_num = '0010'")))
    database.close()
    with pytest.raises(OlderSchema, match="Open it once with an earlier version") as refusal:
        open_database(*fresh)
    assert refusal.value.exit_code == 2
    assert not list(fresh[0].glob("state.before-*.db"))


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(fresh: tuple[Path, str], later: Path) -> None:
    file = later / "v9999_later.py"
    file.write_text(file.read_text() + '    op.execute("INSERT INTO nowhere VALUES (1)")\n')
    database = with_data(*fresh)
    with pytest.raises(Exception, match="nowhere"):
        database.write_now(migrate, head="9999", more=[later])
    assert database.read_now(differences) == []
    database.close()
    open_database(*fresh).close()


def test_a_newer_database_is_refused_with_a_sentence(fresh: tuple[Path, str], later: Path) -> None:
    database = with_data(*fresh)
    database.write_now(migrate, head="9999", more=[later])
    database.close()
    with pytest.raises(NewerSchema, match="newer hermes: install that version") as refusal:
        open_database(*fresh)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(("usable_from", "usable"), [(HEAD, True), ("9998", False), (None, False)])
def test_a_newer_database_may_allow_this_version(
    fresh: tuple[Path, str], later: Path, usable_from: str | None, *, usable: bool
) -> None:
    def allow(conn: Connection) -> None:
        conn.execute(meta.delete())
        if usable_from is not None:
            conn.execute(insert(meta), {"key": "usable_from", "value": usable_from})

    database = with_data(*fresh)
    database.write_now(migrate, head="9999", more=[later])
    database.write_now(allow)
    database.close()
    if not usable:
        with pytest.raises(NewerSchema):
            open_database(*fresh)
        return
    database = open_database(*fresh)
    assert len(database.read_now(store.recent)) == 1
    database.close()


def test_many_that_open_a_new_home_at_once_all_find_it_ready(fresh: tuple[Path, str]) -> None:
    failures: list[BaseException] = []

    def open_and_use() -> None:
        try:
            database = open_database(*fresh)
            database.read_now(lambda conn: conn.execute(select(meta)).all())
            database.close()
        except BaseException as error:  # noqa: BLE001  # the test tells of it
            failures.append(error)

    threads = [threading.Thread(target=open_and_use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []


def test_opening_a_database_of_this_version_imports_no_alembic(home: Path) -> None:
    script = "import sys; from pathlib import Path; from sessions.db import open_database; open_database(Path(sys.argv[1])).close();"
    script += "print('alembic' in sys.modules)"
    said = [
        subprocess.run(
            [sys.executable, "-c", script, home], capture_output=True, text=True, cwd=ROOT, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert said == ["True", "False"]
