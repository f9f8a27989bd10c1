"""`hermes config` as a person types it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.config import config
from gateway.cli.context import Cli

Hermes = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def hermes(home: Path) -> Hermes:
    def run(*arguments: str, typed: str | None = None, **environ: str) -> Result:
        return CliRunner().invoke(config, list(arguments), obj=Cli(home=home, environ=environ), input=typed)

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
    assert result.output.endswith(
        "2 problems. Nothing was changed; the running gateway keeps the last good configuration.\n"
    )
    assert [problem["line"] for problem in json.loads(hermes("check", "--json").output)["problems"]] == [1, 2]


def test_check_shows_warnings_and_is_content(hermes, home):
    home.mkdir()
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
