"""Setup without questions: what the environment names is written into the configuration, and tested."""

import click

from adapters.registry import OUR_OWN, is_built, manifest
from gateway.cli.setup.answers import Answers
from gateway.cli.setup.live_checks import NotWorking, call_model, who_is
from gateway.config.sources import Sources

_USUAL = {
    "platforms.telegram.token": "TELEGRAM_BOT_TOKEN",
    "platforms.discord.token": "DISCORD_BOT_TOKEN",
    "platforms.slack.bot_token": "SLACK_BOT_TOKEN",
    "platforms.slack.app_token": "SLACK_APP_TOKEN",
    "platforms.whatsapp.access_token": "WHATSAPP_ACCESS_TOKEN",
    "platforms.whatsapp.phone_number_id": "WHATSAPP_PHONE_NUMBER_ID",
    "platforms.whatsapp.app_secret": "WHATSAPP_APP_SECRET",
    "platforms.whatsapp.verify_token": "WHATSAPP_VERIFY_TOKEN",
}
"""Variables that other programs use as well. Besides them every HERMES_SECTION__KEY is written."""


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
    environ = answers.environ
    found = {key: environ[variable] for key, variable in _USUAL.items() if environ.get(variable)}
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
