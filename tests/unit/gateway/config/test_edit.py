"""One key is changed and nothing else."""

import os
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.editing import edit, example
from gateway.config.problems import BadConfig
from gateway.config.reading import load
from gateway.config.sources import Sources

FILE = """\
# at the top
session_reset:   # spaced
  mode: 'idle'   # why
  idle_minutes: 60

  # the list
  overrides:
    - {platform: slack, mode: none}
platforms:
  telegram:
    token: "${BOT}"
"""


def changed(yaml: str, key: str, value: str) -> list[tuple[str, str]]:
    """The lines before and after, where they differ."""
    new = edit(Sources(yaml=yaml), {key: value}).sources.yaml
    assert len(new.splitlines()) == len(yaml.splitlines())
    return [(old, now) for old, now in zip(yaml.splitlines(), new.splitlines(), strict=True) if old != now]


def test_comments_quotes_and_blank_lines_stay():
    assert changed(FILE, "session_reset.idle_minutes", "90") == [("  idle_minutes: 60", "  idle_minutes: 90")]


def test_an_item_of_a_list():
    assert changed(FILE, "session_reset.overrides[0].mode", "daily") == [
        ("    - {platform: slack, mode: none}", "    - {platform: slack, mode: daily}")
    ]


def test_lists_keep_their_indentation():
    flat = "session_reset:\n  overrides:\n  - platform: slack\n    mode: none\nlog:\n  level: info\n"

    assert changed(flat, "log.level", "debug") == [("  level: info", "  level: debug")]


@pytest.mark.parametrize(
    ("yaml", "key", "value", "after"),
    [
        ("log:\n  level:   info   # quiet\n", "log.level", "debug", "log:\n  level:   debug   # quiet\n"),
        ("log: {level: info,\n  file: no}\n", "log.level", "debug", "log: {level: debug,\n  file: no}\n"),
        ("model:\nlog:   # why\n    level: info\n", "log.file", "true", "model:\nlog:   # why\n    level: info\n    file: true\n"),
        ("model:\n  fallbacks:  # two\n    - a\n    - b\n# end\n", "model.fallbacks", "c", "model:\n  fallbacks:  # two\n    [c]\n# end\n"),
        ("model:\n  fallbacks:\n  - a\n\n# end\n", "model.fallbacks", "c", "model:\n  fallbacks: [c]\n\n# end\n"),
        ("model:\n  name: >-\n    a\n\nlog: {}\n", "model.name", "b", "model:\n  name: b\n\nlog: {}\n"),
        ("model: {name: , fast: x}\n", "model.name", "b", "model: {name: b , fast: x}\n"),
        ("voice: &v\n  model: a\nmodel: ~\n", "model.name", "a b: c", 'voice: &v\n  model: a\nmodel: {name: "a b: c"}\n'),
    ],
)  # fmt: skip
def test_every_other_character_stays(yaml, key, value, after):
    assert edit(Sources(yaml=yaml), {key: value}).sources.yaml == after


COMMENTED = re.compile(r"^( *)# ((?:  )*[a-z_]+: .*)$", re.MULTILINE)
KEYS = (
    "model.name",
    "api.host",
    "log.level",
    "agents.main.system_prompt",
    "session_reset.at_hour",
    "voice.base_url",
    "database.url",
)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(KEYS),
    st.one_of(st.sampled_from(["no", "7", "a: b", "# x", "gpt-5-mini", "x\ny"]), st.text(max_size=9)),
    st.integers(0, 2**40),
)
def test_no_more_than_one_line_goes_whatever_is_set(key, value, uncommented):
    """In an example of which some lines are switched on."""
    numbers = iter(range(10_000))
    text = COMMENTED.sub(lambda line: line[1] + line[2] if uncommented >> next(numbers) & 1 else line[0], example())
    made = edit(Sources(yaml=text), {key: value}, check=False)
    before, after = Counter(text.splitlines()), Counter(made.sources.yaml.splitlines())
    assert (before - after).total() <= 1
    assert (after - before).total() <= 4


def test_a_key_that_comes_by_a_merge_gets_a_line_of_its_own():
    yaml = "platforms:\n  slack: &both\n    owner: U1\n  discord:\n    <<: *both\n    dm_scope: shared\n"

    assert edit(Sources(yaml=yaml), {"platforms.discord.owner": "U2"}).sources.yaml == f"{yaml}    owner: U2\n"


def test_what_no_edit_can_say_is_refused():
    with pytest.raises(BadConfig, match="1 problem"):
        edit(Sources(yaml="model: {name: &a x, fast: *a}\n"), {"model.name": "y"})


def test_new_sections_are_added():
    assert edit(Sources(yaml="log: {level: info}\n"), {"platforms.discord.dm_scope": "shared"}).lines == (
        (2, "platforms:"),
        (3, "  discord:"),
        (4, "    dm_scope: shared"),
    )


def test_a_new_file_names_the_schema():
    assert (
        edit(Sources(), {"api.port": "0"}).sources.yaml
        == "# yaml-language-server: $schema=./config.schema.json\napi:\n  port: 0\n"
    )


