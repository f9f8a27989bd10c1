"""What every command knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    home: Path
    environ: Mapping[str, str]


pass_cli = click.make_pass_decorator(Cli)
