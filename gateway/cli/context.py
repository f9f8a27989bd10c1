"""What every command is given: the home and the environment."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    home: Path
    environ: Mapping[str, str]


pass_cli = click.make_pass_decorator(Cli)


def program() -> str:
    """Returns how this shell calls us: `hermes` if it finds that, else the path of the script."""
    script = Path(sys.argv[0])
    if script.name != "hermes" or shutil.which("hermes") is not None:
        return "hermes"
    # In a checkout the script is `.venv/bin/hermes`; from elsewhere the whole path is easier to type than many `..`.
    near = os.path.relpath(script)
    return str(script) if near.startswith("..") else near


def as_called_here(text: str) -> str:
    """Returns the text with each `hermes COMMAND` in it as this shell has to call it, so that it can be copied."""
    from gateway.cli.main import COMMANDS

    return re.sub(rf"(?<![\w/.-])hermes (?=(?:{'|'.join(COMMANDS)})\b)", lambda _: f"{program()} ", text)
