"""`hermes config`: look at the configuration, check it, and change it."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.exceptions import Exit
from click.shell_completion import CompletionItem

from gateway.cli.base import Cli, pass_cli
from gateway.cli.output import CLOSING, Failed, Wrong, as_json, bad_config_as_text, report, tell, warning_as_text
from gateway.cli.process import has_pid_file
from gateway.cli.service_view import service_sources, service_view
from gateway.config.problems import BadConfig, dotted
from gateway.config.sources import DOTENV, YAML, Sources
from gateway.home import check_home, prepare_home, write_private
from gateway.texts import counted, one_line

if TYPE_CHECKING:  # pydantic is for those commands that check
    from gateway.config.reading import Loaded

SCHEMA = "config.schema.json"
_WIDEST, _LEAST = 48, 8
UNCHANGED = "Nothing was changed."


@click.group()
def config() -> None:
    """Look at the configuration, check it, and change it."""


@config.command()
@click.option("--force", is_flag=True, help="Replace a config.yaml that is there.")
@pass_cli
def init(cli: Cli, force: bool) -> None:
    """Write a documented config.yaml, and the schema that editors use."""
    from gateway.config.editing import example, schema

    path = cli.home / YAML
    prepare_home(cli.home)
    if path.is_dir():
        raise Failed(f"{path} is a folder. Put it aside; a file belongs there.")
    write_private(cli.home / SCHEMA, schema())
    if os.path.lexists(path) and not force and not _may_replace(str(path)):
        raise Failed(f"{path} is there already and was not changed. `hermes config init --force` replaces it.")
    write_private(path, example())
    tell(
        f"Written: {path}\nEdit it and save; a running gateway takes it over. `hermes config check` looks for mistakes."
    )


def _may_replace(path: str) -> bool:
    return sys.stdin.isatty() and click.confirm(f"{path} is there already. Replace it?", default=False)


@config.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "wants_json", is_flag=True, help="One JSON object.")
@click.option("--impact", is_flag=True, help="Also say how many open sessions would be reset at once.")
@pass_cli
def check(cli: Cli, file: Path | None, wants_json: bool, impact: bool) -> None:
    """Say everything that is wrong, and change nothing. With FILE: in this draft, as if it were the home's config.yaml."""
    loaded = _loaded(cli, wants_json, draft=file)
    if wants_json:
        from gateway.cli.why import impact_of

        more = {"impact": impact_of(cli, loaded)} if impact else {}
        click.echo(as_json({**report((), loaded.warnings), **more}))
        return
    for warning in loaded.warnings:
        click.echo(warning_as_text(warning, color=_color()) + "\n")
    path = file or cli.home / YAML
    what, verb = (str(path), "is") if path.exists() else (f"There is no {path}; the defaults", "are")
    click.echo(f"{what} {verb} good" + (f", {counted(len(loaded.warnings), 'warning')}." if loaded.warnings else "."))
    if (service := service_view(cli.home)).unit and "CREDENTIALS_DIRECTORY" not in cli.environ:
        unread = f" Not read, only root may: {', '.join(sorted(service.unreadable))}." if service.unreadable else ""
        click.echo(f"Checked with the environment and the credentials of {service.unit}.{unread}")
    if impact:
        from gateway.cli.why import print_impact

        print_impact(cli, loaded)


def _sources(cli: Cli) -> Sources:
    return service_sources(cli.home, cli.environ)


def _loaded(cli: Cli, wants_json: bool, draft: Path | None = None) -> "Loaded":
    from gateway.config.reading import read

    check_home(cli.home)
    try:
        sources = _sources(cli)
        return read(sources if draft is None else replace(sources, file=str(draft), yaml=draft.read_text("utf-8-sig")))
    except UnicodeDecodeError:
        raise Failed(f"{draft} is no text in UTF-8.") from None
    except BadConfig as bad:
        _refuse(bad, wants_json=wants_json, closing=CLOSING if has_pid_file(cli.home) else UNCHANGED)


@config.command()
@click.option("--json", "wants_json", is_flag=True, help="One JSON array.")
@pass_cli
def show(cli: Cli, wants_json: bool) -> None:
    """Print what is in force and where it comes from. Secrets are masked."""
    from gateway.config.reading import leaves, shown

    loaded = _loaded(cli, wants_json)
    rows = [(dotted(path), shown(value), loaded.origin(dotted(path))) for path, value in leaves(loaded.config)]
    if wants_json:
        click.echo(as_json([{"key": key, "value": value, "origin": origin} for key, value, origin in rows]))
        return
    texts = [(key, _one_line(value), origin) for key, value, origin in rows]
    wide = max(len(key) for key, _, _ in texts)
    far = max(len(origin) for _, _, origin in texts)
    # On a terminal a row stays on its line; a file or a pipe gets the whole value.
    room = shutil.get_terminal_size().columns - wide - far - 4 if sys.stdout.isatty() else _WIDEST
    wider = min(max(len(value) for _, value, _ in texts), max(room, _LEAST))
    for key, value, origin in texts:
        click.echo(f"{key:<{wide}}  {one_line(value, wider):<{wider}}  {origin}")


@config.command("schema")
def print_schema() -> None:
    """Print the JSON schema of config.yaml."""
    from gateway.config.editing import schema

    click.echo(schema(), nl=False)


def _keys(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from gateway.config.model import Config
    from gateway.config.reading import leaves

    return [CompletionItem(key) for path, _ in leaves(Config()) if (key := dotted(path)).startswith(incomplete)]


@config.command("set")
@click.argument("key", shell_complete=_keys)
@click.argument("value")
@pass_cli
def set_key(cli: Cli, key: str, value: str) -> None:
    """Change one key, and keep everything else as it is written.

    A VALUE of - is read from the terminal or from standard input, so that a secret is in no history. Secrets go to .env.
    """
    from gateway.config.editing import edit
    from gateway.observe.redaction import redact

    text = _asked(key) if value == "-" else value
    prepare_home(cli.home)
    try:
        made = edit(_sources(cli), {key: text})
    except BadConfig as bad:
        _refuse(bad, closing=UNCHANGED)
    made.write(cli.home)
    for number, line in made.lines:
        click.echo(f"{YAML}:{number}  {redact(line)}")
    for variable in made.variables:
        click.echo(f"{DOTENV}  {variable}=****")
        if variable in cli.environ and cli.environ[variable] != text:
            click.echo(f"The environment sets {variable} too, and it wins over {DOTENV}.", err=True)
    if not made.lines and not made.variables:
        click.echo(f"{key} was so already.")


def _asked(key: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(key, hide_input=True))
    return sys.stdin.readline().rstrip("\r\n")


def _one_line(value: Any) -> str:
    return one_line(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False), 48)


def _color() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _refuse(bad: BadConfig, *, wants_json: bool = False, closing: str = CLOSING) -> NoReturn:
    """Prints every problem and raises Exit(2). The list is what was asked for, so it goes to standard output."""
    if wants_json:
        click.echo(as_json(report(bad.problems, bad.warnings)))
    else:
        click.echo(bad_config_as_text(bad, color=_color(), closing=closing))
    raise Exit(Wrong.exit_code)
