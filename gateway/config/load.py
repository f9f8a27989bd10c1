"""Reads the configuration (environment over `.env` over `config.yaml` over defaults), and collects everything that is wrong in one list."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any, cast

from pydantic import ValidationError

from gateway.config import rules
from gateway.config.masking import Masking
from gateway.config.model import Config, config_model
from gateway.config.overlay import References, lay_over, layer_of
from gateway.config.problems import BadConfig, Path, Problem, parse_path
from gateway.config.schema_info import SchemaInfo
from gateway.config.sources import DOTENV, YAML, Setting, Sources, finder, misspelt, read_dotenv
from gateway.config.validation_messages import explained
from gateway.config.yaml_nodes import TWICE, Document, read_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration that can be used. `variables`: the environment, with `.env` below it."""

    config: Config
    warnings: tuple[Problem, ...]
    variables: Mapping[str, str] = field(repr=False)
    document: Document = field(repr=False)

    def origin(self, path: str) -> str:
        """Where the value of a key such as `api.port` comes from: file and line, environment and name, .env, or default."""
        place = self.document.places.get(parse_path(path))
        if place is None:
            return "default"
        return DOTENV if place.source == DOTENV else str(replace(place, column=0))


def load(home: File, environ: Mapping[str, str]) -> Loaded:
    """Raises BadConfig with everything that is wrong. A home without files is a good configuration."""
    return read(Sources.of(home, environ))


def read(sources: Sources) -> Loaded:
    """As `load`, of texts that are already read. Nothing is written anywhere."""
    file = file_of(sources)
    found = sources.settings()
    schema = schema_of(file, found)
    references = References(finder(sources), schema)
    layers = (replace(file, data=references.resolved(file.data, file)), layer_of(found, schema, references))
    wrong = [problem for layer in layers for problem in _without_mistakes(layer, schema)]
    whole = lay_over(*layers)
    config = cast(type[Config], schema.root).model_validate(whole.data)
    problems = whole.problems
    problems += [one for one in references.lost if _is_used(config, one.at) and whole.place(one.at) == one.place]
    problems += _untold(wrong, [one for one in problems if one.said != TWICE])
    if not sources.problems:  # nothing is missing from what could not be read
        problems += _broken_rules(config, whole, problems)
    warnings = [*(_located(finding, whole) for finding in rules.doubtful(config)), *misspelt(found, schema.names)]
    masking = Masking(sources.yaml.splitlines(), {place.line: path for path, place in file.keys.items()}, schema)
    shown = (*sources.warnings, *map(masking.shown, warnings))
    if problems:
        raise BadConfig(list(map(masking.shown, _sorted(problems))), shown)
    return Loaded(config=config, warnings=shown, variables=sources.variables(), document=whole)


def file_of(sources: Sources) -> Document:
    """The file as data; what is wrong with the other sources counts to its problems. Raises BadConfig where it is no mapping."""
    problems = [*sources.problems, *read_dotenv(sources.dotenv)[1]]
    try:
        file = read_yaml(sources.yaml, YAML)
    except BadConfig as error:
        raise BadConfig(_sorted([*problems, *error.problems])) from None
    if (kind := type(cast(object, file.data))) is not dict:
        said = f"this file is {'a list' if kind is list else 'a single value'}"
        raise BadConfig(_sorted([*problems, file.problem((), said, "begin with a section such as  model:")]))
    return replace(file, problems=[*problems, *file.problems])


def schema_of(file: Document, found: Iterable[Setting], *, also: Iterable[str] = ()) -> SchemaInfo:
    """What may be written: the sections of other packages' platforms count where they are named, or in `also`."""
    section: object = cast(dict[str, Any], file.data).get("platforms")
    named = {*also, *(cast(dict[str, Any], section) if isinstance(section, dict) else ())}
    named |= {setting.path[1] for setting in found if setting.path[0:1] == ("platforms",) and setting.path[1:]}
    return SchemaInfo(config_model(frozenset(named)))


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.place.source, problem.place.line, problem.place.column))


def _untold(found: Iterable[Problem], known: list[Problem]) -> list[Problem]:
    """One word for each key: what is missing because it, or what it is in, is wrong, is not missing as well."""
    told = [problem.at for problem in known if problem.at]
    return [problem for problem in found if not any(problem.at[: len(at)] == at for at in told)]


def _broken_rules(config: Config, whole: Document, known: list[Problem]) -> list[Problem]:
    refused = {problem.path for problem in known}
    broken = [
        _located(finding, whole)
        for finding in rules.broken(config)
        if not any(f"{finding.path}.{key}" in refused for key in finding.one_of)  # it is there, but wrong
    ]
    return _untold(broken, known)


def _located(finding: rules.Finding, document: Document) -> Problem:
    problem = document.problem(parse_path(finding.path), finding.said, finding.hint)
    return replace(problem, also=(document.place(parse_path(finding.also)),)) if finding.also else problem


def _is_used(config: Config, path: Path) -> bool:
    """Whether the section of this key is switched on. What is off may hold references to what is not there."""
    match path:
        case ("platforms", name, *_):
            section = config.platforms.by_name().get(str(name))
            return section is not None and section.enabled
        case ("model", *_):
            return bool(config.model.name)
        case ("voice", *_):
            return bool(config.voice.base_url)
        case _:
            return True


def _without_mistakes(layer: Document, schema: SchemaInfo) -> list[Problem]:
    """What is wrong in a layer is taken out of its data, so that the rules can still look at the rest."""
    try:
        schema.root.model_validate(layer.data)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        for one in wrong:
            _drop(layer.data, one["loc"], schema)
        return [explained(one, layer, schema) for one in wrong]
    return []


def _drop(data: Any, location: tuple[str | int, ...], schema: SchemaInfo) -> None:
    """Take out the last named key on the way to what is wrong, so that indices of lists stay what they are."""
    path = [part for part in location if part != "[key]"]
    broken_item = isinstance(path[-1], int) and schema.is_section(tuple(path))
    while not broken_item and isinstance(path[-1], int):
        path.pop()
    around: Any = data
    for part in path[:-1]:
        if isinstance(part, str) and part not in around:
            return  # already taken out, for another mistake in it
        around = around[part]
    if broken_item:
        around[path[-1]] = {}
    else:
        around.pop(path[-1], None)
