"""Two homes on one PostgreSQL have the same files: what one changes the other gets, what both change is lost by neither."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from sessions import shared_folders, workspace_files
from sessions.db import Database, open_database
from sessions.errors import Invalid
from sessions.shared_folders import SharedFolders, local, require_same_folder
from sessions.workspace_files import OUTGOING, SKILLS
from tests.integration.runs.test_statements import counted

NS = "agent:main"


class TeamHome:
    def __init__(self, path: Path, database: Database) -> None:
        path.mkdir(exist_ok=True)
        self.path, self.shared = path, SharedFolders(path, database)

    def at(self, path: str, ns: str = NS) -> Path:
        return self.shared.folder(ns) / path

    def write(self, path: str, text: str, ns: str = NS) -> Path:
        self.at(path, ns).parent.mkdir(parents=True, exist_ok=True)
        self.at(path, ns).write_text(text)
        return self.at(path, ns)

    def files(self, ns: str = NS) -> dict[str, str]:
        folder = self.shared.folder(ns)
        found = sorted(each for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
        return {each.relative_to(folder).as_posix(): each.read_text() for each in found}


@pytest.fixture
def database(home: Path, postgres_url: str) -> Iterator[Database]:
    with contextlib.closing(open_database(home, postgres_url)) as opened:
        yield opened


@pytest.fixture
def a(home: Path, database: Database) -> TeamHome:
    return TeamHome(home / "a", database)


@pytest.fixture
def b(home: Path, database: Database) -> TeamHome:
    return TeamHome(home / "b", database)


def test_what_one_changes_and_deletes_the_other_gets(a: TeamHome, b: TeamHome):
    a.write("notes/plan.md", "one")
    a.write("build.sh", "true").chmod(0o700)
    a.shared.give(NS)
    b.shared.sync(NS)
    assert b.files() == a.files() == {"notes/plan.md": "one", "build.sh": "true"}
    assert os.access(b.at("build.sh"), os.X_OK)
    assert b.at("notes/plan.md").stat().st_mode & 0o777 == 0o600
    times = [one.at("build.sh").stat().st_mtime_ns // 1_000_000 for one in (a, b)]
    assert times[0] == times[1]
    b.write("notes/plan.md", "two")
    b.write("new.md", "three")
    b.at("build.sh").unlink()
    b.shared.give(NS)
    a.shared.sync(NS)
    assert a.files() == b.files() == {"notes/plan.md": "two", "new.md": "three"}
    b.at("notes/plan.md").unlink()
    b.at("new.md").unlink()
    b.shared.give(NS)
    a.shared.sync(NS)
    assert a.files() == {}
    assert not a.at("notes").exists(), "nor do empty folders stay"


def test_of_two_writers_the_last_counts_and_what_was_never_stored_stays_beside_it(a: TeamHome, b: TeamHome):
    a.write("plan.md", "base")
    a.shared.give(NS)
    b.shared.sync(NS)
    a.write("plan.md", "by a")
    b.write("plan.md", "by b")
    a.shared.give(NS)
    b.shared.give(NS)  # its tool was at work meanwhile
    a.shared.sync(NS)
    assert a.files() == {"plan.md": "by b"}
    a.write("plan.md", "stored")
    a.shared.give(NS)
    b.write("plan.md", "left by a killed process")
    b.shared.sync(NS)
    a.shared.sync(NS)
    assert a.files() == b.files() == {"plan.md": "stored", "plan (2).md": "left by a killed process"}
    a.at("plan.md").unlink()
    b.write("plan.md", "changed and not deleted")
    b.shared.give(NS)
    a.shared.give(NS)
    a.shared.sync(NS)
    assert a.files()["plan.md"] == "changed and not deleted"


def test_two_homes_from_before_lose_nothing(a: TeamHome, b: TeamHome):
    for one in (a, b):
        one.write("same.md", "same")
        one.write("plan.md", f"of {one.path.name}")
        one.write(f"{one.path.name}.md", "alone")
        one.shared.sync(NS)
    a.shared.sync(NS)
    assert a.files() == b.files()
    assert a.files() == {"same.md": "same", "plan.md": "of a", "plan (2).md": "of b", "a.md": "alone", "b.md": "alone"}


def test_only_a_deletion_deletes(a: TeamHome, b: TeamHome, database: Database, home: Path):
    a.write("plan.md", "one")
    a.shared.give(NS)
    b.shared.sync(NS)
    for path in sorted(b.shared.folder(NS).rglob("*"), reverse=True):
        path.unlink()
    b.shared.folder(NS).rmdir()  # the folder as a whole: nobody who works here does that
    b.shared.sync(NS)
    assert b.files() == {"plan.md": "one"}
    database.write_now(lambda conn: conn.execute(text("DELETE FROM meta")))  # another database, as far as one can see
    database.write_now(workspace_files.remove_all, NS)
    again = TeamHome(home / "b", database)
    again.shared.sync(NS)
    assert again.files() == {"plan.md": "one"}
    a.shared.sync(NS)
    assert a.files() == {"plan.md": "one"}


def test_what_is_no_file_of_ours_is_left_alone(a: TeamHome, b: TeamHome, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_folders, "MAX_BYTES", 100)
    monkeypatch.setattr(shared_folders, "MAX_FILES", 3)
    a.write("a.md", "kept")
    a.write("node_modules/x/index.js", "made anew")
    a.write(".plan.md.part", "half")
    a.write("large.bin", "x" * 101)
    a.at("link").symlink_to("/etc/hostname")
    os.mkfifo(a.at("pipe"))
    a.write("\udce9.md", "a name that is no text")
    assert a.shared.give(NS) == ["large.bin"]
    b.write("b.md", "")
    b.write("c.md", "")
    b.write("d.md", "one too many")
    assert b.shared.sync(NS) == ["d.md"]
    assert b.files() == {"a.md": "kept", "b.md": "", "c.md": "", "d.md": "one too many"}
    a.shared.sync(NS)
    assert a.at("large.bin").exists()
    # A name in the table leads nowhere else, whoever has written it there.
    b.at("out").symlink_to(b.path)
    for path in ("out/evil", "../evil", "/evil"):
        file = workspace_files.NewFile(path=path, sha256="0", size=1, mtime=0, executable=False, data=b"x")
        a.shared._database.write_now(workspace_files.change, NS, [file], {})
    b.shared.sync(NS)
    assert not list(b.path.rglob("evil")) + list(b.path.parent.glob("evil"))


def test_a_received_file_never_takes_the_name_of_another(a: TeamHome, b: TeamHome):
    def save(home: TeamHome, text: str) -> Path:
        return home.shared.receive(NS, lambda: home.write("inbox/photo.png", text))

    assert save(a, "of a").name == "photo.png"
    assert save(b, "of b").name == "photo (2).png"
    b.shared.sync(NS)
    assert b.files() == {"inbox/photo.png": "of a", "inbox/photo (2).png": "of b"}
    b.shared.discard(NS, [b.at("inbox/photo (2).png")])
    a.shared.sync(NS)
    assert a.files() == {"inbox/photo.png": "of a"}


def test_a_stored_path_leads_to_the_same_file_in_every_home(a: TeamHome, b: TeamHome):
    stored = a.shared.receive(NS, lambda: a.write("inbox/photo.png", "photo"))
    waits = a.write("0123/plan.pdf", "plan", OUTGOING)
    a.shared.put(waits)
    places = [local(b.path, str(each)) for each in (stored, waits)]
    b.shared.bring(places)
    assert [each.read_text() for each in places] == ["photo", "plan"]
    assert all(each.is_relative_to(b.path) for each in places)
    for path in ("/etc/passwd", "/x/workspace/../inbox/y"):
        assert local(b.path, path) == Path(path)


def test_a_skill_travels_with_whose_it_is(a: TeamHome, b: TeamHome):
    def skill(home: TeamHome, text: str, owner: str) -> None:
        home.write("deploy/.namespace", owner, SKILLS)
        home.write("deploy/SKILL.md", text, SKILLS)

    skill(a, "how ann deploys", "ann")
    a.shared.give(SKILLS)
    b.shared.sync(SKILLS)
    for path in ("deploy/SKILL.md", "deploy/.namespace"):
        a.at(path, SKILLS).unlink()
    skill(a, "how bob deploys", "bob")
    a.shared.give(SKILLS)
    b.write("deploy/SKILL.md", "ann's second thought", SKILLS)
    b.shared.give(SKILLS)
    assert b.files(SKILLS) == {"deploy/.namespace": "ann", "deploy/SKILL.md": "ann's second thought"}
    a.shared.sync(SKILLS)
    assert a.files(SKILLS) == b.files(SKILLS), "never the words of one under the name of the other"


def test_old_files_go_and_what_waits_for_being_sent_stays(a: TeamHome, b: TeamHome, database: Database):
    for path in ("inbox/old.png", "inbox/new.png", "old.md"):
        os.utime(a.write(path, "x"), (1, 1) if "old" in path else None)
    a.shared.sync(NS)
    b.shared.sync(NS)
    assert database.write_now(workspace_files.prune_received, "inbox", 2_000) == 1
    b.shared.sync(NS)
    assert set(b.files()) == {"inbox/new.png", "old.md"}
    for folder in ("waits", "sent"):
        a.shared.put(a.write(f"{folder}/plan.pdf", "x", OUTGOING))
    database.write_now(workspace_files.prune_outgoing, ["waits"], 2**62)
    assert set(database.read_now(workspace_files.listing, OUTGOING)) == {"waits/plan.pdf"}


def test_nothing_is_asked_where_nothing_was_changed(a: TeamHome):
    a.write("plan.md", "one")
    a.shared.sync(NS)
    with counted() as found:
        a.shared.give(NS)
    assert not found
    with counted() as found:
        a.shared.sync(NS)
    assert len([each for each in found if each.startswith("SELECT")]) == 1


_WRITER = """
import sys
from pathlib import Path
from sessions.db import open_database
from sessions.shared_folders import SharedFolders
home = Path(sys.argv[1])
shared = SharedFolders(home, open_database(home, sys.argv[2]))
for number in range(100_000):
    file = shared.folder("agent:main") / f"{number % 7}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(number))
    shared.give("agent:main")
    print(number, flush=True)
"""


def test_what_a_killed_process_had_stored_is_there_for_the_next(a: TeamHome, b: TeamHome, postgres_url: str):
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(a.path), postgres_url], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    said = [int(writer.stdout.readline()) for _ in range(40)]
    writer.kill()
    said += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    stored = {f"{number % 7}.md": number for number in said}
    b.shared.sync(NS)
    found = {path: int(text) for path, text in b.files().items()}
    assert {path: number for path, number in found.items() if number <= said[-1]}.items() <= stored.items()
    assert all(found[path] >= number for path, number in stored.items())
    a.shared.sync(NS)
    b.shared.sync(NS)
    assert a.files() == b.files()


def test_one_folder_for_all_has_to_be_the_same(a: TeamHome, b: TeamHome, database: Database):
    for _ in range(2):
        require_same_folder(a.path, database)
    with pytest.raises(Invalid, match="is not the folder that the other gateways"):
        require_same_folder(b.path, database)
