"""Reads the configuration (environment over `.env` over `config.yaml` over defaults), and collects everything that is wrong in one list.
Also lists the keys of a configuration, and those in which two differ.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr
from pydantic_core import ErrorDetails

from adapters.section import Section
from gateway.config import rules
from gateway.config.model import Config, config_model
from gateway.config.problems import MASK, BadConfig, KeyPath, Problem, dotted, parse_path
from gateway.config.sources import Setting, Sources, finder, misspelt, read_dotenv
from gateway.config.validation import BadReference, explained, lay_over, resolve_references, validated, with_excerpt
from gateway.config.yaml_nodes import Document, read_yaml
from gateway.observe.redaction import redact


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration that can be used. `variables`: the environment, with `.env` below it."""

    config: Config
    warnings: tuple[Problem, ...]
    variables: Mapping[str, str] = field(repr=False)
    document: Document = field(repr=False)

    def digest(self) -> str:
        """Returns a few digits that are the same for every gateway of a team that is configured alike. Secrets do not count, nor does what each
        machine has for itself.
        """
        told = self.config.model_dump(mode="json", exclude={"api": {"host", "port"}, "log": True, "database": True})
        told["timezone"] = self.config.session_reset.zone
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]

    def marks(self) -> dict[str, str]:
        """Returns a digest of each value that is not the default, by its key. That of a secret is too short to tell anything about it."""
        usual = dict(leaves(Config()))
        found: dict[str, str] = {}
        for path, value in leaves(self.config):
            if path not in usual or usual[path] != value:
                is_secret = isinstance(value, SecretStr)
                plain = value.get_secret_value() if is_secret else repr(value)
                found[dotted(path)] = hashlib.sha256(plain.encode()).hexdigest()[: 2 if is_secret else 12]
        return found

    def origin(self, path: str) -> str:
        """Where the value of a key such as `api.port` comes from: file and line, environment and name, or default."""
        place = self.document.places.get(parse_path(path))
        return str(replace(place, column=0)) if place else "default"


def load(home: Path, environ: Mapping[str, str]) -> Loaded:
    """Raises BadConfig with everything that is wrong. A home without files is a good configuration."""
    return read(Sources.of(home, environ))


def read(sources: Sources) -> Loaded:
    """As `load`, of texts that are already read. Nothing is written anywhere."""
    file = file_of(sources)
    found = sources.settings()
    root = model_of(file, found)
    whole = lay_over(file, found, root)
    config, wrong = _validated(file, whole, root, finder(sources))
    known = {(one.place, one.at) for one in whole.problems}
    problems = whole.problems + [one for one in dict.fromkeys(wrong) if (one.place, one.at) not in known]
    if not sources.problems:  # nothing is missing from what could not be read
        problems += _broken_rules(config, whole, problems, _owners(sources.home, config))
    doubtful = [
        *(_located(finding, whole) for finding in rules.warnings(config)),
        *misspelt(found, [*Config.model_fields]),
    ]
    lines = sources.yaml.splitlines()
    warnings = (*sources.warnings, *(with_excerpt(warning, file, lines, root) for warning in doubtful))
    if problems:
        raise BadConfig([with_excerpt(problem, file, lines, root) for problem in problems], warnings)
    return Loaded(config=config, warnings=warnings, variables=sources.variables(), document=whole)


def file_of(sources: Sources) -> Document:
    """The file as data; what is wrong with the other sources counts to its problems. Raises BadConfig where it is no mapping."""
    problems = [*sources.problems, *read_dotenv(sources.dotenv)[1]]
    try:
        file = read_yaml(sources.yaml, sources.file)
    except BadConfig as error:
        raise BadConfig([*problems, *error.problems]) from None
    if (kind := type(cast(object, file.data))) is not dict:
        said = f"this file is {'a list' if kind is list else 'a single value'}"
        raise BadConfig([*problems, file.problem((), said, "begin with a section such as  model:")])
    return replace(file, problems=[*problems, *file.problems])


