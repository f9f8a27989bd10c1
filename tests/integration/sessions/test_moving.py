"""`hermes migrate`: a home goes on in another database as if nothing had been; what cannot be moved is refused; killed at any moment, one side is in force."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Connection, insert, select, text

from gateway.cli.main import hermes as command
from gateway.cli.process import single_instance
from gateway.config.sources import database_url
from gateway.scheduler.jobs import Jobs
from sessions import audit, db, jobs, memory, moving, outbox, responses, restored, store, workers, workspace_files
from sessions.clock import now_ms
from sessions.db import Database, drop_copies, open_database, unfinished_moves
from sessions.db.schema import inbox, leases, metadata
from sessions.db.schema import workers as workers_table
from sessions.db.schema import workspace_files as files_table
from sessions.erase import erase
from sessions.errors import Busy, Unusable
from sessions.keys import OWNER_NAMESPACE
from sessions.memory import vectors
from sessions.memory.vectors import QueryVector, packed
from sessions.messages import Attachment, AttachmentKind, Content
from sessions.records import Message, OutState, Role, RunStatus
from sessions.shared_folders import SharedFolders, everything, folder_of
from tests.conftest import PostgresServer
from tests.fakes.model_replies import call, calls
from tests.integration.runs.worker_in_process import DM, KEY, worker_in_process
from tests.integration.sessions.writing import conversation, found, index_all, open_session

CONFIG = 'model: {provider: practice}\n# kept\ndatabase:\n  url: "" # here\n'
FILE = Attachment(kind=AttachmentKind.FILE, name="plan.pdf", path="/home/inbox/plan.pdf")
SEARCHES = ("wandering albatross", '"rubber boots"', "albatr*", "Ann", "cliffs NOT boots")


def hermes(home: Path, *arguments: str, **environ: str) -> Result:
    environment = {"HERMES_HOME": str(home), "HERMES_DEBUG": None, "HERMES_DATABASE__URL": None, **environ}
    return CliRunner().invoke(command, list(arguments), env=environment)


def migrated(home: Path, to: str) -> Result:
    result = hermes(home, "migrate", "--to", to)
    assert result.exit_code == 0, result.output
    return result


def url_of(home: Path) -> str:
    return database_url(home, {})


def rows(conn: Connection) -> dict[str, list[Any]]:
    """Everything that has to arrive, as the code reads it."""
    found = {}
    for table in metadata.sorted_tables:
        if table not in (leases, workers_table, files_table):
            columns = [column for column in table.c if not column.name.startswith("lease_")]
            found[table.name] = sorted((tuple(row) for row in conn.execute(select(*columns))), key=repr)
    found["meta"] = [
        row for row in found["meta"] if row[0] not in {*unfinished_moves.MARKS, "probe", workspace_files.NAME}
    ]
    found["audit"] = [row for row in found["audit"] if row[3] != "home.migrated"]
    return found


@pytest.fixture
def home(new_home: Path) -> Path:
    return new_home


@pytest.fixture(params=["sqlite to postgresql", "postgresql to sqlite"])
def ways(request: pytest.FixtureRequest, home: Path, fresh_postgres_url: str) -> tuple[Path, str]:
    """A home on one kind of database, and where it is to move."""
    (home / "config.yaml").write_text(CONFIG)
    if request.param == "sqlite to postgresql":
        return home, fresh_postgres_url
    (home / "config.yaml").write_text(CONFIG.replace('""', "${DATABASE_URL}"))
    (home / ".env").write_text(f"DATABASE_URL='{fresh_postgres_url}'\n")
    return home, "sqlite"


def fill(database: Database) -> dict[str, Any]:
    """What a real home has, most of it half done. Returns the ids that are needed later."""
    conversation(
        database, "agent:main:telegram:group:-5", "wandering albatross in rubber boots", "on the cliffs", sender="Ann"
    )
    index_all(database)
    conversation(database, "agent:main:telegram:group:-5", "not indexed yet \U0001f4a1")

    def write(conn: Connection) -> dict[str, Any]:
        now = now_ms()
        note = memory.note(conn, OWNER_NAMESPACE, "Ann has two albatrosses", now, src=[2])
        memory.note(conn, OWNER_NAMESPACE, "Ann has three albatrosses", now, replaces=note.id)
        vectors.put(conn, OWNER_NAMESPACE, "embedder", {note.id: packed([0.6, 0.8])})
        gone = memory.note(conn, OWNER_NAMESPACE, "the code of the safe is 1234", now, src=[1])
        memory.forget(conn, OWNER_NAMESPACE, gone.id)
        session = open_session(conn, "agent:main:discord:channel:9")
        store.append(conn, session.id, [Message(role=Role.USER, content="see this", attachments=(FILE,))], now)
        newest = open_session(conn, "agent:main:cli:gone")
        (last,) = store.append(conn, newest.id, [Message(role=Role.USER, content="deleted again")], now)
        store.delete_session(conn, newest.id)
        responses.keep(
            conn,
            responses.Kept(
                id="resp_1",
                key_name="local",
                created_at=now,
                answer={"id": "resp_1", "output": []},
                input=[{"role": "user", "content": "hi"}],
            ),
        )
        job = jobs.create(conn, jobs.new_job(name="tea", prompt="boil", schedule="30m", timezone="UTC", now=now))
        for number in range(2):
            outbox.put(conn, DM, Content(text=f"part {number}"), now, dedup_key=f"half{number}", session_key=KEY)
        (row,) = outbox.claim(conn, "telegram", "a-host:1:2:dead", now, lease_ms=3_600_000)
        outbox.mark_sending(conn, row.id)
        conn.execute(insert(leases), {"name": "telegram", "owner": "somebody", "until": now + 3_600_000})
        return {"last": last, "job": job.id, "sending": row.id, "note": note.id}

    return database.write_now(write)


async def test_a_home_goes_on_in_the_other_database(ways: tuple[Path, str]):
    home, to = ways
    async with worker_in_process(
        home, [calls(call("ask_human", {"question": "Which boots?"}, id="c1"))], url=url_of(home)
    ) as there:
        waiting = await there.say("Buy boots")
        assert waiting.status is RunStatus.WAITING
        ids = fill(there.database)
        if not url_of(home):  # PostgreSQL takes no NUL, and a text of SQLite may have one
            there.database.write_now(
                lambda conn: conn.execute(
                    text("UPDATE runs SET error = 'nul' || char(0) WHERE id = :id"), {"id": waiting.id}
                )
            )
        before = there.database.read_now(rows)
        hits = {query: found(there.database, query) for query in SEARCHES}
    before["runs"] = [tuple("nul\ufffd" if value == "nul\0" else value for value in row) for row in before["runs"]]

    said = migrated(home, to).output
    assert "are the same on both sides" in said
    assert (home / "config.yaml").read_text() == CONFIG.replace('""', "${DATABASE_URL}" if to != "sqlite" else '""')
    assert bool(list(home.glob("state.before-move-*.db"))) is (to != "sqlite")
    assert (home / "state.db").exists() is (to == "sqlite")
    assert list(home.glob("state.moving*")) == []
    assert hermes(home, "migrate", "--to", to).exit_code == 2  # it is there

    async with worker_in_process(home, ["Rubber ones, then."], url=url_of(home)) as here:
        database = here.database
        assert database.read_now(rows) == before
        assert {query: found(database, query) for query in SEARCHES} == hits
        assert [act.action for act in database.read_now(audit.listing, action="home")] == ["home.migrated"]
        await asyncio.to_thread(restored.require_complete, home, database)

        answered = await here.say("rubber ones")
        assert (answered.id, answered.status) == (waiting.id, RunStatus.COMPLETED)
        assert (await here.transcript())[-1] == ("assistant", "Rubber ones, then.")
        messages = await here.messages()
        assert messages[-1].id > ids["last"]  # the id of a deleted message is given to no other

        assert database.write_now(outbox.interrupted, "telegram", now_ms()) == []
        (again, *_) = database.write_now(outbox.claim, "telegram", "me", now_ms(), lease_ms=1_000, chat="7")
        assert (again.id, again.state, again.doubts) == (ids["sending"], OutState.UNKNOWN, 1)

        here.app.clock = lambda: now_ms() + 31 * 60_000
        await Jobs(here.app).tick()
        query = select(inbox.c.session_key).where(inbox.c.kind == "job")
        assert database.read_now(lambda conn: list(conn.scalars(query))) == [f"agent:main:job:{ids['job']}"]
        assert database.read_now(memory.forgotten_sources, OWNER_NAMESPACE) == {1}
        asked = QueryVector(model="embedder", vector=[0.6, 0.8])
        assert database.read_now(vectors.nearest, OWNER_NAMESPACE, asked) == [2]
        new = responses.Kept(id="resp_2", key_name="local", created_at=2, answer={}, previous_id="resp_1")
        kept = database.read_now(responses.get, "resp_1", "local")
        assert database.write_now(responses.continue_from, new, kept, now_ms()).session_key is not None
        index_all(database)
        assert found(database, "indexed") == ["not indexed yet \U0001f4a1"]
        session = database.read_now(store.active, "agent:main:telegram:group:-5")
        assert session is not None
        # It takes its words out of the new index, and the old file away.
        erase(home, database, [session.id], by="cli:ann", now=now_ms())
        assert found(database, "cliffs") == []
    assert list(home.glob("state.before-move-*.db")) == []


def small_home(home: Path, url: str) -> None:
    database = open_database(home, url)
    conversation(database, "agent:main:telegram:dm", *(f"number {n} of the puffins" for n in range(200)))
    index_all(database)
    database.close()


FILES = {
    (OWNER_NAMESPACE, "inbox/photo.png"): "photo",
    (OWNER_NAMESPACE, "out/plan.md"): "plan",
    ("skills", "deploy/.namespace"): OWNER_NAMESPACE,
    ("skills", "deploy/SKILL.md"): "Deploying",
    ("outgoing", "0123/plan.pdf"): "waits",
}


def write_files(home: Path, url: str) -> Path:
    """Where the files of the home are: in the folders, or by another home in the database of a team. Returns that home."""
    folder = home.with_name("other") if url else home
    for (ns, path), words in FILES.items():
        file = folder_of(folder, ns) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(words)
    if url:
        with contextlib.closing(open_database(home, url)) as database:
            shared = SharedFolders(folder, database)
            for ns in (OWNER_NAMESPACE, "skills"):
                shared.give(ns)
            shared.put(folder / "outgoing" / "0123" / "plan.pdf")
    return folder


def files_of(home: Path) -> dict[tuple[str, str], str]:
    """The files of the side that is in force."""
    if not (url := url_of(home)):
        return {(ns, path): (folder_of(home, ns) / path).read_text() for ns, path in everything(home)}
    with contextlib.closing(open_database(home, url)) as database:
        found = database.read_now(workspace_files.digests)
        return {key: database.read_now(workspace_files.whole, *key).data.decode() for key in found}


def test_files_and_skills_go_along(ways: tuple[Path, str], monkeypatch: pytest.MonkeyPatch):
    home, to = ways
    theirs = write_files(home, url_of(home))
    photo = replace(FILE, path=str(theirs / "workspace" / OWNER_NAMESPACE / "inbox" / "photo.png"))

    def say(conn: Connection) -> None:
        session = open_session(conn, KEY)
        store.append(conn, session.id, [Message(role=Role.USER, content="see", attachments=(photo, FILE))], now_ms())

    with contextlib.closing(open_database(home, url_of(home))) as database:
        database.write_now(say)
    with monkeypatch.context() as wrong:
        where, what = (workspace_files, "digests") if to != "sqlite" else (moving, "_digest_here")
        wrong.setattr(where, what, lambda *_, **__: {})
        refused = hermes(home, "migrate", "--to", to)
        assert (refused.exit_code, "are not the same on both sides" in refused.output) == (1, True), refused.output
    assert files_of(home) == FILES
    assert "5 files of the agent" in migrated(home, to).output
    assert files_of(home) == FILES
    assert not (home / "synced").exists()
    with contextlib.closing(open_database(home, url_of(home))) as database:
        session = database.read_now(store.active, KEY)
        assert session is not None
        (said,) = database.read_now(store.read_messages, session.id)
        assert said.attachments == (replace(photo, path=str(home / Path(photo.path).relative_to(theirs))), FILE)


def test_what_has_moved_is_used_by_nobody(ways: tuple[Path, str], tmp_path: Path):
    home, to = ways
    old_url = url_of(home)
    small_home(home, old_url)
    # It comes in while it moves, unseen.
    late = open_database(home, f"{old_url}&application_name=psql") if old_url else None
    migrated(home, to)
    if late is not None:
        with pytest.raises(Unusable, match="have moved to another"):
            late.write_now(open_session, "agent:main:cli:x")
        late.close()
    elsewhere = tmp_path / "node" if old_url else home
    elsewhere.mkdir(exist_ok=True)
    if not old_url:  # somebody takes the address out of the configuration
        (home / "config.yaml").write_text(CONFIG)
    with pytest.raises(Unusable, match=r"have moved to .*state.db on" if old_url else "database.url does not name it"):
        open_database(elsewhere, old_url)
    if old_url:
        assert "name an empty database" in hermes(home, "migrate", "--to", old_url).output
        database = open_database(home)
        database.close()
    else:
        (kept,) = home.glob("state.before-move-*.db")
        drop_copies(home, older_than=time.time() - 3600)
        assert kept.exists()
        kept.rename(home / "state.db")  # as the sentence says
        open_database(home).close()


def test_what_is_in_use_or_not_empty_is_refused(
    home: Path, fresh_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(moving, "ANYBODY_SECONDS", 0.2)
    monkeypatch.setattr(db.sqlite, "ALONE_MS", 100)
    (home / "config.yaml").write_text(CONFIG)
    assert "nothing to move" in hermes(home, "migrate", "--to", fresh_postgres_url).output
    small_home(home, "")

    def refused(code: int, words: str, to: str = fresh_postgres_url, **environ: str) -> None:
        result = hermes(home, "migrate", "--to", to, **environ)
        assert (result.exit_code, words in result.output) == (code, True), result.output
        assert (home / "config.yaml").read_text() == CONFIG
        assert list(home.glob("state.moving*")) == []
        open_database(home).close()

    refused(2, "in this very database already", "sqlite")
    refused(2, "--to takes sqlite, or an address", "mysql://x")
    refused(2, "HERMES_DATABASE__URL (environment", HERMES_DATABASE__URL="sqlite:///x")
    refused(1, "cannot be reached", "postgresql://nobody@127.0.0.1:1/x")
    with single_instance(home):
        refused(1, "A gateway runs on")
    chat = open_database(home)
    refused(1, "Leave every `hermes chat`")
    chat.close()
    node = tmp_path / "node"
    node.mkdir()
    other = open_database(node, fresh_postgres_url)
    refused(1, "Another hermes has")
    row = workers.WorkerRow(
        name="n",
        owner="elsewhere/1/1:1:1",
        host="elsewhere",
        pid=1,
        version="1",
        role="all",
        state=workers.WorkerState.READY,
        started_at=1,
        last_seen=now_ms(),
    )
    other.write_now(workers.report, row)
    refused(1, "A gateway runs on")
    other.write_now(workers.leave, "n")
    other.write_now(open_session, "agent:main:cli:x")
    other.close()
    refused(1, "is not empty: sessions has rows")
    (home / "config.yaml").write_text(CONFIG.replace('""', "${DATABASE_URL}"))
    (home / ".env").write_text(f"DATABASE_URL='{fresh_postgres_url}'\n")
    same = hermes(home, "migrate", "--to", f"{fresh_postgres_url}&connect_timeout=7")
    assert (same.exit_code, "very database" in same.output) == (2, True)
    assert "state.db is there already" in hermes(home, "migrate", "--to", "sqlite").output
    for place in ("plan.md", "node_modules/x.js"):
        file = home / "workspace" / OWNER_NAMESPACE / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    saved = hermes(home, "backup", str(tmp_path / "saved.tar"))
    assert "The sessions, the agent's files and skills are in PostgreSQL" in saved.output
    with tarfile.open(tmp_path / "saved.tar") as archive:
        assert [Path(name).name for name in archive.getnames() if "workspace" in name] == ["x.js"]
    assert "pg_dump --format=custom --file=hermes.dump 'postgresql://postgres@/fresh" in saved.output


def test_while_it_moves_nobody_else_comes_in(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unfinished_moves, "WAIT_SECONDS", 0.1)
    small_home(home, "")
    with (
        unfinished_moves.going_on(home, unfinished_moves.Move(token="t", to="x", leaves_file=True)),
        pytest.raises(Busy, match="is moving"),
    ):
        open_database(home)
    open_database(home).close()


# --- killed -----------------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from gateway.config.editing import Edit
from sessions import moving
from sessions.db import unfinished_moves
from gateway.cli.main import main

def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
def write_and_die(edit, home): write(edit, home), die()

write = Edit.write
match sys.argv.pop(1):
    case "copied": moving._copy_sequences = die
    case "arrived": Edit.write = die
    case "named": Edit.write = write_and_die
    case "put aside": unfinished_moves.put_aside = lambda home: (aside(home), die())
aside = unfinished_moves.put_aside
main()
"""
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("HERMES")}


