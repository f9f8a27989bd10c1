"""Deleting and pruning, with the question before it."""

import json
import re

import pexpect
import pytest
from prompt_toolkit.history import FileHistory

from sessions import store
from sessions.records import EndReason, RunKind
from tests.e2e.cli_sessions.stock import BEGIN, CLI_ID, DAY, ENDED_ID, LATER_ID, LIST, LONG_ID, ids, terminal
from tests.machine import until_it_waits

# --- delete and prune -------------------------------------------------------------------------------------------------


def test_delete_takes_the_whole_conversation_and_every_trace(stocked, run, home):
    run("import", "-", typed=run("export", "-").stdout)  # so that there are mirrors of nothing new, and an index file
    run("search", "tulips")
    assert run("delete", LATER_ID, "--yes").stdout == "2 sessions with 2 messages deleted.\n"

    assert ids(run) == [ENDED_ID, CLI_ID]
    assert json.loads((home / "sessions" / "sessions.json").read_text()) == {}
    assert b"tulips" not in b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_what_is_not_there_needs_no_yes(stocked, run):
    answer = run("delete", "nosuch")

    assert answer.exit_code == 1
    assert "No session begins with 'nosuch'" in answer.stderr


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

    head, rule, *_ = LIST.splitlines()
    assert answer.stdout.splitlines() == [
        head.replace("Started", "Ended"),
        rule,
        f"{ENDED_ID}       telegram     a-provider/with-a-name-that-i…        1 2025-03-05 10:17",
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


@pytest.mark.parametrize(
    "command", [["delete", CLI_ID], ["prune", "--source", "cli", "--older-than", "0"]], ids=" ".join
)
def test_what_was_typed_leaves_the_history_of_the_prompt_too(database, run, home, command):
    typed = FileHistory(str(home / "history"))
    for text in ("before\nin two lines", "How do we deploy the garden app?", "/status", "How do we deploy"):
        typed.store_string(text)
    database.write_now(store.end, CLI_ID, EndReason.USER, BEGIN)

    run(*command, "--yes")

    assert list(FileHistory(str(home / "history")).load_history_strings()) == [
        "How do we deploy",
        "/status",
        "before\nin two lines",
    ]
    assert (home / "history").stat().st_mode & 0o777 == 0o600


def test_another_chat_leaves_the_history_of_the_prompt_alone(stocked, run, home):
    FileHistory(str(home / "history")).store_string("[Dana] Which tulips?")
    before = (home / "history").read_bytes()

    run("delete", LONG_ID, "--yes")

    assert (home / "history").read_bytes() == before


# --- at a terminal ----------------------------------------------------------------------------------------------------


def test_deleting_asks_with_what_is_at_stake(stocked, run):
    child = terminal(stocked, "delete", LONG_ID)
    child.expect_exact(f"{LONG_ID}  “tulips”  slack, 2 messages, 2025-03-06 09:15 to 2025-03-07 09:15\r\n")
    child.expect_exact("It has 2 parts, which are deleted together.\r\nDelete this session for good? [y/N]: ")
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


def test_the_list_on_a_terminal_has_the_titles_and_fits(stocked):
    lines = terminal(stocked, "list").read().replace("\r\n", "\n").splitlines()

    assert lines[0].split() == ["ID", "Source", "Title", "Started"]
    assert any("The garden app" in line for line in lines)
    assert max(len(line) for line in lines) <= 200


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


def test_prune_ends_what_is_inactive_where_nothing_resets(stocked, run):
    looked = run("prune", "--inactive", "30", "--dry-run")
    assert looked.stdout.splitlines()[0] == "1 session without activity for 30 days would be ended."
    assert "(ended)" not in run("list", "--source", "cli").stdout

    ended = run("prune", "--inactive", "30", "--yes")

    assert ended.stdout.splitlines()[0] == "1 session without activity for 30 days ended."
    assert "(ended)" in run("list", "--source", "cli").stdout
    assert json.loads(run("show", CLI_ID, "--json").stdout)["end_reason"] == "idle"
    assert "(ended)" not in run("list", "--source", "slack", "--limit", "1").stdout, "chats have resets"
    assert (
        run("prune", "--older-than", "0", "--source", "cli", "--yes").stdout == "1 session with 4 messages deleted.\n"
    )


def test_prune_ends_nothing_that_works_or_waits(database, run):
    from sessions import runs
    from sessions.records import InboxRow, Message
    from sessions.runs import Opening

    key = database.read_now(store.get, CLI_ID).session_key
    asked = InboxRow(dedup_key="x", session_key=key, messages=[Message(content="still at work")])
    database.write_now(runs.accept, asked, Opening(), BEGIN + DAY)
    assert run("prune", "--inactive", "1", "--yes").stdout.startswith("0 sessions ")