def model_of(file: Document, found: Iterable[Setting], *, also: Iterable[str] = ()) -> type[Config]:
    """What may be written: the sections of other packages' platforms count where they are named, or in `also`."""
    section: object = cast(dict[str, Any], file.data).get("platforms")
    named = {*also, *(cast(dict[str, Any], section) if isinstance(section, dict) else ())}
    named |= {setting.path[1] for setting in found if setting.path[0:1] == ("platforms",) and setting.path[1:]}
    return config_model(frozenset(named))


def _validated(
    file: Document, whole: Document, root: type[Config], find: Callable[[str], str | None]
) -> tuple[Config, list[Problem]]:
    """The configuration without what is wrong, and that. A variable hides no mistake of the file, but references that lead nowhere."""
    config, wrong = validated(root, resolve_references(whole.data, find))
    told = [explained(path, error, whole, root) for path, error in wrong if _is_in_force(config, path, error)]
    _, alone = validated(root, resolve_references(file.data, find))
    told += [
        explained(path, error, file, root) for path, error in alone if not isinstance(error["input"], BadReference)
    ]
    return config, told


def _owners(home: Path | None, config: Config) -> Mapping[str, str]:
    """The stored owners of the platforms whose lists could leave them out."""
    platforms = list(rules.lists_without_owner(config))
    if home is None or not platforms:
        return {}
    from sessions import people

    return people.known_owners_in(home, config.database.url.get_secret_value(), platforms)


def _broken_rules(config: Config, whole: Document, known: list[Problem], owners: Mapping[str, str]) -> list[Problem]:
    """What is missing because it, or what it is in, is wrong, is not missing as well."""
    told = {problem.path for problem in known}
    wrong = [problem.at for problem in known if problem.at]
    broken = [one for one in rules.errors(config, owners) if not told & {f"{one.path}.{key}" for key in one.one_of}]
    located = [_located(finding, whole) for finding in broken]
    return [one for one in located if not any(one.at[: len(at)] == at for at in wrong)]


def _located(finding: rules.Finding, document: Document) -> Problem:
    other = f"; the other: {document.place(parse_path(finding.also))}" if finding.also else ""
    return document.problem(parse_path(finding.path), finding.said, f"{finding.hint}{other}")


def _is_in_force(config: Config, path: KeyPath, error: ErrorDetails) -> bool:
    """A section that is switched off may hold references to what is not there."""
    written = error["input"]
    match path if isinstance(written, BadReference) and not written.is_broken else ():
        case ("platforms", str() as name, *_):
            section = config.platforms.by_name().get(name)
            return section is not None and section.enabled
        case ("model", *_):
            return bool(config.model.name)
        case ("voice", *_):
            return bool(config.voice.base_url)
        case ("web", *_):
            return bool(config.web.search)
        case _:
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A key whose value is another one now. None: the key was not there. Secrets are masked on both sides."""

    path: str
    old: Any
    new: Any


def diff(old: Config, new: Config) -> list[Change]:
    """What changed, in the order of the sections."""
    before, after = dict(leaves(old)), dict(leaves(new))
    paths = dict.fromkeys([*before, *after])
    return [
        Change(path=dotted(path), old=shown(before.get(path)), new=shown(after.get(path)))
        for path in paths
        if before.get(path) != after.get(path)
    ]


def secrets(config: Config) -> list[str]:
    """Returns every value of a secret key, found by its type."""
    return [value.get_secret_value() for _, value in leaves(config) if isinstance(value, SecretStr)]


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every key that holds a value; sections of a list are entered, lists of words are values."""
    inside: Iterable[tuple[Any, Any]]
    match value:
        case Section():
            inside = value
        case dict():
            inside = cast(dict[str, Any], value).items()
        case [Section() | {}, *_]:  # else one value, such as a list of words
            inside = enumerate(cast(list[Any], value))
        case _:
            yield path, value
            return
    for part, one in inside:
        yield from leaves(one, (*path, part))


def shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [shown(one) for one in cast(list[Any], value)]
    return value
