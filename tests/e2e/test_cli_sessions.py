"""`hermes sessions` as a person and a script use it."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import hermes
from sessions import store
from sessions.db import Database, open_database
from sessions.db.search import index_some
from sessions.keys import SessionKey
from sessions.records import EndReason, NewMessage, Role, RunKind, Source
from tests.machine import until_it_waits

Hermes = Callable[..., Result]

HERMES = str(Path(sys.executable).with_name("hermes"))
BEGIN = 1_741_166_123_000  # 2025-03-05 09:15:23 UTC
MINUTE, DAY = 60_000, 86_400_000
CLI_ID, ENDED_ID, LONG_ID, LATER_ID = (
    "20250305_091523_a1b2c3d4",
    "20250305_101523_b1b2c3d4",
    "20250306_091523_c1b2c3d4",
    "20250307_091523_d1b2c3d4",
)
CALL = {"id": "c1", "type": "function", "function": {"name": "files", "arguments": '{"action": "list"}'}}
EVERYTHING = [
    ["list"],
    ["list", "--json"],
    ["search", "deploy"],
    ["show", CLI_ID],
    ["stats"],
    ["rename", CLI_ID, "x"],
    ["export", "-"],
    ["delete", CLI_ID, "--yes"],
    ["prune", "--yes"],
]


def said(role: Role, content: str, **more: object) -> NewMessage:
    return NewMessage(role=role, content=content, **more)


def fill(conn) -> None:
    """A terminal session; an ended one of Telegram; a Slack conversation in two parts, the second still open."""
    start = store.start
    cli = start(
        conn,
        SessionKey.parse(f"agent:main:cli:{CLI_ID}"),
        BEGIN,
        source=Source.CLI,
        session_id=CLI_ID,
        model="anthropic/claude-opus-4.6",
        title="The garden app",
    )
    store.append(
        conn,
        cli.id,
        [
            said(Role.USER, "How do we deploy the garden app?"),
            said(Role.ASSISTANT, "Let me look.", tool_calls=[CALL]),
            said(Role.TOOL, "notes.txt\nplan.txt", tool_name="files", tool_call_id="c1"),
            said(Role.ASSISTANT, "Run this:\n\n  make deploy"),
        ],
        BEGIN + 1000,
    )
    ended = start(
        conn,
        SessionKey.parse("agent:main:telegram:dm"),
        BEGIN + 60 * MINUTE,
        source=Source.TELEGRAM,
        session_id=ENDED_ID,
        user_id="111",
        model="a-provider/with-a-name-that-is-much-too-long",
    )
    store.append(
        conn, ended.id, [said(Role.USER, "deployed \x1b]0;owned\x07 it", sender="Ann\x1b[31m")], BEGIN + 61 * MINUTE
    )
    store.end(conn, ended.id, EndReason.IDLE, BEGIN + 62 * MINUTE)
    key = SessionKey.parse("agent:main:slack:channel:C1")
    first = start(conn, key, BEGIN + DAY, source=Source.SLACK, session_id=LONG_ID, title="tulips")
    store.append(conn, first.id, [said(Role.USER, "[Dana] Which tulips?", sender="Dana")], BEGIN + DAY)
    store.end(conn, first.id, EndReason.COMPRESSED, BEGIN + 2 * DAY)
    second = start(
        conn, key, BEGIN + 2 * DAY, source=Source.SLACK, session_id=LATER_ID, title="tulips", parent=first.id
    )
    store.append(conn, second.id, [said(Role.ASSISTANT, "The red ones.")], BEGIN + 2 * DAY)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("filled")
    database = open_database(home)
    database.write_now(fill)
    database.close()
    return home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which nothing was stored yet."""
    return tmp_path / "home"


@pytest.fixture
def stocked(filled: Path, home: Path) -> Path:
    """The home, with what `fill` puts there."""
    home.mkdir()
    for name in ("state.db", "state.db-wal"):
        if (filled / name).exists():
            (home / name).write_bytes((filled / name).read_bytes())
    return home


@pytest.fixture
def run(home: Path) -> Hermes:
    def run(*arguments: str, typed: str | bytes | None = None, **environ: str) -> Result:
        environ = {"HERMES_HOME": str(home), **environ}
        return CliRunner().invoke(hermes, ["sessions", *arguments], input=typed, env=environ, prog_name="hermes")

    return run


@pytest.fixture
def database(stocked: Path) -> Iterator[Database]:
    """What another program has open meanwhile."""
    database = open_database(stocked)
    yield database
    database.close()


