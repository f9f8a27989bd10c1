"""No secret is shown, however wrong the file is."""

import pytest

from gateway.cli.output import bad_config_as_text, problem_as_text, report
from gateway.config.problems import BadConfig

SECRET = "p4ss-w0rd-of-ann"
TELEGRAM = "123456789:AAabcdefghijklmnopqrstuvwxyz0123456"


def everything_told(bad: BadConfig) -> str:
    return bad_config_as_text(bad) + str(report(bad.problems, bad.warnings)) + repr(bad.problems) + str(bad)


@pytest.mark.parametrize(
    "yaml",
    [
        f"platforms: {{telegram: {{token: {SECRET}, bad: 1}}}}",
        f"platforms: {{telegram: {{token: '{SECRET}', bad: 1}}}}",
        f"platforms: {{telegram: {{tokn: {SECRET}}}}}",
        f"platforms: {{telegram: {{token: [{SECRET}]}}}}",
        f"platforms: {{telegram: {{token: {{a: {SECRET}}}}}}}",
        f"telegram: {{token: {SECRET}}}",
        f"platforms:\n  telegram:\n    token: |\n      {SECRET}\n    bad: 1\n",
        f"platforms:\n  telegram:\n    token: >-\n      {SECRET}\n      {SECRET}\n     bad: 1\n",
        f"platforms: {{telegram: {{token: *{SECRET}}}}}",
        f"platforms: {{telegram: {{token: !{SECRET}}}}}",
        f"model: {{api_key: '{SECRET}\n",
        f"model: {{api_key: {SECRET}: x}}\n  y",
        f"api: {{keys: [{{name: a b, key: {SECRET}}}]}}",
        f"api: {{host: 0.0.0.0, keys: [{{name: a, key: {SECRET}}}]}}",
        f"database: {{url: 'mysql://ann:{SECRET}@host/x'}}",
        f"database: {{ulr: 'postgresql://ann:{SECRET}@host/x'}}",
        f"databse: 'postgresql://ann:{SECRET}@host/x'",
        f"model: {{base_url: 'ftp://ann:{SECRET}@host'}}",
        f"platforms: {{telegram: '{TELEGRAM}'}}",
        f"log: {{level: inf}} # token {TELEGRAM}",
        f"platforms:\n  telegram:\n    api_secret: {SECRET}\n",
        f"voice:\n  model_token: {SECRET}\n",
        f"model:\n  key_name: {SECRET}\n",
    ],
)
def test_not_in_the_list_of_problems(refused, yaml):
    bad = refused(yaml)

    told = everything_told(bad)
    assert SECRET not in told
    assert TELEGRAM not in told


def test_not_in_problems_of_the_environment(refused):
    bad = refused(HERMES_PLATFORMS__TELEGRAM__TOKN=SECRET, HERMES_DATABASE__URL=f"mysql://{SECRET}")

    assert SECRET not in everything_told(bad)


def test_a_number_as_a_secret_is_not_shown(only_problem):
    problem = only_problem("platforms: {whatsapp: {verify_token: 12345678}}")

    assert "12345678" not in problem_as_text(problem)
    assert problem.remedy == "write it in quotes"


def test_a_reference_is_no_secret(only_problem):
    problem = only_problem("platforms: {discord: {enabled: true, token: '${NOWHERE}'}}")

    assert "token: ${NOWHERE}" in problem_as_text(problem).replace("'", "")


def test_a_line_with_more_than_one_key_is_not_shown(only_problem):
    problem = only_problem(f"platforms: {{telegram: {{token: {SECRET}, mode: poll}}}}")

    assert (str(problem.place), problem.excerpt) == (f"config.yaml:1:{39 + len(SECRET)}", "")


def test_the_caret_stays_under_its_value(only_problem):
    lines = problem_as_text(only_problem("platforms:\n  telegram:\n    mode: poll\n")).splitlines()

    assert lines[1].index("poll") == lines[2].index("^")


@pytest.mark.parametrize(
    "yaml",
    [
        f"platforms: {{telegram: {{token: {{{SECRET}}}}}}}",
        f"platforms: {{telegram: {{{SECRET}}}}}",
        f"platforms:\n  telegram: '{SECRET}'\n",
        f"platforms:\n  telegram:\n    token:{SECRET}\n",
        f'platforms:\n  telegram:\n    token "{SECRET}"\n',
        f'platforms:\n  telegram:\n    token: "" # {SECRET}\n    token: x\n',
        f"platforms:\n  telegram:\n    token: # {SECRET}\n",
        f"platforms: {{telegram: {{ken: {SECRET}}}}}",
        f"{SECRET}",
        f"- {SECRET}",
        f"api: {{keys: {SECRET}}}",
        f"api:\n  keys: {SECRET}\n",
        f"agents:\n  main: {SECRET}\n",
    ],
)
def test_not_when_it_slipped_to_another_place(refused, yaml):
    assert SECRET not in everything_told(refused(yaml))
