"""What every command is given: the home and the environment."""

import os
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
    near = os.path.relpath(script)
    return str(script) if near.startswith("..") else near