def really(home: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [HERMES, "--home", str(home), "sessions", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def ids(run: Hermes) -> list[str]:
    return [session["id"] for session in json.loads(run("list", "--json").stdout)]


# --- list ----------------------------------------------------------------------------------------------------------


LIST = """\
ID                             Source       Model                          Messages Started
────────────────────────────────────────────────────────────────────────────────────────────────
20250307_091523_d1b2c3d4       slack        -                                     1 2025-03-07 09:15
20250306_091523_c1b2c3d4       slack        -                                     1 2025-03-06 09:15 (ended)
20250305_101523_b1b2c3d4       telegram     a-provider/with-a-name-that-i…        1 2025-03-05 10:15 (ended)
20250305_091523_a1b2c3d4       cli          anthropic/claude-opus-4.6             4 2025-03-05 09:15
"""


def test_list_is_this_table(stocked):
    answer = really(stocked, "list", env={**os.environ, "TZ": "Asia/Tokyo"})

    assert answer.stdout == LIST
    assert answer.returncode == 0


def test_list_of_one_source_and_of_the_newest(stocked, run):
    lines = LIST.splitlines(keepends=True)

    assert run("list", "--source", "cli").stdout == "".join([*lines[:2], lines[5]])
    assert run("list", "--limit", "2").stdout == "".join(lines[:4])


def test_list_as_json_has_every_field(stocked, run):
    newest = json.loads(run("list", "--json").stdout)[-1]

    assert newest == {
        "id": CLI_ID,
        "session_key": f"agent:main:cli:{CLI_ID}",
        "source": "cli",
        "user_id": None,
        "agent": "main",
        "model": "anthropic/claude-opus-4.6",
        "model_config": None,
        "system_prompt": None,
        "title": "The garden app",
        "started_at": BEGIN,
        "ended_at": None,
        "end_reason": None,
        "last_user_at": BEGIN + 1000,
        "parent_session_id": None,
        "message_count": 4,
        "tool_call_count": 1,
        "input_tokens": 0,
        "output_tokens": 0,
        "ns": newest["ns"],
    }


def test_a_terminal_without_our_letters_still_gets_its_list(stocked):
    answer = really(stocked, "list", env={**os.environ, "PYTHONIOENCODING": "latin-1"})

    assert answer.stdout.splitlines()[1] == "?" * 96
    assert answer.returncode == 0


# --- nothing there -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "answered"),
    [
        (["list"], "No sessions yet. `hermes` starts one.\n"),
        (["list", "--source", "cli"], "No sessions from cli.\n"),
        (["list", "--json"], "[]\n"),
        (["search", "word"], "Nothing found for 'word'.\n"),
        (["search", "word", "--json"], "[]\n"),
        (["stats"], "Total sessions: 0\nTotal messages: 0\nDatabase size: 0.0 MB\n"),
        (["export", "-"], ""),
        (["prune", "--yes"], "No session ended more than 90 days ago.\n"),
    ],
)
def test_looking_into_an_empty_place_creates_nothing(run, home, arguments, answered):
    answer = run(*arguments)

    assert (answer.exit_code, answer.stdout) == (0, answered)
    assert not home.exists()


@pytest.mark.parametrize(
    "command",
    [["show", "2025"], ["rename", "2025", "x"], ["delete", "2025", "--yes"], ["export", "-", "--session-id", "2025"]],
)
def test_nothing_begins_with_this_where_there_is_nothing(run, home, command):
    answer = run(*command)

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr == f"No session begins with '2025': nothing is stored in {home} yet.\n"
    assert not home.exists()


# --- ids -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["show"], ["rename", "x"], ["delete", "--yes"], ["export", "-", "--session-id"]])
def test_a_beginning_of_an_id_is_enough_if_it_fits_one(stocked, run, command):
    name, *rest = command
    options = {"rename": lambda prefix: [name, prefix, *rest], "export": lambda prefix: [name, *rest, prefix]}
    line = options.get(name, lambda prefix: [name, prefix, *rest])

    ambiguous, unknown, unique = run(*line("20250305")), run(*line("1999")), run(*line("20250305_09"))

    assert (ambiguous.exit_code, unknown.exit_code, unique.exit_code) == (1, 1, 0)
    assert CLI_ID in ambiguous.stderr
    assert ENDED_ID in ambiguous.stderr
    assert "'1999'" in unknown.stderr
    assert ambiguous.stdout == unknown.stdout == ""


# --- search --------------------------------------------------------------------------------------------------------


def test_search_shows_the_place_of_each_hit(stocked, run):
    answer = run("search", "deploy")

    blocks = {block.splitlines()[0]: block.splitlines()[1:] for block in answer.stdout.split("\n\n")}
    assert blocks[f"{ENDED_ID}  telegram  without a title"] == ["  2025-03-05 10:16  Ann�[31m  deployed �]0;owned� it"]
    assert sorted(blocks[f"{CLI_ID}  cli  “The garden app”"]) == [
        "  2025-03-05 09:15  assistant  Run this: make deploy",
        "  2025-03-05 09:15  user  How do we deploy the garden app?",
    ]


def test_search_finds_what_was_written_a_moment_ago(database, run):
    database.write_now(store.append, CLI_ID, [said(Role.USER, "and the marigolds?")], BEGIN + DAY)

    assert "marigolds" in run("search", "marigolds").stdout


def test_search_words_need_no_quotes_and_options_count(stocked, run):
    assert "tulips" in run("search", "which", "tulips").stdout
    assert run("search", "deploy", "--source", "slack").stdout == "Nothing found for 'deploy'.\n"
    assert len(json.loads(run("search", "deploy", "--json", "--limit", "1").stdout)) == 1


def test_search_as_json(stocked, run):
    [hit] = json.loads(run("search", "tulips?", "--json", "--source", "slack", "--limit", "1").stdout)

    assert {name: hit[name] for name in ("session_id", "source", "title", "role", "sender", "content", "snippet")} == {
        "session_id": LONG_ID,
        "source": "slack",
        "title": "tulips",
        "role": "user",
        "sender": "Dana",
        "content": "[Dana] Which tulips?",
        "snippet": "[Dana] Which tulips?",
    }


def test_a_query_without_a_word_is_wrong_usage(stocked, run):
    answer = run("search", "?!")

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "no letter or digit" in answer.stderr


# --- show ----------------------------------------------------------------------------------------------------------


SHOWN = f"""\
{CLI_ID}  “The garden app”

  Source     cli
  Key        agent:main:cli:{CLI_ID}
  Agent      main
  Model      anthropic/claude-opus-4.6
  Started    2025-03-05 09:15 UTC
  Last word  2025-03-05 09:15
  Messages   4, 1 tool call
  Tokens     0 in, 0 out

2025-03-05 09:15:24  user
  How do we deploy the garden app?

2025-03-05 09:15:24  assistant
  Let me look.
  → files {{"action": "list"}}
  ← files: notes.txt plan.txt

2025-03-05 09:15:24  assistant
  Run this:

    make deploy
"""


def test_show_prints_facts_and_messages(stocked, run):
    assert run("show", CLI_ID).stdout == SHOWN


def test_show_lets_no_message_drive_the_terminal(stocked, run):
    shown = run("show", ENDED_ID).stdout

    assert "deployed �]0;owned� it" in shown
    assert "\x1b" not in shown
    assert "Ended      2025-03-05 10:17 (idle)" in shown


def test_show_names_the_other_parts(stocked, run):
    assert f"Goes on in {LATER_ID}" in run("show", LONG_ID).stdout
    assert f"Continues  {LONG_ID}" in run("show", LATER_ID).stdout


def test_show_as_json_is_the_exported_object(stocked, run):
    shown = json.loads(run("show", CLI_ID, "--json").stdout)

    assert shown == json.loads(run("export", "-", "--session-id", CLI_ID).stdout)
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "tool", "assistant"]


