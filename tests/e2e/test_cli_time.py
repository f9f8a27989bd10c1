"""The command line about time: why a conversation starts afresh, what a changed file would do, and jobs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import hermes
from sessions import runs, store
from sessions.clock import now_ms
from sessions.db import open_database
from sessions.keys import SessionKey
from sessions.records import Message, Role
from sessions.runs import Opening

HOUR = 3_600_000
KEY = "agent:main:slack:channel:C024BE91L"
CONFIG = """\
session_reset:
  mode: both
  timezone: Europe/London
  overrides:
    - {platform: slack, mode: none}
    - {platform: slack, chat: channel, mode: idle, idle_minutes: 10080}
"""


@pytest.fixture
def talked(home: Path) -> Path:
    (home / "config.yaml").write_text(CONFIG)
    database = open_database(home)
    for key, ago in ((KEY, 18 * HOUR), ("agent:main:telegram:dm", 5 * HOUR), ("agent:main:telegram:dm:8", 2 * HOUR)):
        now = now_ms() - ago
        session = database.write_now(runs.open_session, SessionKey.parse(key), Opening(), now)
        said = Message(role=Role.USER, content="deploys, as always", sender="Dana")
        database.write_now(store.append, session.id, [said], now)
    database.close()
    return home


def run(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(hermes, ["--home", str(home), *arguments])


def test_why_names_the_rule_its_line_the_clock_and_what_comes_next(talked: Path):
    shown = run(talked, "sessions", "why", KEY)
    assert shown.exit_code == 0, shown.output
    for part in (
        "“deploys, as always”, open since",
        "idle after 10080 min",
        "overrides[1] (config.yaml:6; platform slack, chat channel)",
        "not used: overrides[0] (config.yaml:5; platform slack), less specific",
        "not used: session_reset (config.yaml:2), less specific",
        "last word Dana,",
        "(18 h ago)",
        "Europe/London, unless somebody writes before",
        "waits for nothing",
        "one quiet turn to save notes",
    ):
        assert part in shown.output, shown.output


def test_why_as_json_and_of_what_never_resets(talked: Path):
    facts = json.loads(run(talked, "sessions", "why", KEY, "--json").stdout)
    assert (facts["rule"], facts["line"]) == ("session_reset.overrides[1]", "config.yaml:6")
    assert (facts["due"], facts["held_off"], facts["owed_farewells"]) == (None, [], 0)
    assert facts["next_reset_at"] is not None
    never = run(talked, "sessions", "why", "agent:main:slack:dm")
    assert "never" in never.output
    assert "no session is open here" in never.output


def test_a_new_day_begins_whoever_writes_before(talked: Path):
    (talked / "config.yaml").write_text("session_reset: {mode: daily, timezone: Etc/UTC}\n")
    shown = run(talked, "sessions", "why", KEY).output
    assert "daily at 04:00 Etc/UTC " in shown
    assert "unless somebody writes before" not in shown
    (talked / "config.yaml").write_text("session_reset: {mode: both, timezone: America/Argentina/Buenos_Aires}\n")
    assert "Buenos_Aires  session_reset (config.yaml:1)" in run(talked, "sessions", "why", KEY).output


def test_what_is_in_no_chat_is_not_under_the_rule_for_chats(talked: Path):
    never = run(talked, "sessions", "why", "agent:main:cli:x")
    assert "never" in never.output
    assert "resets are for chats, and no override names cli" in never.output
    facts = json.loads(run(talked, "sessions", "why", "agent:main:cli:x", "--json").stdout)
    assert (facts["rule"], facts["line"]) == (None, None)


def test_why_takes_the_id_that_the_list_shows(talked: Path):
    database = open_database(talked)
    session = database.read_now(store.active, KEY)
    database.close()
    assert session is not None
    assert run(talked, "sessions", "why", session.id).output.startswith(f"{KEY}  ")


def test_why_of_what_is_no_key_says_what_one_looks_like(talked: Path):
    refused = run(talked, "sessions", "why", "nonsense")
    assert refused.exit_code == 2
    assert "agent:main:telegram:dm" in refused.output


def test_a_run_that_is_at_work_is_named(talked: Path):
    database = open_database(talked)
    session = database.read_now(store.active, KEY)
    assert session is not None
    database.write_now(runs.start_again, session, Opening(), None, now_ms())
    database.close()
    assert "waits for a run at work" in run(talked, "sessions", "why", KEY).output


def test_the_impact_of_a_file_is_told_before_it_is_taken_over(talked: Path):
    (talked / "config.yaml").write_text(CONFIG.replace("mode: both", "mode: idle\n  idle_minutes: 60"))
    shown = run(talked, "config", "check", "--impact")
    assert shown.exit_code == 0, shown.output
    assert "2 open sessions start afresh at once (Europe/London): telegram 2." in shown.output
    assert json.loads(run(talked, "config", "check", "--impact", "--json").stdout)["impact"] == {"telegram": 2}
    (talked / "config.yaml").write_text(CONFIG.replace("mode: both", "mode: none"))
    assert "0 open sessions start" in run(talked, "config", "check", "--impact").output


def test_jobs_are_made_looked_at_and_changed(home: Path):
    (home / "config.yaml").write_text(CONFIG)
    assert "No jobs." in run(home, "jobs", "list").output
    made = run(home, "jobs", "add", "weekly report", "0 9 * * 1", "What was there this week?")
    assert made.exit_code == 0, made.output
    line, *following = made.output.splitlines()
    job_id = line.split()[0]
    assert "weekly report  At 09:00, only on Monday (Europe/London)  next Mon " in line
    assert [each.split()[0] for each in following] == [*["Mon"] * 3, "Its"]
    assert (
        following[-1]
        == f"Its answers are kept: `hermes jobs show {job_id}` prints them, and an open terminal shows them."
    )
    assert job_id in run(home, "jobs", "list").output
    (facts,) = json.loads(run(home, "jobs", "list", "--json").stdout)
    assert (facts["schedule"], facts["session_key"]) == (
        {"kind": "cron", "expr": "0 9 * * 1"},
        f"agent:main:job:{job_id}",
    )
    shown = run(home, "jobs", "show", job_id[:5]).output
    assert "What was there this week?" in shown
    assert shown.count("Mon ") == 4  # the line of the job, and the three that follow
    for action, said in (
        ("pause", "is paused"),
        ("resume", "goes on"),
        ("run", "runs as soon as"),
        ("delete", "is deleted"),
    ):
        done = run(home, "jobs", action, job_id)
        assert (done.exit_code, said in done.output) == (0, True), done.output
    assert run(home, "jobs", "show", job_id).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["x", "whenever", "do"], "is no schedule"),
        (["x", "0 9 * * 8", "do"], "weekday"),
        (["", "@daily", "do"], "name"),
        (["x", "@daily", "do", "--timezone", "Mars/Base"], "no time zone"),
        (["x", "@daily", "do", "--deliver", "pigeon"], "deliver cannot be"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_with_exit_code_2(home: Path, arguments: list[str], why: str):
    refused = run(home, "jobs", "add", *arguments)
    assert refused.exit_code == 2
    assert why in refused.output
    assert "Traceback" not in refused.output
