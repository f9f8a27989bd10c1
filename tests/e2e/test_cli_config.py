"""`hermes config` as a person types it."""

import json
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import hermes as root

Hermes = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def hermes(home: Path) -> Hermes:
    def run(*arguments: str, typed: str | None = None, **environ: str) -> Result:
        return CliRunner().invoke(
            root, ["--home", str(home), "config", *arguments], env=environ, input=typed, prog_name="hermes"
        )

    return run


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_init_then_check_then_set_then_show(hermes, home):
    assert hermes("init").exit_code == 0
    assert hermes("check").output == f"{home / 'config.yaml'} is good.\n"
    assert hermes("set", "session_reset.idle_minutes", "240").output.startswith("config.yaml:")

    shown = hermes("show").output.splitlines()

    row = next(line.split() for line in shown if line.startswith("session_reset.idle_minutes"))
    assert row[1] == "240"
    assert row[2].startswith("config.yaml:")


def test_init_makes_private_files_and_a_private_home(hermes, home):
    hermes("init")

    assert mode(home) == 0o700
    assert {path.name: mode(path) for path in home.iterdir()} == {"config.yaml": 0o600, "config.schema.json": 0o600}
    assert json.loads((home / "config.schema.json").read_text())["title"] == "Config"


def test_init_never_overwrites_by_itself(hermes, home):
    home.mkdir()
    (home / "config.yaml").write_text("log: {level: debug}\n")

    refused = hermes("init")

    assert refused.exit_code == 1
    assert "--force" in refused.output
    assert (home / "config.yaml").read_text() == "log: {level: debug}\n"
    assert hermes("init", "--force").exit_code == 0
    assert (home / "config.yaml").read_text().startswith("# yaml-language-server")


def test_init_where_nothing_can_be_written(hermes, home):
    home.touch()

    result = hermes("init")

    assert result.exit_code == 1
    assert "is a file" in result.output


def test_check_without_a_file(hermes, home):
    result = hermes("check")

    assert (result.exit_code, result.output) == (0, f"There is no {home / 'config.yaml'}; the defaults are good.\n")
    assert not home.exists()


def test_check_lists_every_problem_and_exits_with_2(hermes, home):
    home.mkdir()
    (home / "config.yaml").write_text("log: {level: inf}\napi: {prt: 1}\n")

    result = hermes("check")

    assert result.exit_code == 2
    assert "config.yaml:1:14  log.level: got 'inf'" in result.output
    assert "config.yaml:2:7  api.prt: unknown key" in result.output
    assert result.output.endswith("2 problems. Nothing was changed.\n")
    (home / "gateway.pid").write_text("1\n")
    assert "the running gateway keeps the last good configuration" in hermes("check").output
    assert [problem["line"] for problem in json.loads(hermes("check", "--json").output)["problems"]] == [1, 2]


def test_a_draft_is_checked_before_it_is_saved(hermes, home, tmp_path):
    draft = tmp_path / "draft.yaml"
    draft.write_text("log: {level: inf}\n")
    refused = hermes("check", str(draft)).output
    assert refused.startswith(f"{draft}:1:14  log.level: got 'inf'")
    assert "config.yaml" not in refused
    draft.write_text("session_reset: {mode: idle, idle_minutes: 60}\n")
    result = hermes("check", str(draft), "--impact")
    assert result.exit_code == 0
    assert f"{draft} is good." in result.output
    assert "Impact: with this configuration 0 open sessions start afresh at once" in result.output


def test_check_shows_warnings_and_is_content(hermes, home):
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("session_reset: {overrides: [{chat: dm}]}\n")

    result = hermes("check")

    assert result.exit_code == 0
    assert "warning  config.yaml:1:29  session_reset.overrides[0]: changes nothing" in result.output
    assert result.output.endswith("is good, 1 warning.\n")
    data = json.loads(hermes("check", "--json").output)
    assert (data["ok"], len(data["warnings"])) == (True, 1)


def test_show_as_json_masks_secrets(hermes):
    hermes("set", "platforms.discord.token", "very-secret")

    result = hermes("show", "--json", HERMES_LOG__LEVEL="error")

    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(result.output)}
    assert rows["platforms.discord.token"] == ("****", "config.yaml:4")
    assert rows["log.level"] == ("error", "environment HERMES_LOG__LEVEL")
    assert rows["api.port"] == (8642, "default")
    assert "very-secret" not in result.output


def test_show_of_a_bad_file_lists_its_problems(hermes, home):
    home.mkdir()
    (home / "config.yaml").write_text("log: 3\n")

    assert hermes("show").exit_code == 2
    assert json.loads(hermes("show", "--json").output)["ok"] is False


def test_schema(hermes):
    assert "SessionResetSection" in json.loads(hermes("schema").output)["$defs"]


def test_set_prints_the_line_that_changed(hermes, home):
    home.mkdir()
    (home / "config.yaml").write_text("# mine\nlog:\n  level: info # quiet\n")

    result = hermes("set", "log.level", "debug")

    assert result.output == "config.yaml:3    level: debug # quiet\n"
    assert (home / "config.yaml").read_text() == "# mine\nlog:\n  level: debug # quiet\n"
    assert mode(home / "config.yaml") == 0o600
    assert hermes("set", "log.level", "debug").output == "log.level was so already.\n"


