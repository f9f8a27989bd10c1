"""What depends on more than one key."""

import pytest

from gateway.agent.tools import BUILT
from gateway.agent.tools.registry import Toolbox

LONG = "k" * 32


@pytest.mark.parametrize(
    ("yaml", "missing"),
    [
        ("telegram: {enabled: true}", ["telegram.token"]),
        ("telegram: {enabled: true, token: t, mode: webhook}", ["telegram.webhook_secret"]),
        ("discord: {enabled: true}", ["discord.token"]),
        ("slack: {enabled: true}", ["slack.app_token", "slack.bot_token"]),
        ("slack: {enabled: true, bot_token: b, mode: http}", ["slack.signing_secret"]),
        (
            "whatsapp: {enabled: true}",
            ["whatsapp.access_token", "whatsapp.phone_number_id", "whatsapp.app_secret", "whatsapp.verify_token"],
        ),
    ],
)
def test_an_enabled_platform_needs_its_secrets(refused, yaml, missing):
    bad = refused(f"platforms:\n  {yaml}\n")

    assert [(problem.path, problem.said) for problem in bad.problems] == [
        (f"platforms.{key}", "missing") for key in missing
    ]
    assert {str(problem.place) for problem in bad.problems} == {"config.yaml:2:3"}


@pytest.mark.parametrize(
    "yaml",
    [
        "telegram: {enabled: true, token: t}",
        "telegram: {enabled: false, mode: webhook}",
        "slack: {enabled: true, bot_token: b, app_token: a}",
        "slack: {enabled: true, bot_token: b, mode: http, signing_secret: s}",
        "whatsapp: {enabled: true, access_token: a, phone_number_id: '1', app_secret: s, verify_token: v}",
    ],
)
def test_with_its_secrets_it_is_good(loaded, yaml):
    told = [one for one in loaded(f"platforms:\n  {yaml}\n").warnings if "does not work yet" not in one.said]
    assert told == []


def test_an_answer_must_fit_into_the_window(only_problem, loaded):
    problem = only_problem("model: {name: m, context_window: 8000, max_output_tokens: 8001}")

    assert (problem.path, problem.said) == ("model.max_output_tokens", "is larger than context_window")
    assert "8000" in problem.hint
    assert loaded("model: {name: m, context_window: 8000, max_output_tokens: 2000}").warnings == ()


@pytest.mark.parametrize(
    ("yaml", "path"),
    [
        ("model: {name: m, context_window: 8000, max_output_tokens: 8000}", "model.max_output_tokens"),
        ("model: {name: m, context_window: 4096}", "model.context_window"),
        ("model: {name: m, context_window: 2048}", "model.context_window"),
    ],
)
def test_an_answer_that_will_be_shorter_than_configured_is_a_warning(loaded, yaml, path):
    (warning,) = loaded(yaml).warnings
    assert warning.path == path
    assert "leaves answers" in warning.said


@pytest.mark.parametrize(
    ("yaml", "paths"),
    [
        ("{mode: none, idle_minutes: 60}", ["session_reset.idle_minutes"]),
        ("{mode: none, idle_minutes: 1440, at_hour: 4}", []),  # as `config init` writes them
        ("{overrides: [{chat: dm, mode: idle, at_hour: 5}]}", ["session_reset.overrides[0].at_hour"]),
        ("{mode: both, idle_minutes: 60, at_hour: 5}", []),
    ],
)
def test_a_time_that_the_mode_does_not_use_is_a_warning(loaded, yaml, paths):
    assert [warning.path for warning in loaded(f"session_reset: {yaml}").warnings] == paths


def test_a_system_prompt_that_does_not_fit_is_a_warning(loaded):
    prompt = "Be kind to everybody. " * 400
    (warning,) = loaded(
        f"model: {{name: m, context_window: 4096, max_output_tokens: 1024}}\nagents: {{main: {{system_prompt: '{prompt}'}}}}"
    ).warnings
    assert warning.path == "agents.main.system_prompt"
    assert loaded(f"agents: {{main: {{system_prompt: '{prompt}'}}}}").warnings == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
