"""What changed between two configurations, and the address of the database without all of them."""

import subprocess
import sys

import pytest

from gateway.config.editing import example
from gateway.config.model import Config
from gateway.config.reading import Change, diff
from gateway.config.sources import database_url


def config(**data: object) -> Config:
    return Config.model_validate(data)


def test_nothing():
    assert diff(config(), config()) == []


def test_values_lists_and_what_comes_and_goes():
    old = config(session_reset={"idle_minutes": 5, "overrides": [{"chat": "dm"}]}, agents={"a": {}})
    new = config(session_reset={"idle_minutes": 6}, platforms={"slack": {"allowed_users": ["U1"]}})

    assert Change(path="session_reset.idle_minutes", old=5, new=6) in diff(old, new)
    assert Change(path="platforms.slack.allowed_users", old=[], new=["U1"]) in diff(old, new)
    assert Change(path="session_reset.overrides[0].chat", old="dm", new=None) in diff(old, new)
    assert "agents.a.system_prompt" in {change.path for change in diff(old, new)}


def test_secrets_are_seen_to_change_and_not_shown():
    old, new = (config(platforms={"discord": {"token": token}}) for token in ("one-secret", "two-secret"))

    (change,) = diff(old, new)

    assert change == Change(path="platforms.discord.token", old="****", new="****")
    assert diff(config(), new)[0].old == ""


@pytest.mark.parametrize(
    ("yaml", "dotenv", "environ", "url"),
    [
        ("", "", {}, ""),
        ("log: {level: info}", "", {}, ""),
        ("database: {url: 'postgresql://a'}", "", {}, "postgresql://a"),
        ("database: {url: '${DB}'}", "DB=postgresql://b", {}, "postgresql://b"),
        ("database: {url: '${DB}'}", "", {}, ""),
        ("database: {url: 'x'}", "HERMES_DATABASE__URL=y", {}, "y"),
        ("database: {url: 'x'}", "HERMES_DATABASE__URL=y", {"HERMES_DATABASE__URL": "z"}, "z"),
        ("database: {url: 'x'}", "", {"HERMES_DATABASE__URL": ""}, ""),
        ("database:\n", "", {}, ""),
        ("database: [", "", {}, ""),
        ("database: {url: 3}", "", {}, ""),
    ],
)
def test_the_address_of_the_database(home, yaml, dotenv, environ, url):
    (home / "config.yaml").write_text(yaml)
    (home / ".env").write_text(dotenv)

    assert database_url(home, environ) == url


def test_the_address_costs_no_pydantic(tmp_path):
    (tmp_path / "config.yaml").write_text("database: {url: x}")
    code = (
        "import sys, pathlib; from gateway.config.sources import database_url; import gateway.cli.config;"
        f"assert database_url(pathlib.Path({str(tmp_path)!r}), {{}}) == 'x';"
        "assert not {'pydantic', 'openai'} & set(sys.modules), sorted(sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_where_no_address_is_written_no_yaml_is_read(tmp_path):
    (tmp_path / "config.yaml").write_text(example())
    code = (
        "import sys, pathlib; from gateway.config.sources import database_url;"
        f"assert database_url(pathlib.Path({str(tmp_path)!r}), {{}}) == '';"
        "assert 'ruamel.yaml' not in sys.modules"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""
