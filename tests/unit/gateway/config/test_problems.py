"""The list of everything that is wrong."""

import json
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, create_model

from adapters.section import Section
from gateway.cli.output import bad_config_as_text, problem_as_text, report
from gateway.config.model import Config
from gateway.config.problems import BadConfig, dotted, parse_path
from gateway.config.reading import load, read
from gateway.config.sources import Sources
from gateway.config.validation import BadReference, explained, takes, validated
from gateway.config.yaml_nodes import read_yaml


def test_the_whole_list(refused):
    yaml = """\
        session_reset:
          mode: dayly
          idle_minuts: 240
          timezone: Europe/Londn
          notify: true
          notify: false
          at_hour: 10:30
        platforms:
          telegram: {token: ABC-DEF-1, allowed_users: [111], mode: no}
        """

    bad = refused(yaml, HERMES_API__PORT="many")

    assert bad_config_as_text(bad) == dedent("""\
        config.yaml:2:9  session_reset.mode: got 'dayly'
            2 |   mode: dayly
              |         ^ allowed: idle, daily, both, none (did you mean daily?)

        config.yaml:3:3  session_reset.idle_minuts: unknown key
            3 |   idle_minuts: 240
              |   ^ did you mean idle_minutes?

        config.yaml:4:13  session_reset.timezone: got 'Europe/Londn', which is no time zone
            4 |   timezone: Europe/Londn
              |             ^ did you mean Europe/London?

        config.yaml:6:3  session_reset.notify: written twice
            6 |   notify: false
              |   ^ first on line 5; keep one

        config.yaml:7:12  session_reset.at_hour: got '10:30'
            7 |   at_hour: 10:30
              |            ^ allowed: 0 to 23

        config.yaml:9:48  platforms.telegram.allowed_users[0]: got the number 111
                write it in quotes: "111"

        config.yaml:9:60  platforms.telegram.mode: got 'no'
                allowed: polling, webhook

        environment HERMES_API__PORT: got 'many'
                allowed: 0 to 65535

        8 problems. Nothing was changed; the running gateway keeps the last good configuration.""")


def test_the_same_as_data(refused):
    bad = refused("log: {level: inf}\n")

    assert json.loads(json.dumps(report(bad.problems, bad.warnings))) == {
        "ok": False,
        "problems": [
            {
                "file": "config.yaml",
                "line": 1,
                "column": 14,
                "key": "log.level",
                "problem": "got 'inf'",
                "allowed": "allowed: debug, info, warning, error",
                "suggestion": "info",
            }
        ],
        "warnings": [],
    }


def test_colour_is_only_added(refused):
    bad = refused("log:\n  level: inf\n")

    plain = bad_config_as_text(bad, color=True)
    for code in ("\033[0m", "\033[1m", "\033[2m", "\033[31m"):
        assert code in plain
        plain = plain.replace(code, "")
    assert plain == bad_config_as_text(bad)


