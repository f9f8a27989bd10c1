"""`hermes setup`: the questions in their order; Esc goes back to the one before. Each confirmed answer is saved at once, so leaving loses nothing.

Without questions, what the environment names is written and tested instead.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import click
from click.exceptions import Exit

from adapters.registry import OUR_OWN, is_built, manifest
from gateway.agent.models.endpoint import OLLAMA, ask_ollama
from gateway.cli.base import Cli, pass_cli
from gateway.cli.doctor.remote_checks import webhook_url
from gateway.cli.output import Wrong, tell
from gateway.cli.setup.answers import Answers, NotWorking, call_model, who_is
from gateway.cli.setup.ownership import meet
from gateway.config.model_choice import ENDPOINTS
from gateway.config.problems import BadConfig
from gateway.config.reading import Loaded
from gateway.config.sources import Sources
from gateway.observe import logging


@click.command()
@click.argument("platform", required=False)
@click.option("--non-interactive", is_flag=True, help="Ask nothing: write what the environment names, and test it.")
@pass_cli
def setup(cli: Cli, platform: str | None, non_interactive: bool) -> None:
    """Ask for the model and the chats, test each answer, and write a commented configuration.

    It can be run again: what is there is shown, and only what is confirmed changes.

    With PLATFORM only that chat platform: telegram, discord, slack or whatsapp.
    """
    logging.configure_quiet()
    answers = Answers(home=cli.home, environ=cli.environ)
    if non_interactive:
        if not without_questions(answers):
            raise Exit(1)
        return
    if platform is not None and platform not in OUR_OWN:
        raise Wrong(
            f"There is no platform {platform!r}. There are: {', '.join(name for name in OUR_OWN if is_built(name))}."
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Wrong("Setup asks questions, so it needs a terminal. Without one: hermes setup --non-interactive")
    try:
        if platform is None:
            everything(answers)
        else:
            run(answers, [one_platform(platform), background])
    except (KeyboardInterrupt, EOFError):
        tell("\nWhat you have confirmed is saved. `hermes setup` goes on from here.")


# --- questions -----------------------------------------------------------------------------------------------------------------


class GoBack(Exception):
    """Esc was pressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuItem:
    value: str
    text: str