# --- rename, stats -------------------------------------------------------------------------------------------------


def test_rename_gives_and_takes_a_title(stocked, run):
    assert run("rename", CLI_ID, "Two", "words").stdout == f"{CLI_ID} is now “Two words”.\n"
    assert json.loads(run("show", CLI_ID, "--json").stdout)["title"] == "Two words"

    assert run("rename", CLI_ID, "").stdout == f"{CLI_ID} has no title any more.\n"
    assert json.loads(run("show", CLI_ID, "--json").stdout)["title"] is None


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


# --- export and import ---------------------------------------------------------------------------------------------


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
    assert "What stands before it stays: 1 imported, 0 skipped" in answer.stderr


@pytest.mark.parametrize("bad", [b"no json\n", b"[]\n", b'{"id": "x"}\n', b"\xff\n", b"3\n"])
def test_import_stops_at_a_bad_line_and_names_it(stocked, run, home, bad):
    first, *rest = run("export", "-").stdout.encode().splitlines(keepends=True)

    answer = run("import", "-", typed=first + bad + b"".join(rest), HERMES_HOME=str(home / "other"))

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.lower().startswith("line 2")
    assert "What stands before it stays: 1 imported, 0 skipped" in answer.stderr
    assert len(json.loads(run("list", "--json", HERMES_HOME=str(home / "other")).stdout)) == 1