def test_other_addresses_need_a_long_key(only_problem, loaded, host):
    assert only_problem(f"api: {{host: '{host}'}}").path == "api.host"
    assert only_problem(f"api: {{host: '{host}', keys: [{{name: a, key: {LONG[1:]}}}]}}").path == "api.keys[0].key"
    loaded(f"api: {{host: '{host}', keys: [{{name: a, key: {LONG}}}]}}")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_none(loaded, host):
    loaded(f"api: {{host: '{host}'}}")


def test_the_host_of_the_environment_is_looked_at_too(only_problem):
    assert str(only_problem(HERMES_API__HOST="0.0.0.0").place) == "environment HERMES_API__HOST"


def test_keys_have_names_and_differ(refused):
    problems = refused("api: {keys: [{name: a, key: k}, {name: a, key: k}, {key: l}, {name: b}]}").problems

    assert [(problem.path, problem.said) for problem in problems] == [
        ("api.keys[1].name", "used twice"),
        ("api.keys[1].key", "the same as another key"),
        ("api.keys[2].name", "missing"),
        ("api.keys[3].key", "missing"),
    ]


def test_an_endpoint_needs_a_model(only_problem, loaded):
    assert only_problem("model: {base_url: 'http://localhost:1/v1'}").path == "model.name"
    loaded("model: {base_url: 'http://localhost:1/v1', provider: practice}")


def test_a_spending_limit_needs_prices(only_problem, loaded):
    assert only_problem("limits: {spend_per_day: 2}").path == "limits.spend_per_day"
    loaded("limits: {spend_per_day: 2, price_per_million_input_tokens: 0.5}")


def test_an_override_says_what_it_is_for(only_problem):
    assert only_problem("session_reset: {overrides: [{mode: none}]}").path == "session_reset.overrides[0]"


@pytest.mark.parametrize(
    "override",
    [
        "{platform: discord, chat: group, mode: none}",
        "{platform: whatsapp, chat: channel, mode: none}",
        "{platform: cli, chat: dm, mode: none}",
        "{key: 'main:telegram:dm', mode: none}",
        "{key: 'agent:main:irc:*', mode: none}",
        "{key: 'agent:main:tex*', mode: none}",
        "{key: 'agent:main:telegram:dm', platform: slack, mode: none}",
    ],
)
def test_an_override_that_never_matches_is_a_warning(loaded, override):
    (warning,) = loaded(f"session_reset:\n  overrides:\n    - {override}\n").warnings

    assert (str(warning.place), warning.said) == ("config.yaml:3:7", "can never match")


@pytest.mark.parametrize(
    "override",
    [
        "{platform: slack, chat: channel, mode: none}",
        "{key: '*:dm', mode: none}",
        "{key: 'agent:main:tele*', mode: none}",
        "{key: 'agent:dep_1:thread:*', mode: none}",
        "{key: 'agent:*', platform: api, mode: none}",
        "{platform: job, mode: daily}",
    ],
)
def test_one_that_may_match_is_none(loaded, override):
    assert loaded(f"session_reset: {{overrides: [{override}]}}").warnings == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("platform: slack", "platform: slack"),
        ("chat: dm", "chat: dm"),
        ("platform: slack, chat: dm", "chat: dm, platform: slack"),
        ("key: 'agent:main:slack:*'", "key: 'agent:main:slack:dm'"),
    ],
)
def test_two_of_equal_specificity_are_a_warning_with_both_lines(loaded, one, other):
    (warning,) = loaded(
        f"session_reset:\n  overrides:\n    - {{{one}, mode: none}}\n    - {{{other}, mode: idle}}\n"
    ).warnings

    assert warning.said == "as specific as overrides[0]"
    assert str(warning.place) == "config.yaml:4:7"
    assert warning.hint.endswith("keep one; the other: config.yaml:3:7")


