"""What is in force, and where it comes from."""

import subprocess
import sys

import pytest

from gateway.cli.output import problem_as_text
from gateway.config.model import Config


def test_an_empty_home_is_a_good_configuration(loaded):
    found = loaded()

    assert found.config == Config()
    assert list(found.config.agents) == ["main"]
    assert found.warnings == ()


def test_environment_over_dotenv_over_file_over_default(loaded):
    yaml = "api: {port: 1}\n"

    assert loaded().config.api.port == 8642
    assert loaded(yaml).config.api.port == 1
    assert loaded(yaml, "HERMES_API__PORT=2").config.api.port == 2
    assert loaded(yaml, "HERMES_API__PORT=2", HERMES_API__PORT="3").config.api.port == 3


def test_the_origin_of_every_value(loaded):
    found = loaded(
        "api:\n  port: 1\n  keys:\n    - {name: a, key: k}\n", "HERMES_LOG__LEVEL=debug", HERMES_MEMORY__ENABLED="no"
    )

    assert found.origin("api.port") == "config.yaml:2"
    assert found.origin("api.keys[0].name") == "config.yaml:4"
    assert found.origin("log.level") == ".env:1"
    assert found.origin("memory.enabled") == "environment HERMES_MEMORY__ENABLED"
    assert found.origin("model.name") == "default"
    assert found.origin("api.keys[7].name") == "default"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("HERMES_API__PORT", "9", lambda config: config.api.port == 9),
        ("HERMES_LIMITS__TOKENS_PER_DAY", "5", lambda config: config.limits.tokens_per_day == 5),
        ("HERMES_MEMORY__ENABLED", "off", lambda config: config.memory.enabled is False),
        ("HERMES_MODEL__NAME", "10:30", lambda config: config.model.name == "10:30"),
        ("HERMES_MODEL__FALLBACKS", "a, b", lambda config: config.model.fallbacks == ["a", "b"]),
        ("HERMES_MODEL__FALLBACKS", '["a", "b"]', lambda config: config.model.fallbacks == ["a", "b"]),
        ("HERMES_PLATFORMS__TELEGRAM__ALLOWED_USERS", "111", lambda c: c.platforms.telegram.allowed_users == ["111"]),
        ("HERMES_API__KEYS", '[{"name": "a", "key": "k"}]', lambda config: config.api.keys[0].name == "a"),
        ("HERMES_AGENTS__MAIN__SYSTEM_PROMPT", "You.", lambda config: config.agents["main"].system_prompt == "You."),
        (
            "HERMES_SESSION_RESET__OVERRIDES",
            "[{chat: dm, mode: none}]",
            lambda c: c.session_reset.overrides[0].chat == "dm",
        ),
    ],
)
def test_a_variable_is_read_as_its_key_wants_it(loaded, name, text, value):
    assert value(loaded(**{name: text}).config)


def test_variables_that_are_no_keys_are_left_alone(loaded):
    assert loaded(HERMES_HOME="/elsewhere", HERMES_THING="x", HOME="/root").config == Config()


def test_a_reference_is_read_from_environment_dotenv_and_credentials(loaded, tmp_path):
    yaml = "voice: {base_url: 'https://${A}.example/${B}', api_key: '${C-file}'}\n"
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "C-file").write_text("from systemd\n")

    voice = loaded(yaml, "A=file\nB=second", A="environment", CREDENTIALS_DIRECTORY=str(credentials)).config.voice

    assert voice.base_url == "https://environment.example/second"
    assert voice.api_key.get_secret_value() == "from systemd"


def test_a_reference_in_a_variable_is_read_also_for_a_secret(loaded):
    config = loaded(HERMES_MODEL__NAME="${A}", HERMES_MODEL__API_KEY="${B}", A="small", B="sesame").config

    assert (config.model.name, config.model.api_key.get_secret_value()) == ("small", "sesame")


