"""Conversations of other programs, from homes that those programs wrote themselves (`make peers`)."""

import hashlib
import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import hermes as command

HOMES = Path(__file__).parents[2] / "fixtures" / "homes"


@pytest.fixture
def theirs(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / "theirs"
    with tarfile.open(HOMES / f"{request.param}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def hermes(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), env={"HERMES_HOME": str(home), "HERMES_DEBUG": None})


def taken(home: Path, tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "all.jsonl"
    assert hermes(home, "sessions", "export", str(file)).exit_code == 0
    return {one["session_key"]: one for one in map(json.loads, file.read_text().splitlines())}


def transcript(session: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in session["messages"]]


def fingerprint(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("theirs", ["hermes-agent"], indirect=True)
def test_hermes_agent(tmp_path: Path, theirs: Path):
    home = tmp_path / "ours"
    before = fingerprint(theirs)
    first = hermes(home, "sessions", "import", "--from", "hermes-agent", str(theirs))
    assert first.exit_code == 0, first.output
    assert first.stdout.splitlines() == [
        "3 conversations taken, 0 here already; 2 notes taken.",
        "Not taken:",
        "  session 20260112_101010_empty: it has no messages",
    ]
    assert fingerprint(theirs) == before
    found = taken(home, tmp_path)
    (terminal,) = (one for one in found.values() if one["source"] == "cli")
    assert terminal["title"] == "Weather in Oslo"
    assert terminal["model"] == "anthropic/claude-opus-4.6"
    assert terminal["end_reason"] == "user"
    assert transcript(terminal) == [
        ("user", "What is the weather in Oslo?"),
        ("assistant", None),
        ("tool", "Rain, 3 degrees."),
        ("assistant", "It rains, 3 degrees."),
    ]
    question, asking, result, _ = terminal["messages"]
    assert question["created_at"] == 1_767_950_000_250
    assert asking["tool_calls"][0]["function"] == {"name": "web_search", "arguments": '{"query": "weather Oslo"}'}
    assert (result["tool_call_id"], result["tool_name"]) == ("call_1", "web_search")
    assert transcript(found["agent:main:telegram:dm:111"])[0] == ("user", "Remember that I prefer tea ☕")
    assert transcript(found["agent:main:telegram:group:-42"]) == [("user", "[Bob] hello"), ("assistant", "Hi Bob")]
    assert "not for others" not in json.dumps(found)
    assert "Ann prefers tea." in hermes(home, "memory", "list").stdout

    again = hermes(home, "sessions", "import", "--from", "hermes-agent", str(theirs))
    assert again.stdout.splitlines()[0] == "0 conversations taken, 3 here already; 0 notes taken."
    assert taken(home, tmp_path) == found


@pytest.mark.parametrize("theirs", ["nanobot"], indirect=True)
def test_nanobot(tmp_path: Path, theirs: Path):
    home = tmp_path / "ours"
    done = hermes(home, "sessions", "import", "--from", "nanobot", str(theirs))
    assert done.stdout.splitlines() == ["2 conversations taken, 0 here already; 2 notes taken."]
    found = taken(home, tmp_path)
    assert transcript(found["agent:main:telegram:dm:111"]) == [
        ("user", "Remember that I prefer tea"),
        ("assistant", None),
        ("tool", "saved"),
        ("assistant", "Noted."),
    ]
    assert {one["title"] for one in found.values()} == {None, "A greeting"}
    assert "The server is called atlas." in hermes(home, "memory", "list").stdout


@pytest.mark.parametrize("theirs", ["openclaw"], indirect=True)
def test_openclaw(tmp_path: Path, theirs: Path):
    home = tmp_path / "ours"
    done = hermes(home, "sessions", "import", "--from", "openclaw", str(theirs))
    assert done.stdout.splitlines()[0] == "1 conversation taken, 0 here already; 1 note taken."
    (session,) = taken(home, tmp_path).values()
    user, noted, weather, asking, result, answer = session["messages"]
    assert (user["role"], user["content"]) == ("user", "Remember that I prefer tea")
    assert (noted["content"], weather["content"]) == ("Noted.", "What is the weather in Oslo?")
    assert asking["tool_calls"][0]["id"] == result["tool_call_id"]
    assert answer["content"] == "It rains, 3 degrees."
    assert session["model"] == "fake-model"


@pytest.mark.parametrize("theirs", ["hermes-agent"], indirect=True)
def test_a_link_is_not_followed_out_of_their_home(tmp_path: Path, theirs: Path):
    home, notes = tmp_path / "ours", theirs / "memories" / "MEMORY.md"
    (tmp_path / "config.yaml").write_text("api_key: sk-secret")
    notes.unlink()
    notes.symlink_to(tmp_path / "config.yaml")
    done = hermes(home, "sessions", "import", "--from", "hermes-agent", str(theirs))
    assert done.exit_code == 0, done.output
    assert "  memories/MEMORY.md: a link, which may lead anywhere" in done.stdout.splitlines()
    assert "sk-secret" not in hermes(home, "memory", "list").stdout


@pytest.mark.parametrize("program", ["hermes-agent", "nanobot", "openclaw"])
def test_what_is_no_home_of_theirs_is_refused_with_a_sentence(tmp_path: Path, program: str):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "missing"):
        refused = hermes(tmp_path / "ours", "sessions", "import", "--from", program, str(folder))
        assert refused.exit_code == 2
        assert len(refused.stderr.splitlines()) == 1
        assert str(folder) in refused.stderr


@pytest.mark.parametrize("theirs", ["hermes-agent"], indirect=True)
@pytest.mark.parametrize(
    "odd",
    [
        "UPDATE messages SET tool_calls = 'no json' WHERE id = 1",
        "UPDATE messages SET tool_calls = '[{}]', timestamp = 'soon' WHERE id = 1",
        "UPDATE messages SET timestamp = 1e300 WHERE id = 1",
        "UPDATE messages SET content = x'ff' WHERE id = 1",
        "UPDATE sessions SET started_at = 'x' WHERE id = (SELECT session_id FROM messages WHERE id = 1)",
    ],
)
def test_one_odd_record_is_left_out_and_named(tmp_path: Path, theirs: Path, odd: str):
    with closing(sqlite3.connect(theirs / "state.db")) as conn, conn:
        conn.execute(odd)
    answer = hermes(tmp_path / "ours", "sessions", "import", "--from", "hermes-agent", str(theirs))
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("2 conversations taken, 0 here already; 2 notes taken.")
    assert "it makes no sense here" in answer.stdout
