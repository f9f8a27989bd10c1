"""Reads what systemd gives to the gateway's service, for an admin who checks its home from a shell.

In the service, `$CREDENTIALS_DIRECTORY` holds the credentials. In an admin's shell there is none, and a `${NAME}` that the service
knows would count as set nowhere. So the unit files that name this home are read: `Environment=`, `EnvironmentFile=`, `LoadCredential=`
and `SetCredential=`.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.config.sources import Sources
from gateway.home import UNIT_FOLDERS

_NOT_READABLE = "credential_of_the_service_" + "x" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceView:
    """The environment and the credentials that the service of a home gets. `unreadable`: credentials that are set, but that this user may
    not read.
    """

    unit: str = ""
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    credentials: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    unreadable: frozenset[str] = frozenset()

    def credential(self, name: str) -> str | None:
        """Returns the value; a placeholder where this user may not read it, so that it does not count as missing."""
        return _NOT_READABLE if name in self.unreadable else self.credentials.get(name)


def service_sources(home: Path, environ: Mapping[str, str]) -> Sources:
    """Returns what the service of this home reads; where there is none, or in the service itself, what this process reads."""
    sources = Sources.of(home, environ)
    view = ServiceView() if "CREDENTIALS_DIRECTORY" in environ else service_view(home)
    return replace(sources, environ=view.environ, credentials=view.credential) if view.unit else sources


def service_view(home: Path) -> ServiceView:
    """Returns the view of the first unit whose `HERMES_HOME` is `home`; an empty one where there is none."""
    folders = UNIT_FOLDERS
    # /etc stands last and wins, as in systemd.
    units = {file.name: file for folder in reversed(folders) for file in _files(folder, "*.service")}
    for name in sorted(units):
        view = _view(name, _settings(units[name], name, folders))
        at = view.environ.get("HERMES_HOME")
        if at and Path(at).resolve() == home.resolve():
            return view
    return ServiceView()


def _files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _settings(unit: Path, name: str, folders: tuple[Path, ...]) -> list[tuple[str, str]]:
    """Returns the assignments of `[Service]`, those of drop-ins last. Units of other programs give none."""
    own = _text(unit)
    if "HERMES_HOME" not in own and "hermes" not in name:
        return []
    drop_ins = [file for folder in reversed(folders) for file in _files(folder / f"{name}.d", "*.conf")]
    return [pair for text in (own, *map(_text, drop_ins)) for pair in _assignments(text)]


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    for line in text.replace("\\\n", " ").splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith(("#", ";")):
            yield key.strip(), value.strip()


def _view(unit: str, settings: list[tuple[str, str]]) -> ServiceView:
    environ: dict[str, str] = {}
    credentials: dict[str, str] = {}
    unreadable: set[str] = set()
    for key, value in settings:
        match key:
            case "Environment":
                environ |= dict(_variables(value))
            case "EnvironmentFile":
                # With a hyphen systemd starts the service even without the file.
                for line in _text(Path(value.removeprefix("-"))).splitlines():
                    environ |= dict(_variables(line)) if not line.lstrip().startswith("#") else {}
            case "SetCredential":
                name, _, text = value.partition(":")
                credentials[name] = text
            case "LoadCredential" | "LoadCredentialEncrypted":
                name, _, path = value.partition(":")
                text = _text(Path(path)).rstrip("\r\n") if key == "LoadCredential" and path else ""
                if text:
                    credentials[name] = text
                else:
                    unreadable.add(name)
            case _:
                pass
    return ServiceView(unit=unit, environ=environ, credentials=credentials, unreadable=frozenset(unreadable))


def _variables(line: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(line)
    except ValueError:
        return
    for word in words:
        name, separator, value = word.partition("=")
        if separator:
            yield name, value