@pytest.mark.parametrize(
    ("yaml", "place", "said", "remedy"),
    [
        ("api: {port: '8642'}", "1:13", "got '8642'", "write it without quotes: 8642"),
        ("api: {port: 99999}", "1:13", "got the number 99999", "allowed: 0 to 65535"),
        ("api: {port: [1]}", "1:13", "got a list", "allowed: 0 to 65535"),
        ("api: 3", "1:6", "got the number 3", "allowed: a section with keys below it"),
        (
            "api: {public_url: example.com}",
            "1:19",
            "got 'example.com', which is no URL",
            "write it with its scheme, as in https://host/path",
        ),
        ("memory: {enabled: maybe}", "1:19", "got 'maybe'", "allowed: true, false"),
        ("limits: {steps_per_run: 0}", "1:25", "got the number 0", "allowed: a whole number from 1"),
        ("limits: {attachment_bytes: 10:30}", "1:28", "got '10:30'", "allowed: a whole number from 1"),
        ("model: {name: true}", "1:15", "got true", 'write it in quotes: "true"'),
        ("model: {name: }", "1:14", "got nothing", "allowed: a text"),
        ("model: {fallbacks: x}", "1:20", "got 'x'", 'allowed: a list, as in ["..."]'),
        ("agents: {'a b': {}}", "1:10", "this name cannot be used", "allowed: letters, digits, _ and -"),
        (
            "platforms: {discord: {allowed_users: ['']}}",
            "1:39",
            "got an empty text",
            "write an id, or take the line out",
        ),
        ("platfroms: {}", "1:1", "unknown key", "did you mean platforms?"),
        ("platforms: {telegram: {Token: x}}", "1:24", "unknown key", "did you mean token?"),
        (
            "database: {url: 'mysql://x'}",
            "1:17",
            "got another kind of address",
            "allowed: postgresql://..., or nothing for SQLite in the home",
        ),
        (
            "agents: {main: {system_prompt: 'a ${b c} d'}}",
            "1:32",
            "${b is no reference",
            "write ${NAME}; $${ is a plain ${",
        ),
        ("- a", "1:1", "this file is a list", "begin with a section such as  model:"),
        ("just text", "1:1", "this file is a single value", "begin with a section such as  model:"),
        (
            "model:\n\tname: x",
            "2:1",
            "this is no YAML: found character that cannot start any token",
            "YAML wants spaces here, not tabs",
        ),
        (
            "model:\n  name: a: b",
            "2:10",
            "this is no YAML: mapping values are not allowed here",
            "a text with a colon needs quotes; or the line above ends too early",
        ),
        (
            "model: {}\n---\nmodel: {}",
            "2:1",
            "this is no YAML: found another document",
            "one document only: take out the line ---",
        ),
        (
            "model:\n  name: 'never closed\n",
            "2:9",
            "this is no YAML: found unexpected end of stream",
            "check quotes, brackets and the indentation here and on the line above",
        ),
        ("model: &a [*a]", "1:8", "contains itself", "write it out instead of the alias"),
        ("model: {? [a] : b}", "1:11", "a key must be a word", "take the brackets away"),
        ("model: {name: !secret x}", "1:15", "begins with a tag that is not known here", "write it in quotes"),
        ("model: {<<: 3}", "1:13", "<< takes a mapping", "name the anchor of a mapping"),
    ],
)
def test_each_problem_says_where_what_and_what_else(refused, yaml, place, said, remedy):
    problem = refused(yaml).problems[0]

    assert (str(problem.place), problem.said, problem.remedy) == (f"config.yaml:{place}", said, remedy)


def test_a_bad_item_of_a_list_does_not_hide_the_others(refused):
    keys = [problem.path for problem in refused("api: {keys: [3, {name: a}, {nam: b, key: k}]}").problems]

    assert keys == ["api.keys[0]", "api.keys[1].key", "api.keys[2].name", "api.keys[2].nam"]


def test_an_override_whose_platform_is_misspelt_does_not_lack_one(only_problem):
    problem = only_problem("session_reset: {overrides: [{platform: telegramm, mode: daily}]}")
    assert problem.path == "session_reset.overrides[0].platform"


def test_both_values_of_a_key_that_is_written_twice_are_checked(refused):
    assert [problem.said for problem in refused("log: {level: info, level: inf}").problems] == [
        "written twice",
        "got 'inf'",
    ]


def test_a_line_of_dotenv_that_is_none(only_problem):
    problem = only_problem(dotenv="GOOD=1\n\nthis is - no variable\n")

    assert (str(problem.place), problem.said, problem.excerpt) == (".env:3:1", "this line cannot be read", "")


def test_a_bad_value_in_dotenv_has_its_line(only_problem):
    problem = only_problem(dotenv="# a comment\nHERMES_LOG__LEVEL=loud\n")

    assert problem_as_text(problem).startswith(".env:2:1  log.level: got 'loud'\n        allowed: debug")


def test_an_unknown_section_in_the_environment(only_problem):
    assert problem_as_text(only_problem(HERMES_SESION_RESET__MODE="idle")) == (
        "environment HERMES_SESION_RESET__MODE: unknown key\n        did you mean session_reset?"
    )


def test_an_unknown_platform_in_the_environment(only_problem):
    assert str(only_problem(HERMES_PLATFORMS__ICQ__TOKEN="x").place) == "environment HERMES_PLATFORMS__ICQ__TOKEN"


def test_a_key_without_a_value_has_its_own_line(only_problem):
    problem = only_problem("model:\n  name: # later\n  # or never\n  fast: x\n")

    assert (str(problem.place), problem.said) == ("config.yaml:2:8", "got nothing")


def test_a_folder_instead_of_a_file(home, refused, loaded):
    (home / "config.yaml").mkdir()
    with pytest.raises(BadConfig, match="1 problem") as caught:
        load(home, {})

    assert (
        problem_as_text(caught.value.problems[0])
        == "config.yaml: is a folder\n        put a file there, or take the folder away"
    )


def test_a_file_that_is_not_utf8_is_told_by_line_together_with_the_rest(home):
    (home / "config.yaml").write_bytes("log: {}\nmodel: {name: caf\xe9}\n".encode("latin-1"))

    with pytest.raises(BadConfig) as caught:
        load(home, {"HERMES_LOG__LEVEL": "loud"})

    assert [str(problem.place) for problem in caught.value.problems] == [
        "config.yaml:2:18",
        "environment HERMES_LOG__LEVEL",
    ]


