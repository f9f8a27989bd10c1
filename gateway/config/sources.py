"""Reads the sources of the configuration as texts: `config.yaml`, `.env`, the environment, the service's credentials.

Nothing here needs pydantic, because `hermes sessions list` needs no more than `database_url`.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.problems import BadConfig, Problem, SourcePlace
from gateway.home import is_open

if TYPE_CHECKING:
    from dotenv.parser import Binding

YAML, DOTENV = "config.yaml", ".env"
PREFIX = "HERMES_"
DATABASE_VARIABLE = "HERMES_DATABASE__URL"
# Finds too much rather than too little: then the file is read, and has the last word.
_DATABASE_IN_YAML = re.compile(r"""^(?![ \t]*#).*\burl["']?:[ \t]*(?!["']{2}|#)\S""", re.MULTILINE)
REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A variable, and where it was set."""

    name: str
    value: str = field(repr=False)
    place: SourcePlace

    @property
    def path(self) -> tuple[str, ...]:
        """The key that it means: two underscores follow a section. One part, or none: it means no key."""
        return tuple(self.name.removeprefix(PREFIX).lower().split("__")) if self.name.startswith(PREFIX) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the configuration is read from. `file`: the name of the file that `yaml` was read from. `home`: the lists of people are compared with the owners that are stored there. `problems`: files
    that could not be read. `warnings`: files that other users can read. `credentials`: finds a credential by its name; None: they are files
    in `$CREDENTIALS_DIRECTORY`.
    """

    home: Path | None = None
    file: str = YAML
    yaml: str = field(default="", repr=False)
    dotenv: str = field(default="", repr=False)
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    credentials: Callable[[str], str | None] | None = field(default=None, repr=False)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, home: Path, environ: Mapping[str, str]) -> "Sources":
        problems: list[Problem] = []
        yaml, dotenv = (_text(home / name, problems) for name in (YAML, DOTENV))
        said, hint = "others on this machine can look into it", f"chmod 700 {home}"
        warnings = (Problem(place=SourcePlace(source=str(home)), said=said, hint=hint),) if is_open(home) else ()
        return cls(home=home, yaml=yaml, dotenv=dotenv, environ=environ, problems=tuple(problems), warnings=warnings)

    def settings(self) -> Sequence[Setting]:
        """The environment, and `.env` below it."""
        found = {setting.name: setting for setting in read_dotenv(self.dotenv)[0]}
        for name, value in sorted(self.environ.items()):
            found[name] = Setting(name=name, value=value, place=SourcePlace(source=f"environment {name}"))
        return list(found.values())

    def variables(self) -> dict[str, str]:
        """The same by name."""
        return {setting.name: setting.value for setting in self.settings()}

    def credential(self, name: str) -> str | None:
        """What systemd puts, or will put, into a file of that name."""
        if self.credentials is not None:
            return self.credentials(name)
        folder = self.environ.get("CREDENTIALS_DIRECTORY")
        try:
            return (Path(folder) / name).read_text("utf-8").rstrip("\r\n") if folder else None
        except (OSError, UnicodeDecodeError):
            return None


def _text(path: Path, problems: list[Problem]) -> str:
    """Empty when there is no such file."""
    line = column = 0
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except IsADirectoryError:
        said, hint = "is a folder", "put a file there, or take the folder away"
    except OSError as error:
        said = f"cannot be read: {error.strerror or error}"
        hint = f"make it readable for the user who runs hermes: chmod 600 {path}"
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        said, hint = "is not UTF-8 here", "save the file as UTF-8"
    problems.append(Problem(place=SourcePlace(source=path.name, line=line, column=column), said=said, hint=hint))
    return ""


def dotenv_bindings(text: str) -> "list[Binding]":
    """The pieces of a `.env`; together, their `original.string` is the file. Their own `${NAME}` stays as it is."""
    if not text:
        return []
    from dotenv.parser import parse_stream

    return list(parse_stream(io.StringIO(text)))


def read_dotenv(text: str) -> tuple[list[Setting], list[Problem]]:
    """The variables of a `.env`, and the lines that are none."""
    found: list[Setting] = []
    problems: list[Problem] = []
    for binding in dotenv_bindings(text):
        written = binding.original.string
        blank = written[: len(written) - len(written.lstrip("\r\n"))]  # empty lines above belong to it
        place = SourcePlace(source=DOTENV, line=binding.original.line + blank.count("\n"), column=1)
        if binding.error:
            hint = "write NAME=value, the value in quotes if it has spaces"
            problems.append(Problem(place=place, said="this line cannot be read", hint=hint))
        elif binding.key is not None:
            found.append(Setting(name=binding.key, value=binding.value or "", place=place))
    return found, problems


def misspelt(found: Sequence[Setting], sections: Sequence[str]) -> Iterator[Problem]:
    """Variables such as HERMES_API_PORT, which set nothing: a section is followed by two underscores."""
    for one in (setting for setting in found if len(setting.path) == 1):
        section = next((section for section in sections if one.path[0].startswith(f"{section}_")), None)
        if section:
            meant = f"{PREFIX}{section}__{one.path[0].removeprefix(section)[1:]}".upper()
            yield Problem(place=one.place, said=f"{one.name} sets nothing", hint="", suggestion=meant)


def finder(sources: Sources) -> Callable[[str], str | None]:
    """Takes the name in `${NAME}` and returns its value; None where it is set nowhere."""
    variables = sources.variables()
    return lambda name: variables[name] if name in variables else sources.credential(name)


def without_references(text: str, find: Callable[[str], str | None]) -> str:
    """The text with the values of its references. What is set nowhere is empty; `$${` is a plain `${`."""
    return REFERENCE.sub(lambda match: find(match[1]) or "", text).replace("$${", "${")


def database_url(home: Path, environ: Mapping[str, str]) -> str:
    """Empty: SQLite in the home. Quick, and checks nothing: a file with mistakes counts as one without an address."""
    return database_url_in(Sources.of(home, environ))


def database_url_in(sources: Sources) -> str:
    variables = sources.variables()
    written = variables[DATABASE_VARIABLE] if DATABASE_VARIABLE in variables else _database_in(sources.yaml)
    return without_references(written, finder(sources))


def _database_in(yaml: str) -> str:
    """Parses nothing where no address is written: most commands should not wait for a YAML reader."""
    if _DATABASE_IN_YAML.search(yaml) is None:
        return ""
    from gateway.config.yaml_nodes import read_yaml

    try:
        written = read_yaml(yaml).value(("database", "url"))
    except BadConfig:
        return ""
    return written if isinstance(written, str) else ""