def test_a_file_of_comments_keeps_them():
    assert edit(Sources(yaml="# mine\n"), {"api.port": "0"}).sources.yaml == "# mine\napi:\n  port: 0\n"


def test_an_empty_section_keeps_its_comments():
    new = edit(Sources(yaml="model:\n  # name: x\napi:\n  port: 1\n"), {"model.name": "m"}).sources.yaml

    assert "# name: x" in new
    assert "name: m" in new


@pytest.mark.parametrize("text", ["no", "10:30", "null", "1", "a: b", "# x", "", "*", "2024-01-01", " x", "yes please"])
def test_texts_come_back_as_they_were(home, text):
    edit(Sources(), {"agents.main.system_prompt": text}).write(home)

    assert load(home, {}).config.agents["main"].system_prompt == text


def test_ids_stay_texts(home):
    edit(Sources(), {"platforms.telegram.allowed_users": "111, -222"}).write(home)

    assert load(home, {}).config.platforms.telegram.allowed_users == ["111", "-222"]
    assert '["111", "-222"]' in (home / "config.yaml").read_text()


@pytest.mark.parametrize("secret", ["123:abc", 'it\'s \\ "so" #1', "$HOME ${x", "  spaces  ", "zwölf"])
def test_a_secret_goes_to_dotenv(home, secret):
    (home / ".env").write_text("# kept\nOTHER=1")

    edit(Sources.of(home, {}), {"platforms.discord.token": secret}).write(home)

    assert "token: ${DISCORD_TOKEN}" in (home / "config.yaml").read_text()
    assert (home / ".env").read_text().startswith("# kept\nOTHER=1\nDISCORD_TOKEN=")
    loaded = load(home, {"HERMES_PLATFORMS__DISCORD__ENABLED": "true"})
    assert loaded.config.platforms.discord.token.get_secret_value() == secret
    for name in (".env", "config.yaml"):
        assert (home / name).stat().st_mode & 0o777 == 0o600


def test_a_secret_keeps_the_variable_that_it_has():
    made = edit(Sources(yaml=FILE, dotenv="export BOT=old\nB=2\n"), {"platforms.telegram.token": "new"})

    assert (made.variables, made.sources.dotenv, made.lines) == (("BOT",), "B=2\nBOT='new'\n", ())


def test_a_reference_is_written_as_it_is():
    made = edit(Sources(dotenv="K=1"), {"voice.api_key": "${K}"})

    assert made.variables == ()
    assert "api_key: ${K}" in made.sources.yaml


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("api.prt", "1", "unknown key"),
        ("nothing", "1", "unknown key"),
        ("", "1", "unknown key"),
        ("api", "1", "is a section"),
        ("api.port.x", "1", "unknown key"),
        ("api.keys[0].name", "x", "there is nothing of that kind to change"),
        ("api.port", "x", "got 'x'"),
        ("agents.main.tools", "web_fetc, files", "got 'web_fetc'"),
        ("platforms.slack.enabled", "yes", "missing"),
        ("session_reset.timezone", "Mars", "got 'Mars', which is no time zone"),
    ],
)
def test_what_cannot_be_is_refused(key, value, said):
    with pytest.raises(BadConfig) as caught:
        edit(Sources(yaml=FILE), {key: value})

    assert caught.value.problems[0].said == said


@pytest.mark.parametrize(("key", "remedy"), [("api.prt", "did you mean port?"), ("api.port.hos", "did you mean host?")])
def test_an_unknown_key_names_those_that_there_are(key, remedy):
    with pytest.raises(BadConfig) as caught:
        edit(Sources(), {key: "1"})

    assert caught.value.problems[0].remedy == remedy


@pytest.mark.parametrize("yaml", ["log: {level: info, level: info}", "model: [", "- a"])
def test_a_broken_file_is_not_edited(yaml):
    with pytest.raises(BadConfig):
        edit(Sources(yaml=yaml), {"api.port": "1"})


def test_one_mistake_can_be_mended():
    assert edit(Sources(yaml="api: {port: 99999}\n"), {"api.port": "1"}).sources.yaml == "api: {port: 1}\n"


def test_a_link_stays_one(home):
    (home / "elsewhere").mkdir()
    real = home / "elsewhere" / "real.yaml"
    real.write_text("log: {level: info}\n")
    (home / "config.yaml").symlink_to(real)

    edit(Sources.of(home, {}), {"log.level": "debug"}).write(home)

    assert (home / "config.yaml").is_symlink()
    assert real.read_text() == "log: {level: debug}\n"
    assert list(home.glob(".config*")) == []


def test_a_file_keeps_its_mode_and_its_owner(home):
    (home / "config.yaml").write_text(FILE)
    (home / "config.yaml").chmod(0o640)
    owned = os.geteuid() == 0
    if owned:
        os.chown(home, 4242, 4243)
        os.chown(home / "config.yaml", 4242, 4243)

    edit(Sources.of(home, {}), {"platforms.telegram.token": "new"}).write(home)

    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o640
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    for name in ("config.yaml", ".env") if owned else ():
        assert ((home / name).stat().st_uid, (home / name).stat().st_gid) == (4242, 4243), name