# --- delete and prune ----------------------------------------------------------------------------------------------


def test_delete_takes_the_whole_conversation_and_every_trace(stocked, run, home):
    run("import", "-", typed=run("export", "-").stdout)  # so that there are mirrors of nothing new, and an index file
    run("search", "tulips")
    assert run("delete", LATER_ID, "--yes").stdout == "2 sessions with 2 messages deleted.\n"

    assert ids(run) == [ENDED_ID, CLI_ID]
    assert json.loads((home / "sessions" / "sessions.json").read_text()) == {}
    assert b"tulips" not in b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


@pytest.mark.parametrize("command", [["delete", CLI_ID], ["prune"], ["prune", "--older-than", "0"]])
def test_without_a_terminal_and_without_yes_nothing_is_deleted(stocked, run, command):
    answer = run(*command, typed="y\n")

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr == "This deletes for good and asks first, but there is no terminal to ask on. Add --yes.\n"
    assert len(ids(run)) == 4


def test_prune_takes_only_what_ended_and_not_half_a_conversation(stocked, run):
    assert run("prune", "--yes").stdout == "1 session with 1 message deleted.\n"

    assert ids(run) == [LATER_ID, LONG_ID, CLI_ID]


def test_prune_counts_its_days_from_the_end(database, run):
    from sessions.clock import now_ms

    database.write_now(store.end, CLI_ID, EndReason.USER, now_ms() - 10 * DAY)

    assert (
        run("prune", "--older-than", "11", "--yes", "--source", "cli").stdout
        == "No session ended more than 11 days ago.\n"
    )
    assert (
        run("prune", "--older-than", "9", "--yes", "--source", "cli").stdout == "1 session with 4 messages deleted.\n"
    )
    assert ids(run) == [LATER_ID, LONG_ID, ENDED_ID]


def test_a_dry_run_shows_and_changes_nothing(stocked, run):
    answer = run("prune", "--dry-run", "--yes")

    lines = LIST.splitlines()
    assert answer.stdout.splitlines() == [
        *lines[:2],
        lines[4],
        "1 session with 1 message would be deleted. Nothing was changed.",
    ]
    assert len(ids(run)) == 4


def test_a_conversation_that_is_being_worked_on_stays_whole(database, run):
    database.write_now(running_run, LATER_ID)

    answer = run("delete", LONG_ID, "--yes")

    assert answer.exit_code == 1
    assert "worked on right now" in answer.stderr
    assert len(ids(run)) == 4


def running_run(conn, session_id: str) -> None:
    from sqlalchemy import text

    row = {"s": session_id, "kind": RunKind.CHAT}
    conn.execute(
        text(
            "INSERT INTO runs (id, session_id, session_key, kind, status, created_at, updated_at)"
            " VALUES ('run_1', :s, 'agent:main:slack:channel:C1', :kind, 'running', 0, 0)"
        ),
        row,
    )


# --- at a terminal -------------------------------------------------------------------------------------------------


def terminal(home: Path, *arguments: str, lines: int = 200, **environ: str) -> pexpect.spawn:
    inherited = {name: value for name, value in os.environ.items() if name not in {"LINES", "COLUMNS", "NO_COLOR"}}
    return pexpect.spawn(
        HERMES,
        ["--home", str(home), "sessions", *arguments],
        env={**inherited, "TERM": "xterm", "PAGER": "cat", **environ},
        encoding="utf-8",
        timeout=60,
        dimensions=(lines, 200),
    )


def test_deleting_asks_with_what_is_at_stake(stocked, run):
    child = terminal(stocked, "delete", LONG_ID)
    child.expect_exact(f"{LONG_ID}  “tulips”  slack, 2 messages, 2025-03-06 09:15 to 2025-03-07 09:15\r\n")
    child.expect_exact("It has 2 parts, which are deleted together.\r\nDelete this conversation for good? [y/N]: ")
    child.sendline("n")
    child.expect_exact("Nothing was deleted.")
    child.expect(pexpect.EOF)
    assert child.wait() == 1
    assert len(ids(run)) == 4

    child = terminal(stocked, "delete", LONG_ID)
    child.expect_exact("[y/N]: ")
    child.sendline("y")
    child.expect_exact("2 sessions with 2 messages deleted.")
    child.expect(pexpect.EOF)
    assert child.wait() == 0
    assert ids(run) == [ENDED_ID, CLI_ID]


