"""Where configuration comes from: `config.yaml` and `.env` in the home, the environment, and the service's credentials.

Nothing here needs pydantic, because `hermes sessions list` needs no more than `database_url`.
"""

import io
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as File

from gateway.config.problems import Problem, SourcePlace
from gateway.config.service import ServiceView, service_view

YAML, DOTENV = "config.yaml", ".env"
PREFIX = "HERMES_"
REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A variable, and where it was set."""

    name: str
    value: str = field(repr=False)
    place: SourcePlace

    @property
    def path(self) -> tuple[str, ...]:
        """The key that it means."""
        return tuple(self.name.removeprefix(PREFIX).lower().split("__"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that is read, as it is. `problems`: files that could not be read."""

    yaml: str = field(default="", repr=False)
    dotenv: str = field(default="", repr=False)
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    service: ServiceView = field(default_factory=ServiceView, repr=False)
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, home: File, environ: Mapping[str, str]) -> "Sources":
        problems: list[Problem] = []
        yaml, dotenv = (_text(home / name, problems) for name in (YAML, DOTENV))
        return cls(yaml=yaml, dotenv=dotenv, environ=environ, problems=tuple(problems))

    def as_the_service_sees_it(self, home: File) -> "Sources":
        """For an admin's shell: with the environment and the credentials of the unit that runs this home, if there is one."""
        view = ServiceView() if "CREDENTIALS_DIRECTORY" in self.environ else service_view(home)
        return replace(self, environ=view.environ, service=view) if view.unit else self

    def variables(self) -> dict[str, str]:
        """The environment, and `.env` below it."""
        from_file = {setting.name: setting.value for setting in read_dotenv(self.dotenv)[0]}
        return {**from_file, **self.environ}

    def credential(self, name: str) -> str | None:
        """What systemd puts, or will put, into a file of that name."""
        if self.service.unit:
            return self.service.credential(name)
        folder = self.environ.get("CREDENTIALS_DIRECTORY")
        try:
            return (File(folder) / name).read_text("utf-8").rstrip("\r\n") if folder else None
        except (OSError, UnicodeDecodeError):
            return None


def _text(path: File, problems: list[Problem]) -> str:
    """Empty when there is no such file."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ""
    except IsADirectoryError:
        problems.append(_about(path, "is a folder", "put a file there, or take the folder away"))
    except OSError as error:
        said = f"cannot be read: {error.strerror or error}"
        problems.append(_about(path, said, f"make it readable for the user who runs hermes: chmod 600 {path}"))
    else:
        return _decoded(raw, path, problems)
    return ""


def _decoded(raw: bytes, path: File, problems: list[Problem]) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        place = SourcePlace(source=path.name, line=line, column=column)
        problems.append(Problem(place=place, path="", said="is not UTF-8 here", hint="save the file as UTF-8"))
        return ""


def _about(path: File, said: str, hint: str) -> Problem:
    return Problem(place=SourcePlace(source=path.name), path="", said=said, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class DotenvPart:
    """A piece of a `.env` as it was written. No `name`: a comment, or, if `broken`, nothing that can be read."""

    text: str
    line: int
    name: str | None
    value: str
    broken: bool


def dotenv_parts(text: str) -> Iterator[DotenvPart]:
    """Put together again, the texts are the file. Its own `${NAME}` stays as it is."""
    if not text:
        return
    from dotenv.parser import parse_stream

    for binding in parse_stream(io.StringIO(text)):
        written = binding.original.string
        blank = len(written) - len(written.lstrip("\r\n"))
        line = binding.original.line + written[:blank].count("\n")
        yield DotenvPart(text=written, line=line, name=binding.key, value=binding.value or "", broken=binding.error)


def read_dotenv(text: str) -> tuple[list[Setting], list[Problem]]:
    """The variables of a `.env`, and the lines that are none."""
    found: list[Setting] = []
    problems: list[Problem] = []
    for part in dotenv_parts(text):
        place = SourcePlace(source=DOTENV, line=part.line, column=1)
        if part.broken:
            hint = "write NAME=value, the value in quotes if it has spaces"
            problems.append(Problem(place=place, path="", said="this line cannot be read", hint=hint))
        elif part.name is not None:
            found.append(Setting(name=part.name, value=part.value, place=place))
    return found, problems


def settings(sources: Sources) -> list[Setting]:
    """The variables that mean a key, `.env` first, so that a later one replaces an earlier one."""
    found = [setting for setting in read_dotenv(sources.dotenv)[0] if _means_key(setting.name)]
    for name, value in sorted(sources.environ.items()):
        if _means_key(name):
            found.append(Setting(name=name, value=value, place=SourcePlace(source=f"environment {name}")))
    return found


def misspelt(sources: Sources, sections: Collection[str]) -> Iterator[Problem]:
    """Variables such as HERMES_API_PORT, which set nothing: a section is followed by two underscores."""
    from_file = [(setting.name, setting.place) for setting in read_dotenv(sources.dotenv)[0]]
    from_shell = [(name, SourcePlace(source=f"environment {name}")) for name in sorted(sources.environ)]
    for name, place in (*from_file, *from_shell):
        rest = name.removeprefix(PREFIX).lower() if name.startswith(PREFIX) and "__" not in name else ""
        section = next((one for one in sections if rest.startswith(f"{one}_")), None)
        if section:
            meant = f"{PREFIX}{section}__{rest.removeprefix(section)[1:]}".upper()
            yield Problem(place=place, path="", said=f"{name} sets nothing", hint="", suggestion=meant)


def _means_key(name: str) -> bool:
    """HERMES_HOME and other programs' HERMES_THIS are no keys: a key has two underscores after its section."""
    return name.startswith(PREFIX) and "__" in name.removeprefix(PREFIX)


def lookup(sources: Sources, variables: Mapping[str, str], name: str) -> str | None:
    """The value of `${NAME}`; None where it is set nowhere."""
    value = variables.get(name)
    return value if value is not None else sources.credential(name)
