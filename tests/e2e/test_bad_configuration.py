"""A file with nearly every kind of mistake: one list, each with its place, on the command line and when it is saved under a running daemon."""

from pathlib import Path

import pytest

from tests.e2e.telegram.daemon import save
from tests.e2e.test_daemon import configure, hermes, refused, running

BAD = """\
modle: {name: x}
model:
  provider: opnai
  context_window: -5
  max_output_tokens: "many"
  timeout_seconds: yes
agents:
  main:
    tools: [memroy, files]
    system_promt: hello
session_reset:
  mode: dayly
  idle_minuts: 240
  at_hour: 25
  timezone: Europe/Londn
  notify: false
  notify: true
  overrides:
    - {platform: telegrm, mode: idle}
    - {chat: chanel, mode: idle}
platforms:
  telegram: {enabled: true, token: "", allowed_users: [111], mode: poling}
  discrod: {enabled: true}
  slack: {enabled: true, bot_token: x, mode: http}
api:
  port: 99999
  host: 0.0.0.0
  keys: [{name: "my laptop", key: short, scopes: [chatt]}]
database: {url: "mysql://x"}
limits: {parallel_runs: 0}
log: {level: loud, format: "${UNSET_NAME}"}
"""
MISTAKES = (
    "1:1  modle",
    "3:13  model.provider",
    "4:19  model.context_window",
    "5:22  model.max_output_tokens",
    "6:20  model.timeout_seconds",
    "9:13  agents.main.tools[0]",
    "10:5  agents.main.system_promt",
    "12:9  session_reset.mode",
    "13:3  session_reset.idle_minuts",
    "14:12  session_reset.at_hour",
    "15:13  session_reset.timezone",
    "17:3  session_reset.notify",
    "19:18  session_reset.overrides[0].platform",
    "20:14  session_reset.overrides[1].chat",
    "22:36  platforms.telegram.token",
    "22:56  platforms.telegram.allowed_users[0]",
    "22:68  platforms.telegram.mode",
    "23:3  platforms.discrod",
    "24:3  platforms.slack.signing_secret",
    "26:9  api.port",
    "28:17  api.keys[0].name",
    "28:35  api.keys[0].key",
    "28:51  api.keys[0].scopes[0]",
    "29:17  database.url",
    "30:25  limits.parallel_runs",
    "31:14  log.level",
    "31:28  log.format",
)
NEAREST = (
    "memory",
    "idle_minutes",
    "daily",
    "Europe/London",
    "discord",
    "telegram",
    "channel",
    "system_prompt",
    "polling",
    "openai",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


async def test_every_mistake_is_in_one_list_and_nothing_starts(home: Path):
    save(home / "config.yaml", BAD)
    code, said = await hermes(home, "config", "check")
    assert code == 2
    for mistake in MISTAKES:
        assert f"config.yaml:{mistake}: " in said, mistake
    for word in NEAREST:
        assert f"did you mean {word}?" in said, word
    assert "problems. Nothing was changed" in said
    code, said = await refused(home)
    assert code == 2
    assert all(f"config.yaml:{mistake}: " in said for mistake in MISTAKES)


async def test_saved_under_a_running_daemon_it_is_refused_and_told(home: Path):
    configure(home)
    async with running(home) as daemon:
        save(home / "config.yaml", BAD)
        said = await daemon.says("config.refused", "the running gateway keeps the last good configuration")
        assert all(f"config.yaml:{mistake}: " in said for mistake in MISTAKES)
        configure(home, session_reset={"mode": "daily"})
        said = await daemon.says("The configuration is good again.")
        assert "config.reloaded" in said