def test_interrupting_the_question_deletes_nothing(stocked, run):
    child = terminal(stocked, "prune")
    child.expect_exact("Delete 1 session with 1 message for good? [y/N]: ")
    until_it_waits(child.pid)
    child.sendintr()
    child.expect(pexpect.EOF)

    assert child.wait() == 130
    assert "Traceback" not in child.before
    assert "Aborted" not in child.before
    assert len(ids(run)) == 4


def test_the_list_is_the_same_on_a_terminal(stocked):
    child = terminal(stocked, "list")

    assert child.read().replace("\r\n", "\n") == LIST


def test_colours_only_where_they_are_seen_and_wanted(stocked, run):
    seen, unwanted = (
        terminal(stocked, "search", "tulips").read(),
        terminal(stocked, "search", "tulips", NO_COLOR="1").read(),
    )

    assert "\x1b[33m\x1b[1mtulips\x1b[0m" in seen
    assert "\x1b" not in unwanted
    assert re.sub(r"\x1b\[[0-9]*m", "", seen) == unwanted
    assert unwanted.replace("\r\n", "\n") == run("search", "tulips").stdout


def test_what_is_longer_than_the_screen_goes_through_the_pager(stocked):
    assert "make PAGED" in terminal(stocked, "show", CLI_ID, lines=10, PAGER="sed s/deploy/PAGED/").read()
    assert "make deploy" in terminal(stocked, "show", CLI_ID, lines=200, PAGER="sed s/deploy/PAGED/").read()


# --- others at work, and trouble -----------------------------------------------------------------------------------


WRITER = """
import sys
from pathlib import Path
from sessions import store
from sessions.db import open_database
from sessions.records import NewMessage, Role

database = open_database(Path(sys.argv[1]))
for number in range(1_000_000):
    database.write_now(store.append, sys.argv[2], [NewMessage(role=Role.USER, content=f"busy {number}")], number)
    if number == 20:
        print("writing", flush=True)
"""


def test_everything_works_while_another_program_writes(stocked, run, home):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(home), LATER_ID], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "writing\n"
        answers = {" ".join(command): run(*command) for command in EVERYTHING}
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()

    assert {name: answer.stderr for name, answer in answers.items() if answer.exit_code} == {}
    assert ids(run) == [LATER_ID, LONG_ID]


@pytest.mark.parametrize("command", [*EVERYTHING, ["import", "/dev/null"]], ids=" ".join)
def test_a_damaged_database(run, home, command):
    home.mkdir()
    (home / "state.db").write_bytes(b"this is no database at all" * 1000)

    answer = run(*command)

    assert answer.exit_code == 1
    assert "state.db is damaged" in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stdout == ""


@pytest.mark.parametrize("command", [["list"], ["import", "/dev/null"]], ids=" ".join)
def test_the_home_of_another_program(run, home, command):
    home.mkdir()
    with sqlite3.connect(home / "state.db") as conn:
        conn.execute("CREATE TABLE theirs (x)")
    before = (home / "state.db").read_bytes()

    answer = run(*command)

    assert answer.exit_code == 2
    assert "another program" in answer.stderr
    assert (home / "state.db").read_bytes() == before


@pytest.mark.parametrize("command", [["list"], ["import", "/dev/null"]], ids=" ".join)
def test_a_home_that_is_a_file(run, home, command):
    home.write_text("")

    answer = run(*command)

    assert answer.exit_code == 1
    assert f"{home} is a file" in answer.stderr


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may write everywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("command", [["list"], ["rename", CLI_ID, "x"]], ids=" ".join)
def test_a_home_that_cannot_be_written(filled, run, command):
    run(*command)  # imports what it needs, while it may
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "state.db").write_bytes((filled / "state.db").read_bytes())
        home.chmod(0o555)
        with without_rights():
            answer = run(*command, HERMES_HOME=folder)
        home.chmod(0o700)

    assert answer.exit_code == 1
    assert answer.stderr.startswith(f"{home} cannot be written: permission denied.")
    assert answer.stderr.count("\n") == 1


def test_an_index_that_trails_far_behind_is_brought_up(database, run):
    lines = [said(Role.USER, f"line {number}") for number in range(700)]
    database.write_now(store.append, CLI_ID, lines, BEGIN + DAY)

    assert "line 699" in run("search", "699").stdout
    assert not database.write_now(index_some)
