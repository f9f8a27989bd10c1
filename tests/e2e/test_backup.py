"""A backup under load is whole, and a daemon goes on with it elsewhere. The status is asked from another process."""

import asyncio
import json
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gateway.cli.main import hermes as command
from sessions import outbox, runs, store
from sessions.db import open_database
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Content
from sessions.records import InboxRow, Message, Route
from tests.e2e.telegram.daemon import save
from tests.e2e.test_http_daemon import HttpDaemon
from tests.machine import free_port


def hermes(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), env={"HERMES_HOME": str(home), "HERMES_DEBUG": None})


def exported(home: Path, to: Path) -> dict[str, list[tuple[str, str]]]:
    assert hermes(home, "sessions", "export", str(to)).exit_code == 0
    found = [json.loads(line) for line in to.read_text().splitlines()]
    return {one["session_key"]: [(m["role"], m["content"]) for m in one["messages"]] for one in found}


def stored(home: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(home / "state.db")) as conn:
        rows = conn.execute("SELECT attachments FROM messages WHERE attachments IS NOT NULL").fetchall()
    return [file for (row,) in rows for file in json.loads(row)]


async def started(home: Path) -> HttpDaemon:
    home.mkdir(mode=0o700, exist_ok=True)
    port = free_port()
    save(home / "config.yaml", yaml.safe_dump({"model": {"provider": "practice"}, "api": {"port": port}}))
    daemon = HttpDaemon(home, port)
    await daemon.start()
    return daemon


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


async def say(daemon: HttpDaemon, session: str, text: str, *parts: Any) -> Any:
    content = [{"type": "text", "text": text}, *parts] if parts else text
    body = {"model": "hermes", "messages": [{"role": "user", "content": content}]}
    return await daemon.post("/v1/chat/completions", body, X_Hermes_Session_Id=session)


async def chatter(daemon: HttpDaemon, session: str) -> None:
    for number in range(1_000_000):
        await say(daemon, session, f"message {number}")


async def test_a_backup_under_load_is_whole_and_goes_on_elsewhere(tmp_path: Path):
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "saved.tar.gz"
    daemon = await started(here)
    (here / "skills" / "tea").mkdir(parents=True)
    (here / "skills" / "tea" / "SKILL.md").write_text("Boil water.")
    try:
        await say(daemon, "before", "this was said before")
        await say(daemon, "before", f"look, it is in {here}/workspace", PICTURE)
        talking = [asyncio.create_task(chatter(daemon, f"busy{number}")) for number in range(4)]
        await say(daemon, "beside", "so much is being said")
        assert (await asyncio.to_thread(hermes, here, "backup", str(file))).exit_code == 0
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
    finally:
        await daemon.kill()
    assert file.stat().st_mode & 0o777 == 0o600

    restored = hermes(there, "restore", str(file))
    assert restored.exit_code == 0, restored.output
    assert (there / "skills" / "tea" / "SKILL.md").read_text() == "Boil water."
    assert there.stat().st_mode & 0o777 == 0o700
    assert [Path(each["path"]).is_relative_to(there) and Path(each["path"]).exists() for each in stored(there)] == [
        True
    ]
    old, new = exported(here, tmp_path / "old.jsonl"), exported(there, tmp_path / "new.jsonl")
    assert new["agent:main:api:local:before"] == old["agent:main:api:local:before"]
    for key, messages in new.items():
        assert old[key][: len(messages)] == messages
    again = await started(there)
    try:
        answer = await say(again, "before", "and this after")
        assert "and this after" in answer["choices"][0]["message"]["content"]
    finally:
        await again.kill()


def test_what_is_there_is_never_replaced_without_a_word(tmp_path: Path):
    home, file = tmp_path / "home", tmp_path / "saved.tar"
    assert "nothing to save" in hermes(home, "backup", str(file)).stderr
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    assert ".tar.gz" in hermes(home, "backup", str(tmp_path / "saved.zip")).stderr
    assert hermes(home, "backup", str(file)).exit_code == 0
    for arguments in (("backup", str(file)), ("restore", str(file))):
        refused = hermes(home, *arguments)
        assert refused.exit_code == 1
        assert "--yes" in refused.stderr
    assert hermes(home, "restore", str(file), "--yes").exit_code == 0
    (aside,) = tmp_path.glob("home.before-*")
    assert (aside / "state.db").exists()


@pytest.mark.parametrize("content", [b"", b"no archive at all", None])
def test_what_is_no_backup_changes_nothing(tmp_path: Path, content: bytes | None):
    home, file = tmp_path / "home", tmp_path / "saved.tar"
    if content is None:
        with tarfile.open(file, "w") as archive:
            archive.add(__file__, "../escaped.py")
    else:
        file.write_bytes(content)
    refused = hermes(home, "restore", str(file))
    assert refused.exit_code == 1
    assert "Nothing was changed." in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not home.exists()
    assert not (tmp_path / "escaped.py").exists()


def entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "planted",
    [
        [entry("workspace/a", tarfile.SYMTYPE, "../../outside")],
        [entry("workspace/a", tarfile.SYMTYPE, "."), entry("workspace/a/b", tarfile.LNKTYPE, "api_key")],
        [entry("workspace/pipe", tarfile.FIFOTYPE)],
        [entry("workspace/sparse", tarfile.GNUTYPE_SPARSE)],
        [entry("state.db", tarfile.REGTYPE), entry("state.db", tarfile.REGTYPE)],
    ],
)
def test_a_backup_holds_ordinary_files_and_folders_only(tmp_path: Path, planted: list[tarfile.TarInfo]):
    home, file = tmp_path / "home", tmp_path / "saved.tar"
    (tmp_path / "backup.json").write_text('{"program": "hermes-gateway"}')
    with tarfile.open(file, "w") as archive:
        archive.add(tmp_path / "backup.json", "backup.json")
        for each in planted:
            archive.addfile(each)
    refused = hermes(home, "restore", str(file))
    assert (refused.exit_code, home.exists()) == (1, False)
    assert "Nothing was changed." in refused.stderr


def test_a_file_with_two_names_is_saved_twice(tmp_path: Path):
    home, there, file = tmp_path / "home", tmp_path / "there", tmp_path / "saved.tar"
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    (home / "skills").mkdir()
    (home / "skills" / "one").write_text("tea")
    (home / "skills" / "two").hardlink_to(home / "skills" / "one")
    assert hermes(home, "backup", str(file)).exit_code == 0
    assert hermes(there, "restore", str(file)).exit_code == 0
    assert (there / "skills" / "two").read_text() == "tea"


def test_more_than_a_home_holds_is_restored_only_when_that_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home, there, file = tmp_path / "home", tmp_path / "there", tmp_path / "saved.tar"
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    assert hermes(home, "backup", str(file)).exit_code == 0
    for most in ("MOST_BYTES", "MOST_FILES"):
        with monkeypatch.context() as small:
            small.setattr(f"gateway.cli.backup.{most}", 1)
            refused = hermes(there, "restore", str(file))
            assert (refused.exit_code, there.exists()) == (1, False)
            assert "--large" in refused.stderr
            assert hermes(there, "restore", str(file), "--large", "--yes").exit_code == 0
        shutil.rmtree(there)


def test_a_restored_home_repeats_nothing_that_the_original_may_have_done(tmp_path: Path):
    home, there, file = tmp_path / "home", tmp_path / "there", tmp_path / "saved.tar"
    home.mkdir(mode=0o700)
    database = open_database(home)
    route = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7"))
    key = "agent:main:telegram:dm"
    new = InboxRow(dedup_key="tg:1:1", session_key=key, messages=[Message(content="hello")], route=route)
    database.write_now(runs.accept, new, runs.Opening(), 1)
    database.write_now(outbox.put, route, Content(text="on its way"), 1, dedup_key="x", session_key=key)
    database.close()
    assert hermes(home, "backup", str(file)).exit_code == 0
    restored = hermes(there, "restore", str(file))
    assert "1 message that still had to be sent then" in restored.stdout
    database = open_database(there)
    assert database.read_now(runs.in_flight) == []
    assert [row.content.text for row in database.read_now(outbox.dead_letters)] == ["on its way"]  # type: ignore[union-attr]
    session = database.read_now(store.active, key)
    assert session is not None
    assert [message.content for message in database.read_now(store.read_messages, session.id)] == ["hello"]
    database.close()


def test_a_damaged_database_is_not_restored(tmp_path: Path):
    home, file, folder = tmp_path / "home", tmp_path / "saved.tar", tmp_path / "broken"
    folder.mkdir()
    (folder / "backup.json").write_text('{"program": "hermes-gateway"}')
    (folder / "state.db").write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    with tarfile.open(file, "w") as archive:
        for path in folder.iterdir():
            archive.add(path, path.name)
    assert hermes(home, "restore", str(file)).exit_code != 0
    assert not home.exists()


async def test_the_status_is_asked_from_another_process(tmp_path: Path):
    home = tmp_path / "home"
    assert hermes(home, "gateway", "status").exit_code == 1
    daemon = await started(home)
    try:
        await say(daemon, "s", "hello")
        async with asyncio.timeout(30):
            while hermes(home, "gateway", "status").exit_code:
                await asyncio.sleep(0.05)
        told = json.loads(hermes(home, "gateway", "status", "--json").stdout)
        (worker,) = told["workers"]
        assert worker["state"] == "ready"
        assert worker["role"] == "all"
        assert worker["url"] == daemon.url
        assert {"name", "host", "pid", "version", "last_seen"} <= worker.keys()
        assert told["leases"] == []
        assert told["runs"] == {"running": 0, "waiting_on_human": 0}
        assert told["resets"] == []  # sessions of programs have no resets
        save(home / "config.yaml", "session_reset: {mode: dayly}\n")
        async with asyncio.timeout(30):
            while "dayly" not in (said := hermes(home, "gateway", "status").stdout):
                await asyncio.sleep(0.05)
        assert "the last good one counts" in said
        assert hermes(home, "backup", str(tmp_path / "saved.tar")).exit_code == 0
        refused = hermes(home, "restore", str(tmp_path / "saved.tar"), "--yes")
        assert refused.exit_code == 1
        assert "Stop it first" in refused.stderr
        beside = hermes(tmp_path / "beside", "restore", str(tmp_path / "saved.tar"))
        assert "Run only one of the two" in beside.stdout
    finally:
        await daemon.kill()
    lost = hermes(home, "gateway", "status")
    assert lost.exit_code == 1
    assert "was killed" in lost.stdout
    with sqlite3.connect(home / "state.db") as conn:
        assert conn.execute("SELECT count(*) FROM workers").fetchone() == (1,)
