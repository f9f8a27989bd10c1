"""Sessions get a title, leave as JSON lines and come back."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cli_sessions.stock import CLI_ID, ENDED_ID, HERMES, LATER_ID, LONG_ID, really

# --- rename, stats ----------------------------------------------------------------------------------------------------


def test_rename_gives_and_takes_a_title(stocked, run):
    assert run("rename", CLI_ID, "Two", "words").stdout == f"{CLI_ID} is now “Two words”.\n"
    assert json.loads(run("show", CLI_ID, "--json").stdout)["title"] == "Two words"

    assert run("rename", CLI_ID, "").stdout == f"{CLI_ID} has no title any more.\n"
    assert json.loads(run("show", CLI_ID, "--json").stdout)["title"] is None


def test_a_title_has_200_characters_at_most(stocked, run):
    assert (
        run("rename", CLI_ID, "x" * 300).stdout
        == f"{CLI_ID} is now “{'x' * 200}”. Titles have 200 characters at most, so it was cut.\n"
    )
    assert json.loads(run("show", CLI_ID, "--json").stdout)["title"] == "x" * 200


def test_stats(stocked, run):
    lines = run("stats").stdout.splitlines()

    assert lines[:-1] == [
        "Total sessions: 4",
        "Total messages: 7",
        "cli: 1 sessions",
        "slack: 2 sessions",
        "telegram: 1 sessions",
    ]
    assert re.fullmatch(r"Database size: \d+\.\d MB", lines[-1])
    told = json.loads(run("stats", "--json").stdout)
    assert told == {
        "sessions": 4,
        "messages": 7,
        "by_source": {"cli": 1, "slack": 2, "telegram": 1},
        "database_bytes": told["database_bytes"],
    }
    assert told["database_bytes"] > 10_000


# --- export and import ------------------------------------------------------------------------------------------------


def test_what_was_exported_comes_back_the_same(stocked, run, tmp_path):
    file = tmp_path / "all.jsonl"
    assert run("export", str(file)).stdout == f"4 sessions written to {file}.\n"
    other = tmp_path / "other"

    assert (
        run("import", str(file), HERMES_HOME=str(other)).stdout
        == "4 imported, 0 skipped because they are here already.\n"
    )

    assert without_message_ids(run("export", "-", HERMES_HOME=str(other)).stdout) == without_message_ids(
        file.read_text()
    )
    assert file.stat().st_mode & 0o777 == 0o600


def without_message_ids(lines: str) -> list[dict]:
    parsed = [json.loads(line) for line in lines.splitlines()]
    return [{**session, "messages": [message | {"id": 0} for message in session["messages"]]} for session in parsed]


def test_an_export_is_utf8_wherever_it_goes(stocked, run):
    run("rename", CLI_ID, "Gärten ☘")

    answer = really(stocked, "export", "-", encoding="utf-8", env={**os.environ, "PYTHONIOENCODING": "latin-1"})

    assert json.loads(answer.stdout.splitlines()[0])["title"] == "Gärten ☘"


def test_import_mirrors_what_came(stocked, run, tmp_path):
    lines = run("export", "-").stdout
    other = tmp_path / "other"

    run("import", "-", typed=lines, HERMES_HOME=str(other))

    transcript = [json.loads(line) for line in (other / "sessions" / f"{CLI_ID}.jsonl").read_text().splitlines()]
    assert [line["role"] for line in transcript] == ["user", "assistant", "tool", "assistant"]
    assert json.loads((other / "sessions" / "sessions.json").read_text()) == {"agent:main:slack:channel:C1": LATER_ID}


def test_export_chooses_by_source_and_conversation(stocked, run):
    def exported(*options: str) -> list[str]:
        return [json.loads(line)["id"] for line in run("export", "-", *options).stdout.splitlines()]

    assert exported() == [CLI_ID, ENDED_ID, LONG_ID, LATER_ID]
    assert exported("--source", "telegram") == [ENDED_ID]
    assert exported("--session-id", LATER_ID) == exported("--session-id", LONG_ID) == [LONG_ID, LATER_ID]
    assert exported("--session-id", LONG_ID, "--source", "slack") == [LONG_ID, LATER_ID]
    assert run("export", "-", "--session-id", LONG_ID, "--source", "cli").exit_code == 2


def test_an_export_that_fails_leaves_the_file_as_it_was(stocked, run, tmp_path):
    file = tmp_path / "all.jsonl"
    file.write_text("before")

    assert run("export", str(file), "--session-id", "1999").exit_code == 1

    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["all.jsonl"]


def test_an_export_to_nowhere_says_so(stocked, run, tmp_path):
    answer = run("export", str(tmp_path / "no" / "folder.jsonl"))

    assert answer.exit_code == 1
    assert (
        answer.stderr
        == f"{tmp_path / 'no' / 'folder.jsonl'} cannot be written: no such file or directory. Choose another place.\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["export", "/dev/full"], "/dev/full cannot be written: no space left on device. Choose another place.\n"),
        (["export", "-"], "What this writes to has no room left. Make some, and try again.\n"),
        (["list"], "What this writes to has no room left. Make some, and try again.\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_where_there_is_no_room(stocked, command, said):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [HERMES, "--home", str(stocked), "sessions", *command], stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert (ended.returncode, ended.stderr) == (1, said)


def test_an_export_to_a_device_leaves_the_device_there(stocked, run, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    run("export", str(pipe), "--source", "cli")

    assert json.loads(os.read(reader, 65_536))["id"] == CLI_ID
    assert pipe.is_fifo()
    os.close(reader)


def test_import_skips_what_is_here(stocked, run):
    lines = run("export", "-").stdout
    run("delete", CLI_ID, "--yes")
    run("rename", ENDED_ID, "kept")

    assert run("import", "-", typed=lines).stdout == "1 imported, 3 skipped because they are here already.\n"

    assert json.loads(run("show", ENDED_ID, "--json").stdout)["title"] == "kept"


def test_import_stops_at_what_no_database_can_hold(stocked, run, home):
    first, second, *_ = run("export", "-").stdout.splitlines()
    too_large = json.dumps(json.loads(second) | {"started_at": 10**30})

    answer = run("import", "-", typed=f"{first}\n\n{too_large}\n", HERMES_HOME=str(home / "other"))

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.startswith("line 3")
    assert answer.stderr.endswith("Nothing was imported.\n")
    assert run("list", HERMES_HOME=str(home / "other")).stdout.startswith("No sessions yet")


LINE = {
    "id": "20250101_000000_a1b2c3d4",
    "session_key": "agent:main:telegram:dm",
    "source": "telegram",
    "started_at": 1,
}
SETTINGS = json.dumps(LINE | {"model_config": {"model": "x"}}).encode() + b"\n"
STRANGE = json.dumps(LINE | {"source": "slack"}).encode() + b"\n"
BACKWARDS = json.dumps(LINE | {"started_at": 2, "ended_at": 1}).encode() + b"\n"


def test_the_line_itself_is_good(run):
    line = json.dumps(LINE | {"model_config": '{"model": "x"}'})

    assert run("import", "-", typed=line).stdout.startswith("1 imported")
    assert json.loads(run("export", "-").stdout)["model_config"] == '{"model": "x"}'


def test_odd_calls_and_settings_can_be_looked_at(run):
    good = {"id": "a", "type": "function", "function": {"name": "files", "arguments": "{}"}}
    dialect = {"id": "b", "function": {"name": "files", "arguments": {"path": "x"}}}
    odd = [{}, good, {"id": 5}, {"id": "c", "function": {}}, dialect]
    message = {"role": "assistant", "content": "hi", "created_at": 1, "tool_calls": odd}
    line = json.dumps(LINE | {"model_config": "garbage", "messages": [message]})

    assert run("import", "-", typed=line).stdout.startswith("1 imported")
    assert run("show", LINE["id"]).exit_code == 0
    assert run("list").exit_code == 0


@pytest.mark.parametrize(
    "bad",
    [b"no json\n", b"[]\n", b'{"id": "x"}\n', b"\xff\n", b"3\n", b"[" * 100_000 + b"\n", SETTINGS, STRANGE, BACKWARDS],
)
def test_import_stops_at_a_bad_line_and_names_it(stocked, run, home, bad):
    first, *rest = run("export", "-").stdout.encode().splitlines(keepends=True)

    answer = run("import", "-", typed=first + bad + b"".join(rest), HERMES_HOME=str(home / "other"))

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.lower().startswith("line 2")
    assert re.search(r"[a-z][.?] Nothing was imported.\n$", answer.stderr)
    assert "SQL" not in answer.stderr
    assert json.loads(run("list", "--json", HERMES_HOME=str(home / "other")).stdout) == []


def test_a_strangers_file_names_no_file_of_mine(run, home, tmp_path):
    own = home / "workspace" / "agent:main" / "inbox"
    own.mkdir(parents=True)
    (own / "cat.png").write_bytes(b"cat")
    there = {"kind": "image", "name": "cat.png", "path": str(own / "cat.png")}
    planted = [
        {**there, "path": str(home / "api_key")},
        {**there, "path": str(home / "workspace" / "agent:dep_1" / "inbox" / "cat.png")},
        {"kind": "image", "name": "x", "url": "https://stranger.example/?seen"},
        {"kind": "file", "name": "x", "address": "https://stranger.example/?seen"},
        {"kind": "file", "name": "x", "platform": "telegram", "ref": "1"},
    ]
    message = {"role": "user", "content": "look", "created_at": 1, "attachments": [there, *planted]}

    assert run("import", "-", typed=json.dumps(LINE | {"messages": [message]})).exit_code == 0

    first, *others = json.loads(run("show", LINE["id"], "--json").stdout)["messages"][0]["attachments"]
    assert first == there
    assert [set(each) for each in others] == [{"kind", "name", "gone"}] * 5