def test_a_file_that_may_not_be_read(home):
    (home / "config.yaml").symlink_to(home / "config.yaml")  # root may read everything but this

    with pytest.raises(BadConfig) as caught:
        load(home, {})

    assert "cannot be read" in caught.value.problems[0].said
    assert "chmod 600" in caught.value.problems[0].hint


def test_a_byte_order_mark_is_no_problem(home):
    (home / "config.yaml").write_bytes(b"\xef\xbb\xbflog: {level: debug}\n")

    assert load(home, {}).config.log.level == "debug"


def test_paths_read_back():
    path = ("api", "keys", 0, "name")

    assert dotted(path) == "api.keys[0].name"
    assert parse_path(dotted(path)) == path


_WORDS = st.sampled_from(
    [
        "model",
        "name",
        "api",
        "keys",
        "platforms",
        "telegram",
        "token",
        "overrides",
        "session_reset",
        "mode",
        "agents",
        "main",
        "tools",
        "x",
    ]
)
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-2, 70000), st.text(max_size=8), _WORDS)
_DATA = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=4)),
    max_leaves=12,
)


def shown(sources: Sources) -> str:
    """Empty for a good configuration."""
    try:
        read(sources)
    except BadConfig as bad:
        return f"{bad_config_as_text(bad)}\n{json.dumps(report(bad.problems, bad.warnings))}"
    return ""


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(_WORDS, _DATA, max_size=4))
def test_whatever_is_written_is_a_configuration_or_a_list_of_problems(data):
    shown(Sources(yaml=json.dumps(data)))


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="abm: -[]{}'\"\n\t#&*!|>%@`$?\\,0x", max_size=60))
def test_whatever_is_typed_is_a_configuration_or_a_list_of_problems(text):
    shown(Sources(yaml=text, dotenv=text))


_SECRET = "swordfish-lagoon"
_FILE = f"""\
model: {{name: m, api_key: {_SECRET}}}
platforms:
  telegram:
    enabled: true
    token: "{_SECRET}"
  slack: {{bot_token: '{_SECRET}', enabled: maybe}}
database:
  url: postgresql://ann:{_SECRET}@host/db
"""


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, len(_FILE) - 1),
    st.sampled_from(["", " ", "\n", "'", '"', ":", "{", "}", "\t", "#", "- ", ",", "&", "|\n"]),
)
def test_one_slip_of_a_finger_shows_no_secret(at, typed):
    slipped = _FILE[:at] + typed + _FILE[at + 1 :]

    assert _SECRET not in shown(Sources(yaml=slipped))


def test_a_section_of_variables_where_the_file_has_a_value_is_told_with_the_variable(refused):
    bad = refused("api:\n  keys:\n    - {name: a, key: b}\n", HERMES_API__KEYS__0__NAME="x")
    (problem,) = bad.problems
    assert str(problem.place) == "environment HERMES_API__KEYS__0__NAME"


def test_a_block_that_contains_itself(refused):
    (problem,) = refused("api: &a\n  keys: *a\n").problems
    assert problem.said == "contains itself"


def test_numbers_of_variables(loaded, refused):
    assert loaded(HERMES_LIMITS__QUEUE_PER_CHAT="1e3").config.limits.queue_per_chat == 1_000
    (problem,) = refused(HERMES_API__PORT="0x" + 5_000 * "f").problems
    assert problem.said == "got a very large number"


class _FreeSection(Section):
    anything: dict[str, Any] = Field(default_factory=dict)
    pair: tuple[int, int] = (1, 2)


def test_keys_of_other_packages_that_take_anything():
    root = create_model("Config", __base__=Config, mine=(_FreeSection, _FreeSection()))
    assert takes(root, ("mine", "anything", "deep", "deeper")) == {}
    bad = BadReference("${NO} is set nowhere", "put NO=... into .env")
    data: dict[str, Any] = {"mine": {"anything": {"a": bad, "b": [1, bad]}, "pair": ["x", 1]}}
    config, wrong = validated(root, data)
    assert [path for path, _ in wrong] == [("mine", "pair"), ("mine", "anything", "a"), ("mine", "anything", "b", 1)]
    told = [explained(path, error, read_yaml(""), root) for path, error in wrong]
    assert [problem.said for problem in told] == ["got a list", "${NO} is set nowhere", "${NO} is set nowhere"]
    assert config.mine.anything == {}  # type: ignore[attr-defined]
