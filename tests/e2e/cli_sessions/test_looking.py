"""Looking at sessions: list, search, show, stats."""

import json
import os

import pytest

from sessions import store
from sessions.records import Role
from tests.e2e.cli_sessions.stock import BEGIN, CLI_ID, DAY, ENDED_ID, LATER_ID, LIST, LONG_ID, new_message, really

# --- list -------------------------------------------------------------------------------------------------------------


def test_list_is_this_table(stocked):
    answer = really(stocked, "list", env={**os.environ, "TZ": "Asia/Tokyo"})

    assert answer.stdout == LIST
    assert answer.returncode == 0


def test_list_of_one_source_and_of_the_newest(stocked, run):
    lines = LIST.splitlines(keepends=True)

    assert run("list", "--source", "cli").stdout == "".join([*lines[:2], lines[5]])
    assert run("list", "--limit", "2").stdout == "".join(lines[:4])


def test_list_begins_with_the_latest_activity(stocked, database, run):
    database.write_now(store.append, CLI_ID, [new_message(Role.USER, "and the tulips?")], BEGIN + 9 * DAY)

    assert run("list", "--limit", "1").stdout.splitlines()[2].startswith(CLI_ID)
    assert run("list", "--since", "2025-03-10").stdout.count("\n") == 3
    assert run("list", "--since", "7d").stdout == "No such sessions.\n"
    assert "neither an age" in run("list", "--since", "yesterday").stderr


def test_list_shows_titles_and_keys_and_finds_by_key(stocked, run):
    head, _, *rows = run("list", "--wide", "--key", "agent:main:slack").stdout.splitlines()

    assert head.split() == ["ID", "Source", "Messages", "Last", "activity", "Title", "Key"]
    assert [row.split()[0] for row in rows] == [LATER_ID, LONG_ID]
    assert "tulips" in rows[0]
    assert rows[1].endswith("agent:main:slack:channel:C1 (ended)")


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


# --- nothing there ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "answered"),
    [
        (["list"], "No sessions yet. `hermes` starts one.\n"),
        (["list", "--source", "cli"], "No sessions from cli.\n"),
        (["list", "--json"], "[]\n"),
        (["search", "word"], "Nothing found for 'word'.\n"),
        (["search", "word", "--json"], "[]\n"),
        (["stats"], "Total sessions: 0\nTotal messages: 0\nDatabase size: 0 MB\n"),
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


# --- ids --------------------------------------------------------------------------------------------------------------


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


# --- search -----------------------------------------------------------------------------------------------------------


def test_search_shows_the_place_of_each_hit(stocked, run):
    answer = run("search", "deploy")

    blocks = {block.splitlines()[0]: block.splitlines()[1:] for block in answer.stdout.split("\n\n")}
    assert blocks[f"{ENDED_ID}  telegram  “deployed �]0;owned� it”"] == [
        "  2025-03-05 10:16  Ann�[31m  deployed �]0;owned� it"
    ]
    assert sorted(blocks[f"{CLI_ID}  cli  “The garden app”"]) == [
        "  2025-03-05 09:15  assistant  Run this: make deploy",
        "  2025-03-05 09:15  user  How do we deploy the garden app?",
    ]


def test_search_finds_what_was_written_a_moment_ago(database, run):
    database.write_now(store.append, CLI_ID, [new_message(Role.USER, "and the marigolds?")], BEGIN + DAY)

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


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("deploy AND", "need a word on each side"),
        ("deploy OR OR garden", "need a word on each side"),
        ("(deploy garden", "need a word on each side"),
        ('"deploy garden', "A quote is missing"),
        ("NEAR(deploy garden, 3)", "There is no NEAR here"),
        ("-redis", "put -- in front: hermes sessions search -- -redis"),
    ],
)
def test_what_is_more_than_plain_words_is_not_taken_for_some(stocked, run, query, said, monkeypatch):
    monkeypatch.setattr("sys.argv", ["hermes", "sessions", "search", query])
    answer = run("search", query)

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert said in answer.stderr


def test_a_word_behind_a_hyphen_is_searched_after_two_of_them(stocked, run):
    assert CLI_ID in run("search", "--", "-deploy").stdout


# --- show -------------------------------------------------------------------------------------------------------------


SHOWN = f"""\
{CLI_ID}  “The garden app”

  Source       cli
  Key          agent:main:cli:{CLI_ID}
  Agent        main
  Model        anthropic/claude-opus-4.6
  Started      2025-03-05 09:15 UTC
  Last message 2025-03-05 09:15
  Messages     4, 1 tool call
  Tokens       0 in, 0 out

2025-03-05 09:15:24  user  (8 tokens)
  How do we deploy the garden app?

2025-03-05 09:15:24  assistant  (29 tokens)
  Let me look.
  → files {{"action": "list"}}
  ← files: notes.txt plan.txt  (5 tokens)

2025-03-05 09:15:24  assistant  (6 tokens)
  Run this:

    make deploy
"""


def test_show_prints_facts_and_messages(stocked, run):
    assert run("show", CLI_ID).stdout == SHOWN


def test_show_has_the_prompt_and_the_settings(stocked, database, run):
    config = {"name": "a/b", "context_window": 8_192}
    database.write_now(store.keep_settings, CLI_ID, "You are a gardener.\nBe brief.", config)

    shown = run("show", CLI_ID).stdout

    assert "  Settings     name a/b, context_window 8192\n" in shown
    assert "  Prompt       You are a gardener." in shown


def test_show_lets_no_message_drive_the_terminal(stocked, run):
    shown = run("show", ENDED_ID).stdout

    assert "deployed �]0;owned� it" in shown
    assert "\x1b" not in shown
    assert "Ended        2025-03-05 10:17 (idle)" in shown


def test_show_names_the_other_parts(stocked, run):
    assert f"Continued in {LATER_ID}" in run("show", LONG_ID).stdout
    assert f"Continues    {LONG_ID}" in run("show", LATER_ID).stdout


def test_show_as_json_is_the_exported_object(stocked, run):
    shown = json.loads(run("show", CLI_ID, "--json").stdout)

    assert shown == json.loads(run("export", "-", "--session-id", CLI_ID).stdout)
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "tool", "assistant"]