def test_set_refuses_what_would_be_wrong_and_changes_nothing(hermes, home):
    home.mkdir()
    (home / "config.yaml").write_text("log: {level: info}\n")
    before = (home / "config.yaml").stat()

    result = hermes("set", "platforms.telegram.enabled", "true")

    assert result.exit_code == 2
    assert "platforms.telegram.token: missing" in result.output
    assert result.output.endswith("1 problem. Nothing was changed.\n")
    assert (home / "config.yaml").stat() == before
    assert [path.name for path in home.iterdir()] == ["config.yaml"]


def test_set_with_an_unknown_key(hermes):
    result = hermes("set", "api.prt", "1")

    assert result.exit_code == 2
    assert "api.prt: unknown key\n        did you mean port?" in result.output


def test_a_secret_is_read_from_standard_input_and_shown_nowhere(hermes, home):
    result = hermes("set", "platforms.telegram.token", "-", typed="123:abc\n")

    assert result.exit_code == 0
    assert "config.yaml:4      token: ${TELEGRAM_TOKEN}\n.env  TELEGRAM_TOKEN=****\n" in result.output
    assert "123:abc" not in result.output
    assert (home / ".env").read_text() == "TELEGRAM_TOKEN='123:abc'\n"
    assert mode(home / ".env") == 0o600


def test_a_secret_that_the_environment_hides_is_told(hermes):
    assert "wins over .env" in hermes("set", "platforms.telegram.token", "new", TELEGRAM_TOKEN="old").output


def test_wrong_usage_is_2(hermes):
    assert hermes("set", "log.level").exit_code == 2
    assert hermes("nothing").exit_code == 2


def test_a_new_key_stands_below_the_comment_that_shows_it(hermes, home):
    hermes("init")

    hermes("set", "model.name", "gpt-5-mini")
    hermes("set", "session_reset.timezone", "Europe/London")

    lines = (home / "config.yaml").read_text().splitlines()
    name, zone = lines.index("  name: gpt-5-mini"), lines.index("  timezone: Europe/London")
    assert lines[name - 1].startswith("  # name: ")
    assert lines[zone - 1].startswith("  # timezone: ")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("log:\n  level: info\n\n# Else\napi:\n  port: 1", "log:\n  level: info\n  file: true\n\n# Else\napi:\n  port: 1\n"),
        ("log:\n  # level: info\n\n# Else\napi:\n  port: 1\n", "log:\n  file: true\n  # level: info\n\n# Else\napi:\n  port: 1\n"),
        ("log: {level: info}\n# Else\n", "log: {level: info, file: true}\n# Else\n"),
        ("api:\n  port: 1\n\n# The end\n", "api:\n  port: 1\nlog:\n  file: true\n\n# The end\n"),
        ("# log: off\n\napi:\n  port: 1\n", "# log: off\nlog:\n  file: true\n\napi:\n  port: 1\n"),
    ],
    ids=["behind the last", "a section of comments", "in braces", "a new section", "a new section below its comment"],
)  # fmt: skip
def test_a_new_key_stands_before_the_heading_of_the_next_section(hermes, home, before, after):
    home.mkdir()
    (home / "config.yaml").write_text(before)

    assert hermes("set", "log.file", "true").exit_code == 0

    assert (home / "config.yaml").read_text() == after


def test_a_line_of_a_long_text_is_no_comment(hermes, home):
    home.mkdir()
    text = "agents:\n  main:\n    system_prompt: |\n      Speak.\n    # tools: none\n"
    (home / "config.yaml").write_text(text.replace("    # tools", "      # tools"))

    assert hermes("set", "agents.main.tools", "files").exit_code == 0

    assert "      # tools: none\n    tools: [files]\n" in (home / "config.yaml").read_text()


@pytest.mark.parametrize("command", [["check"], ["show"], ["init"], ["set", "log.level", "info"]], ids=" ".join)
def test_a_home_that_is_a_file(hermes, home, command):
    home.touch()

    result = hermes(*command)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"{home} is a file, or below one. Name a folder with --home DIR or HERMES_HOME.\n"


def test_a_home_that_others_can_look_into(hermes, home):
    home.mkdir()
    home.chmod(0o755)

    result = hermes("check")

    assert result.exit_code == 0
    assert f"warning  {home}: others on this machine can look into it\n        chmod 700 {home}\n" in result.output
    home.chmod(0o700)
    assert "warning" not in hermes("check").output


@pytest.mark.parametrize("command", [["init"], ["init", "--force"], ["set", "log.level", "info"]], ids=" ".join)
def test_a_folder_where_the_file_belongs(hermes, home, command):
    (home / "config.yaml").mkdir(parents=True)

    result = hermes(*command)

    assert result.exit_code in {1, 2}
    assert "config.yaml" in result.output
    assert "is a folder" in result.output
    assert "Errno" not in result.output


@pytest.mark.parametrize("command", [["init"], ["set", "log.level", "info"]], ids=" ".join)
def test_a_full_disk(hermes, home, command):
    """A limit on the size of files is as good."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    hermes("check")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        result = hermes(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"{home / 'config.'}")
    assert "file too large" in result.stderr
    assert list(home.iterdir()) == []


def test_a_password_in_an_address_is_shown_nowhere(hermes, home):
    hermes("set", "model.name", "m")
    set_now = hermes("set", "model.base_url", "http://me:pass@word@host/v1")

    shown = hermes("show")

    assert "http://****@host/v1" in set_now.output
    assert "http://****@host/v1" in shown.output
    assert "http://****@host/v1" in hermes("show", "--json").output
    assert "word" not in set_now.output + shown.output
    assert "me:pass@word@host" in (home / "config.yaml").read_text()