def test_without_a_variable_its_library_is_not_loaded_and_the_database_never(home):
    (home / "config.yaml").write_text("model: {name: m}\n")
    code = (
        "import sys, pathlib; from gateway.config.reading import load;"
        f"assert load(pathlib.Path({str(home)!r}), {{'HERMES_HOME': '/x'}}).config.model.name == 'm';"
        "assert not {'pydantic_settings', 'sqlalchemy'} & set(sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_a_reference_may_stand_for_a_number_or_a_switch(loaded):
    config = loaded("api: {port: '${PORT}'}\nmemory: {enabled: '${ON}'}\n", PORT="9", ON="false").config

    assert config.api.port == 9
    assert config.memory.enabled is False


def test_two_dollars_are_one(loaded):
    assert (
        loaded("agents: {main: {system_prompt: 'echo $${HOME}'}}").config.agents["main"].system_prompt == "echo ${HOME}"
    )


@pytest.mark.parametrize(
    "yaml",
    [
        "platforms: {slack: {enabled: false, bot_token: '${NOWHERE}'}}",
        "platforms: {slack: {bot_token: '${NOWHERE}'}}",
        "platforms: {slack: {enabled: '${OFF}', bot_token: '${NOWHERE}'}}",
        "model: {api_key: '${NOWHERE}'}",
        "voice: {api_key: '${NOWHERE}'}",
    ],
)
def test_a_section_that_is_off_may_point_to_what_is_not_there(loaded, yaml):
    loaded(yaml, OFF="no")


@pytest.mark.parametrize(
    ("yaml", "path"),
    [
        ("platforms: {discord: {enabled: true, token: '${NOWHERE}'}}", "platforms.discord.token"),
        ("platforms: {discord: {enabled: '${ON}', token: '${NOWHERE}'}}", "platforms.discord.token"),
        ("model: {name: m, api_key: '${NOWHERE}'}", "model.api_key"),
        ("voice: {base_url: 'http://v', api_key: '${NOWHERE}'}", "voice.api_key"),
        ("database: {url: '${NOWHERE}'}", "database.url"),
    ],
)
def test_a_section_that_is_on_may_not(only_problem, yaml, path):
    problem = only_problem(yaml, ON="yes")

    assert (problem.path, problem.said) == (path, "${NOWHERE} is set nowhere")


def test_an_empty_variable_is_told_apart(only_problem):
    assert only_problem("database: {url: '${DB}'}", DB="").said == "${DB} is set, but empty"


def test_a_platform_that_the_environment_switches_on_is_on(only_problem):
    problem = only_problem("platforms: {discord: {token: '${NOWHERE}'}}", HERMES_PLATFORMS__DISCORD__ENABLED="true")

    assert problem.path == "platforms.discord.token"


def test_a_section_whose_keys_are_all_commented_out_is_empty(loaded):
    assert loaded("model:\n  # name: x\nagents:\n  main:\nplatforms:\napi: {keys: }\n").config == Config()


def test_main_is_there_beside_other_agents(loaded):
    assert set(loaded("agents: {other: {system_prompt: x}}").config.agents) == {"main", "other"}


def test_anchors_and_merges_are_understood(loaded):
    yaml = """
        session_reset:
          overrides:
            - &slow {platform: slack, mode: idle, idle_minutes: 5}
            - {<<: *slow, platform: discord}
    """

    overrides = loaded(yaml).config.session_reset.overrides

    assert [(one.platform, one.idle_minutes) for one in overrides] == [("slack", 5), ("discord", 5)]


def test_secrets_are_in_no_representation(loaded):
    found = loaded("platforms: {discord: {enabled: true, token: abcdefgh}}", "OTHER=ijklmnop")

    assert "abcdefgh" not in repr(found)
    assert "ijklmnop" not in repr(found)


def test_a_variable_does_not_hide_a_mistake_of_the_file(refused):
    bad = refused("api: {port: many}\nmodel: {api_key: '${NOWHERE}'}\n", HERMES_API__PORT="9000")

    assert [(problem.place.source, problem.path) for problem in bad.problems] == [("config.yaml", "api.port")]


def test_a_mistake_of_the_variable_is_told_too(refused):
    bad = refused("api: {port: many}\n", HERMES_API__PORT="none")

    assert {problem.place.source for problem in bad.problems} == {"config.yaml", "environment HERMES_API__PORT"}


def test_a_list_of_a_variable_is_told_by_its_variable_and_not_by_the_list_of_the_file(only_problem):
    problem = only_problem("model:\n  name: m\n  fallbacks: [a, b]\n", HERMES_MODEL__FALLBACKS="[a, 3]")

    assert problem_as_text(problem) == (
        'environment HERMES_MODEL__FALLBACKS: model.fallbacks[1]: got the number 3\n        write it in quotes: "3"'
    )


def test_a_section_that_is_no_section_in_the_file_is_told_though_a_variable_sets_a_key_of_it(only_problem):
    assert only_problem("api: [port]\n", HERMES_API__PORT="9000").said == "got a list"


@pytest.mark.parametrize("yaml", ["api: {port: '${NOWHERE}'}", "api: {port: '${b c}'}"])
def test_a_reference_that_a_variable_hides_may_lead_nowhere(loaded, yaml):
    assert loaded(yaml, HERMES_API__PORT="9000").config.api.port == 9000


def test_a_reference_in_a_list_that_leads_nowhere_is_told_with_its_place(only_problem):
    problem = only_problem("platforms: {telegram: {enabled: true, token: t, allowed_users: ['1', '${NOBODY}']}}")

    assert (problem.path, problem.said) == ("platforms.telegram.allowed_users[1]", "${NOBODY} is set nowhere")


@pytest.mark.parametrize("where", ["environment", ".env"])
def test_a_variable_with_one_underscore_is_a_warning(loaded, where):
    found = loaded(HERMES_API_PORT="9000") if where == "environment" else loaded("", "HERMES_API_PORT=9000\n")

    (warning,) = found.warnings
    assert "HERMES_API_PORT sets nothing" in warning.said
    assert warning.suggestion == "HERMES_API__PORT"


def test_variables_of_others_are_none_of_ours(loaded):
    assert loaded(HERMES_HOME="/x", HERMES_DEBUG="1", HERMES_APIS_X="1").warnings == ()


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("no", False), ("On", True), ("off", False)])
def test_older_words_for_a_switch_are_understood(loaded, word, value):
    assert loaded(f"memory: {{enabled: {word}}}").config.memory.enabled is value


@pytest.mark.parametrize("text", ["no", "10:30", "on"])
def test_what_older_yaml_took_for_something_else_is_a_text(loaded, text):
    assert loaded(f"model: {{name: {text}}}").config.model.name == text