@pytest.mark.parametrize(("one", "other"), [("platform: slack", "chat: dm"), ("chat: dm", "platform: slack, chat: dm")])
def test_a_more_specific_one_is_meant(loaded, one, other):
    assert loaded(f"session_reset: {{overrides: [{{{one}, mode: none}}, {{{other}, mode: idle}}]}}").warnings == ()


def test_an_override_without_effect_is_a_warning(loaded):
    assert loaded("session_reset: {overrides: [{chat: dm}]}").warnings[0].said == "changes nothing"


def test_a_name_instead_of_an_id_is_a_warning(loaded):
    (warning,) = loaded("platforms: {telegram: {enabled: true, token: t, allowed_users: ['1', '@ann']}}").warnings

    assert warning.path == "platforms.telegram.allowed_users[1]"


def test_a_webhook_without_an_address_is_a_warning(loaded):
    yaml = "platforms: {telegram: {enabled: true, token: t, mode: webhook, webhook_secret: s}}\n"

    assert loaded(yaml).warnings[0].path == "platforms.telegram.mode"
    assert loaded(yaml + "api: {public_url: 'https://x.example'}\n").warnings == ()


def test_a_name_that_never_will_is_refused(refused):
    assert refused("agents: {main: {tools: [memory, proces]}}").problems[0].suggestion == "process"
    assert refused("platforms: {icq: {enabled: true}}").problems[0].said == "unknown key"


def test_the_names_that_work_are_the_tools_that_there_are():
    assert set(BUILT) == set(Toolbox.of(BUILT).tools)


def test_embeddings_need_a_model(loaded, refused):
    assert not loaded("memory: {embeddings: {base_url: 'http://127.0.0.1:1/v1', api_key: k, model: m}}").warnings
    assert (
        refused("memory: {embeddings: {base_url: 'http://127.0.0.1:1/v1'}}").problems[0].path
        == "memory.embeddings.model"
    )


def test_who_shall_speak_needs_an_endpoint_and_a_model(refused, loaded):
    assert [each.path for each in refused("voice: {speak: true}").problems] == ["voice.base_url", "voice.speak_model"]
    assert loaded("voice: {speak: true, base_url: 'http://v', speak_model: tts}\n").config.voice.speak_voice == "alloy"


@pytest.mark.parametrize(
    ("server", "path"),
    [
        ("{tools: [a]}", "mcp_servers.x"),
        ("{command: a, url: 'https://b'}", "mcp_servers.x.url"),
        ("{url: 'https://b', args: [a]}", "mcp_servers.x.args"),
        ("{command: a, headers: {A: b}}", "mcp_servers.x.headers"),
        ('{url: "https://b", headers: {A: "b\\nc"}}', "mcp_servers.x.headers.A"),
    ],
)
def test_an_mcp_server_is_a_program_or_an_address(only_problem, server, path):
    assert only_problem(f"mcp_servers: {{x: {server}}}").path == path


def test_tools_of_mcp_servers_that_get_another_name_or_are_approved_in_vain_are_warnings(loaded):
    (renamed,) = loaded("mcp_servers: {web: {command: a, tools: [fetch, other]}}").warnings
    assert renamed.said.startswith("its tool fetch is offered as web_fetch_")
    (vain,) = loaded("mcp_servers: {x: {command: a, tools: [b], approve: [b, c]}}").warnings
    assert vain.path == "mcp_servers.x.approve[1]"


def test_tools_that_are_named_in_vain_are_told(loaded, only_problem):
    listed = "agents: {main: {tools: [files, web_search], approve: ['nosuch: ls', 'docs_find: x', 'process: ls']}}\n"
    told = [one.path for one in loaded(f"{listed}mcp_servers: {{docs: {{command: x}}}}\n").warnings]
    assert told == ["agents.main.tools[1]", "agents.main.approve[0]"]
    engine = "web: {search: searxng, url: http://127.0.0.1:8888}\n"
    assert loaded(f"agents: {{main: {{tools: [files, web_search]}}}}\n{engine}").warnings == ()

    problem = only_problem("agents: {main: {approve: [process]}}")
    assert "process: git status*" in problem.hint
