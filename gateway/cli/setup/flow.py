"""The questions in their order. Each confirmed answer is saved at once, so leaving loses nothing."""

import os
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import click

from adapters.registry import OUR_OWN, is_built, manifest
from gateway.agent.models.endpoint import OLLAMA, ask_ollama
from gateway.cli.context import as_called_here
from gateway.cli.doctor.public_address import webhook_url
from gateway.cli.setup.answers import Answers
from gateway.cli.setup.live_checks import NotWorking, call_model, who_is
from gateway.cli.setup.ownership import meet
from gateway.cli.setup.questions import GoBack, MenuItem, ask, choose, choose_several, confirm
from gateway.config.model_choice import ENDPOINTS
from gateway.config.problems import BadConfig
from gateway.config.reading import Loaded

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
    click.echo(as_called_here("  in the foreground   hermes gateway run"))
    click.echo(as_called_here("  from now on         hermes gateway install"))
    click.echo(as_called_here("  is all well?        hermes doctor"))