def start_to_migrate(home: Path, to: str, moment: str = "") -> "subprocess.Popen[bytes]":
    arguments = [sys.executable, "-c", KILLED, moment, "--home", str(home), "migrate", "--to", to]
    return subprocess.Popen(arguments, env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def still_there(home: Path, expected: dict[str, list[Any]]) -> Database:
    """Opens the side that is in force; it has everything, and nothing of the other one is left."""
    database = open_database(home, url_of(home))
    assert database.read_now(rows) == expected
    assert (home / "state.db").exists() is not bool(url_of(home))
    assert list(home.glob("state.moving*")) == []
    return database


def test_killed_at_any_moment_one_side_is_in_force(ways: tuple[Path, str]):
    home, to = ways
    small_home(home, url_of(home))
    write_files(home, url_of(home))
    for number, moment in enumerate(("copied", "arrived", "named")):
        database = open_database(home, url_of(home))
        conversation(database, "agent:main:cli:later", f"kill {number}")
        expected = database.read_now(rows)
        database.close()
        assert start_to_migrate(home, to, moment).wait(60) == -signal.SIGKILL
        assert (bool(url_of(home)) is (to != "sqlite")) is (moment == "named")
        still_there(home, expected).close()
        assert files_of(home) == FILES
    database = still_there(home, expected)
    index_all(database)
    assert (len(found(database, "puffins", limit=500)), len(found(database, "kill"))) == (200, 3)
    database.close()


@pytest.mark.chaos
def test_killed_at_ten_random_moments(ways: tuple[Path, str], postgres_server: PostgresServer, tmp_path: Path):
    home, to = ways
    database = open_database(home, url_of(home))
    for n in range(100):
        conversation(database, f"agent:main:telegram:group:-{n}", *(f"{n} {m} of the gannets" for m in range(48)))
    conversation(database, "agent:main:telegram:dm", *(f"number {n} of the puffins" for n in range(200)))
    index_all(database)
    expected = database.read_now(rows)
    database.close()
    dice, seconds, arrived = random.Random(), 0.0, 0
    for number in range(11):
        copy, name = tmp_path / f"copy{number}", f"copy{number}"
        shutil.copytree(home, copy)
        postgres_server.run(f"CREATE DATABASE {name} TEMPLATE fresh")
        (copy / ".env").write_text(f"DATABASE_URL='{postgres_server.url(name)}'\n")
        there = to if to == "sqlite" else postgres_server.url(name)
        began = time.monotonic()
        process = start_to_migrate(copy, there)
        if number == 0:  # to know how long it takes
            assert process.wait() == 0
            seconds = time.monotonic() - began
        else:
            time.sleep(dice.uniform(0.1, 1.0) * seconds)
            process.kill()
            process.wait()
        still_there(copy, expected).close()
        if bool(url_of(copy)) is (to != "sqlite"):
            arrived += 1
        else:
            migrated(copy, there)
        database = still_there(copy, expected)
        assert len(found(database, "puffins", limit=500)) == 200
        database.close()
        postgres_server.run(f"DROP DATABASE {name} WITH (FORCE)")
    assert arrived < 11, "every kill came too late"