def ask(question: str, *, default: str = "", secret: bool = False) -> str:
    """Asks for one line. Raises GoBack, KeyboardInterrupt, or EOFError."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    shown = f"{question} [{'****' if secret else default}]: " if default else f"{question}: "
    keys = KeyBindings()

    # Eager, or prompt_toolkit waits half a second: an escape also begins the code of an arrow key.
    @keys.add("escape", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=GoBack())

    session = PromptSession[str](key_bindings=keys)
    return session.prompt(shown, is_password=secret).strip() or default


def choose(question: str, choices: Sequence[MenuItem], *, default: str) -> str:
    """Returns the value of the choice whose number is typed. Raises as `ask`."""
    click.echo(question)
    for number, choice in enumerate(choices, 1):
        mark = "   (Enter)" if choice.value == default else ""
        click.echo(f"  {number}  {choice.text}{mark}")
    usual = next((str(number) for number, choice in enumerate(choices, 1) if choice.value == default), "1")
    while True:
        said = ask("Number", default=usual)
        if said.isdecimal() and 0 < int(said) <= len(choices):
            return choices[int(said) - 1].value
        click.echo(f"  Type a number from 1 to {len(choices)}.")


def choose_several(question: str, choices: Sequence[MenuItem]) -> list[str]:
    """Returns the values of the numbers that are typed; none for an empty line. Raises as `ask`."""
    click.echo(question)
    for number, choice in enumerate(choices, 1):
        click.echo(f"  {number}  {choice.text}")
    while True:
        said = ask("Numbers, such as 1 3; empty: none").replace(",", " ").split()
        if all(word.isdecimal() and 0 < int(word) <= len(choices) for word in said):
            return [choices[int(word) - 1].value for word in dict.fromkeys(said)]
        click.echo(f"  Type numbers from 1 to {len(choices)}.")


def confirm(question: str, *, default: bool) -> bool:
    """Raises as `ask`. What is neither yes nor no, such as a key that was pasted too early, is asked again."""
    while True:
        said = ask(f"{question} {'[Y/n]' if default else '[y/N]'}").casefold()
        if said in {"", "y", "yes", "n", "no"}:
            return default if not said else said.startswith("y")
        click.echo("  Type y or n.")


# --- the order -----------------------------------------------------------------------------------------------------------------

KEEP, PRACTICE, OTHER = "keep", "practice", "other"
_RESETS = (
    MenuItem(value="both", text="after a day of silence, and every morning at four"),
    MenuItem(value="idle", text="after a day of silence"),
    MenuItem(value="daily", text="every morning at four"),
    MenuItem(value="none", text="never by itself; /new does it"),
)

Step = Callable[[Answers], None]


def run(answers: Answers, steps: Sequence[Step]) -> None:
    """Asks the questions. Esc goes back one step. Raises KeyboardInterrupt or EOFError when the person leaves; what was confirmed is
    kept.
    """
    answers.begin()
    at = 0
    while at < len(steps):
        click.echo()
        try:
            steps[at](answers)
        except GoBack:
            at = max(0, at - 1)
        else:
            at += 1


def everything(answers: Answers) -> None:
    run(answers, (model, platforms, resets, background))


def one_platform(name: str) -> Step:
    return lambda answers: platform(answers, name)


# --- the model -----------------------------------------------------------------------------------------------------------------


def model(answers: Answers) -> None:
    """Which model answers. Nothing is saved before one call has shown that it does."""
    typed: dict[str, str] = {}
    while True:
        typed = _choose_model(answers, typed)
        click.echo("  testing …")
        try:
            values, line = _answering(answers, typed)
        except NotWorking as error:
            click.echo(f"  no   {error}")
            if not confirm("Choose again?", default=True):
                return
        else:
            answers.keep(values)
            click.echo(f"  ok   {line}")
            return


def _answering(answers: Answers, values: dict[str, str]) -> tuple[dict[str, str], str]:
    """Returns the values with which the model has answered, and its line. An address without a path is tried with /v1, too."""
    try:
        return values, call_model(_tried(answers, values))
    except NotWorking:
        address = urlsplit(values.get("model.base_url", ""))
        if not address.netloc or address.path.strip("/"):
            raise
        longer = {**values, "model.base_url": f"{values['model.base_url'].rstrip('/')}/v1"}
        try:
            return longer, call_model(_tried(answers, longer))
        except NotWorking:
            pass
        raise


def _choose_model(answers: Answers, typed: dict[str, str]) -> dict[str, str]:
    """The values to try; none: it stays as it is. `typed`: those that were tried before, which Enter keeps."""
    loaded = answers.loaded
    found = ask_ollama()
    now = [MenuItem(value=KEEP, text=f"as it is: {loaded.config.model.name}")] if loaded.config.model.name else []
    detected = [MenuItem(value="ollama", text=f"{found}, the Ollama on this machine; free")] if found else []
    keys = [
        MenuItem(value=url, text=f"{name} at {url.split('/')[2]}" + ("   (a key is set here)" if _has_key(url) else ""))
        for url, (_, name) in ENDPOINTS.items()
    ]
    choices = [
        *now,
        *detected,
        *keys,
        MenuItem(value=OTHER, text="another endpoint that speaks the OpenAI API"),
        MenuItem(value=PRACTICE, text="none yet: the built-in demo, offline, not a real AI"),
    ]
    ready = [*now, *detected, *(item for item in keys if _has_key(item.value))]
    wanted = choose("Which model answers?", choices, default=ready[0].value if ready else PRACTICE)
    match wanted:
        case "keep":
            return {}
        case "practice":
            return {"model.provider": "practice"}
        case "ollama":
            return {"model.provider": "openai", "model.base_url": OLLAMA, "model.name": found or ""}
        case _:
            return _ask_endpoint(answers, wanted, typed)


def _has_key(url: str) -> bool:
    return bool(os.environ.get(ENDPOINTS[url][0]))


def _ask_endpoint(answers: Answers, url: str, typed: dict[str, str]) -> dict[str, str]:
    section = answers.loaded.config.model
    was = typed.get("model.base_url") or section.base_url
    base = ask("Address, such as https://host/v1", default=was) if url == OTHER else url
    name = ask("Model", default=typed.get("model.name") or section.name or ENDPOINTS.get(base, ("", ""))[1])
    stored = section.api_key.get_secret_value() if section.base_url == base else ""
    known = typed.get("model.api_key", "") if was == base else ""
    known = known or stored
    question = "Key (empty: none)" if url == OTHER else "Key"
    key = "" if url != OTHER and _has_key(url) else ask(question, default=known, secret=True)
    values = {"model.provider": "openai", "model.base_url": base, "model.name": name}
    return {**values, **({"model.api_key": key} if key and key != stored else {})}


def _tried(answers: Answers, values: dict[str, str]) -> Loaded:
    """Raises NotWorking."""
    try:
        return answers.tried(values)
    except BadConfig as bad:
        raise NotWorking("; ".join(f"{problem.headline}. {problem.remedy}" for problem in bad.problems)) from bad


# --- the platforms -------------------------------------------------------------------------------------------------------------


def platforms(answers: Answers) -> None:
    names = [name for name in OUR_OWN if is_built(name)]
    choices = [MenuItem(value=name, text=manifest(name).title) for name in names]
    for name in choose_several("In which chats should it answer?", choices):
        click.echo()
        platform(answers, name)


def platform(answers: Answers, name: str) -> None:
    """Asks for the keys of one platform and tests them live; then the first person becomes the owner by a code."""
    found = manifest(name)
    click.echo(found.title)
    for number, step in enumerate(found.setup_steps, 1):
        click.echo(f"  {number}. {step}")
    typed: dict[str, str] = {}
    while True:
        section = answers.loaded.config.platforms.by_name()[name]
        for need in found.needed:
            if need.mode in {"", str(getattr(section, "mode", ""))}:
                key = f"platforms.{name}.{need.key}"
                typed[key] = _ask_key(found.title, need.key, getattr(section, need.key), typed.get(key, ""))
        values = {key: value for key, value in typed.items() if value}
        values |= {f"platforms.{name}.enabled": "true", **_public_address(answers, name)}
        click.echo("  testing …")
        try:
            bot = who_is(_tried(answers, values), name)
        except NotWorking as error:
            click.echo(f"  no   {error}")
        else:
            answers.keep(values)
            click.echo(f"  ok   This is {bot.name}." if bot.name else "  ok   saved")
            break
        if not confirm("Try again?", default=True):
            click.echo("  Nothing of this was saved.")
            return
    for each in bot.notes:
        click.echo(f"  note {each}")
    if found.is_called(answers.loaded.config.platforms.by_name()[name]):
        click.echo(f"  note The address to register: {webhook_url(answers.loaded, name)}")
    meet(answers, name, bot)


def _public_address(answers: Answers, name: str) -> dict[str, str]:
    """Asked for where the platform calls us. It may stay empty: then the webhook does not work yet, and doctor says so."""
    config = answers.loaded.config
    if not manifest(name).is_called(config.platforms.by_name()[name]):
        return {}
    said = ask("  Public address of this machine, https://…", default=config.api.public_url)
    return {"api.public_url": said} if said != config.api.public_url else {}


def _ask_key(title: str, key: str, value: object, typed: str) -> str:
    """Returns what is typed; "" where that is what is stored. Enter keeps what was typed before, else what is stored."""
    stored = getattr(value, "get_secret_value", lambda: str(value or ""))()
    said = ask(f"  {title} {key.replace('_', ' ')}", default=typed or stored, secret=hasattr(value, "get_secret_value"))
    return "" if said == stored else said


# --- the rest ------------------------------------------------------------------------------------------------------------------


def resets(answers: Answers) -> None:
    mode = answers.loaded.config.session_reset.mode
    wanted = choose("When should a conversation begin afresh? What matters is kept as notes.", _RESETS, default=mode)
    if wanted != mode:
        answers.keep({"session_reset.mode": wanted})


def background(_: Answers) -> None:
    click.echo("What was confirmed is saved; a running gateway has taken it over.")
    tell("  in the foreground   hermes gateway run")
    tell("  from now on         hermes gateway install")
    tell("  is all well?        hermes doctor")


# --- without questions ---------------------------------------------------------------------------------------------------------


def without_questions(answers: Answers) -> bool:
    """Writes and tests what the environment names. Returns False when something that was configured does not work."""
    answers.begin()
    found = _from_environment(answers)
    for name in {key.split(".")[1] for key in found if key.startswith("platforms.")}:
        if all(f"platforms.{name}.{need.key}" in found for need in manifest(name).needed if not need.mode):
            found.setdefault(f"platforms.{name}.enabled", "true")
    answers.keep(dict(sorted(found.items(), key=lambda item: item[0].endswith(".enabled"))))
    for key in found:
        click.echo(f"  set  {key}")
    all_work = True
    try:
        click.echo(f"  ok   {call_model(answers.loaded)}")
    except NotWorking as error:
        click.echo(f"  no   model: {error}")
        all_work = False
    sections = answers.loaded.config.platforms.by_name()
    for name in (name for name in OUR_OWN if is_built(name) and sections[name].enabled):
        try:
            click.echo(f"  ok   {manifest(name).title}: {who_is(answers.loaded, name).name or 'saved'}")
        except NotWorking as error:
            click.echo(f"  no   {manifest(name).title}: {error}")
            all_work = False
    return all_work


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
