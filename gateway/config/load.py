"""Reads the configuration (environment over `.env` over `config.yaml` over defaults), and collects everything that is wrong in one list."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any, cast

from pydantic import ValidationError

from gateway.config import rules
from gateway.config.masking import Masking
from gateway.config.model import Config, config_model
from gateway.config.overlay import References, lay_over
from gateway.config.problems import BadConfig, Path, Problem, SourcePlace, dotted, parse_path
from gateway.config.schema_info import SchemaInfo
from gateway.config.sources import DOTENV, YAML, Sources, finder, misspelt, read_dotenv, settings
from gateway.config.validation_messages import explained
from gateway.config.yaml_nodes import TWICE, Document, NotYaml, read_yaml
from gateway.home import is_open


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
    return load_sources(home, Sources.of(home, environ))


def load_sources(home: File, sources: Sources) -> Loaded:
    """As `load`, of what was read from the home already."""
    loaded = read(sources)
    if not is_open(home):
        return loaded
    said = "others on this machine can look into it"
    open_home = Problem(place=SourcePlace(source=str(home)), path="", said=said, hint=f"chmod 700 {home}")
    return replace(loaded, warnings=(open_home, *loaded.warnings))


def read(sources: Sources) -> Loaded:
    """As `load`, of texts that are already read. Nothing is written anywhere."""
    problems = [*sources.problems, *read_dotenv(sources.dotenv)[1]]
    try:
        document = read_yaml(sources.yaml, YAML)
    except NotYaml as error:
        raise BadConfig(_sorted([*problems, error.problem])) from None
    if not isinstance(document.data, dict):
        raise BadConfig(_sorted([*problems, _no_mapping(document)]))
    schema, found = schema_of(document, sources), settings(sources)
    whole = lay_over(document, found, schema)
    references = References(whole, schema, finder(sources))
    config, wrong = _validated(references, whole)
    if found:  # a variable hides no mistake of the file, which would be refused without it
        told = {(problem.place, problem.path) for problem in wrong}
        wrong += [
            one for one in _validated(References(document, schema), document)[1] if (one.place, one.path) not in told
        ]
    problems += [*whole.problems, *(problem for path, problem in references.lost if _is_used(config, path))]
    problems += _untold(wrong, [one for one in problems if one.said != TWICE])
    if not sources.problems:  # nothing is missing from what could not be read
        refused = {problem.path for problem in problems}
        broken = [
            finding
            for finding in rules.broken(config)
            if not any(dotted((*finding.path, key)) in refused for key in finding.one_of)  # it is there, but wrong
        ]
        problems += _untold((_located(finding, whole) for finding in broken), problems)
    warnings = [*(_located(finding, whole) for finding in rules.doubtful(config)), *misspelt(sources, schema.names)]
    masking = Masking(sources.yaml.splitlines(), {place.line: path for path, place in document.keys.items()}, schema)
    shown = tuple(map(masking.shown, warnings))
    if problems:
        raise BadConfig(list(map(masking.shown, _sorted(problems))), shown)
    return Loaded(config=config, warnings=shown, variables=sources.variables(), document=whole)


def schema_of(document: Document, sources: Sources, *, also: Iterable[str] = ()) -> SchemaInfo:
    """What may be written: the sections of other packages' platforms count where they are named, or in `also`."""
    section: object = cast(dict[str, Any], document.data).get("platforms") if isinstance(document.data, dict) else None
    named = {*also, *(cast(dict[str, Any], section) if isinstance(section, dict) else ())}
    named |= {setting.path[1] for setting in settings(sources) if setting.path[0] == "platforms"}
    return SchemaInfo(config_model(frozenset(named)))


def _no_mapping(document: Document) -> Problem:
    said = f"this file is {'a list' if isinstance(document.data, list) else 'a single value'}"
    place = SourcePlace(source=YAML, line=1, column=1)
    return Problem(place=place, path="", said=said, hint="begin with a section such as  model:")


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.place.source, problem.place.line, problem.place.column))


def _untold(found: Iterable[Problem], known: list[Problem]) -> list[Problem]:
    """One word for each key: what is missing because it, or what it is in, is wrong, is not missing as well."""
    told = [re.compile(rf"{re.escape(problem.path)}($|[.\[])") for problem in known]
    return [problem for problem in found if not any(path.match(problem.path) for path in told)]


def _located(finding: rules.Finding, document: Document) -> Problem:
    """A finding about a missing key points to the section that it is missing from."""
    place = document.place(finding.path) if finding.path in document.places else document.key_place(finding.path)
    also = tuple(document.place(path) for path in finding.also)
    return Problem(place=place, path=dotted(finding.path), said=finding.said, hint=finding.hint, also=also)


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


def _validated(references: References, document: Document) -> tuple[Config, list[Problem]]:
    """The configuration without what is wrong in it, so that the rules can still look at the rest."""
    schema, data = references.schema, references.resolved(document.data)
    model = cast(type[Config], schema.root)
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        wrong = error.errors(include_url=False)
    # What is wrong is left out and the rest validated again, so that the rules see defaults in its place.
    for one in wrong:
        _drop(data, one["loc"], schema)
    return model.model_validate(data), [explained(one, document, schema) for one in wrong]


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
