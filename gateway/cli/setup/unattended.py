"""Setup without questions: what the environment names is written into the configuration, and tested."""

import click

from adapters.registry import OUR_OWN, is_built, manifest
from gateway.cli.setup.answers import Answers
from gateway.cli.setup.live_checks import NotWorking, call_model, who_is
from gateway.config.sources import Sources


def run(answers: Answers) -> bool:
    """Writes and tests what the environment names. Returns False when something that was configured does not work."""
    answers.begin()
    found = _from_environment(answers)
    for name in {key.split(".")[1] for key in found if key.startswith("platforms.")}:
        if all(f"platforms.{name}.{need.key}" in found for need in manifest(name).needed if not need.mode):
            found.setdefault(f"platforms.{name}.enabled", "true")
    answers.keep(dict(sorted(found.items(), key=lambda item: item[0].endswith(".enabled"))))
    for key in found:
        click.echo(f"  set  {key}")
    return all([_model(answers), *(_platform(answers, name) for name in _enabled(answers))])


def _from_environment(answers: Answers) -> dict[str, str]:
    """Every HERMES_SECTION__KEY, and what the platforms need by the names that other programs use as well, such as SLACK_BOT_TOKEN."""
    environ = answers.environ
    usual = {
        f"platforms.{name}.{need.key}": f"{name}_{'bot_token' if need.key == 'token' else need.key}".upper()
        for name in OUR_OWN
        for need in manifest(name).needed
    }
    found = {key: environ[variable] for key, variable in usual.items() if environ.get(variable)}
    settings = Sources(environ=environ).settings()
    return found | {".".join(one.path): one.value for one in settings if len(one.path) > 1 and one.value}


def _enabled(answers: Answers) -> list[str]:
    sections = answers.loaded.config.platforms.by_name()
    return [name for name in OUR_OWN if is_built(name) and sections[name].enabled]


def _model(answers: Answers) -> bool:
    try:
        click.echo(f"  ok   {call_model(answers.loaded)}")
    except NotWorking as error:
        click.echo(f"  no   model: {error}")
        return False
    return True


def _platform(answers: Answers, name: str) -> bool:
    try:
        click.echo(f"  ok   {manifest(name).title}: {who_is(answers.loaded, name).name or 'saved'}")
    except NotWorking as error:
        click.echo(f"  no   {manifest(name).title}: {error}")
        return False
    return True
