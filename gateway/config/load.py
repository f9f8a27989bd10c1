"""Reading the configuration: environment over `.env` over `config.yaml` over defaults; everything that is wrong in one list."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any, cast

from pydantic import ValidationError

from gateway.config import rules
from gateway.config.masking import Masked
from gateway.config.model import Config, config_model
from gateway.config.overlay import Overlay, lay_over, only_the_file
from gateway.config.problems import BadConfig, Problem, SourcePlace, dotted, parse_path
from gateway.config.schema_info import SchemaInfo
from gateway.config.sources import DOTENV, YAML, Sources, misspelt, read_dotenv, settings
from gateway.config.validation_messages import explained
from gateway.config.yaml_nodes import TWICE, Document, NotYaml, read_yaml
from gateway.home import is_open


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration that can be used. `variables`: the environment, with `.env` below it."""

    config: Config
    warnings: tuple[Problem, ...]
    variables: Mapping[str, str] = field(repr=False)
    overlay: Overlay = field(repr=False)

    def origin(self, path: str) -> str:
        """Where the value of a key such as `api.port` comes from: file and line, environment and name, .env, or default."""
        parsed = parse_path(path)
        if not self.overlay.has(parsed):
            return "default"
        place = self.overlay.place(parsed)
        return DOTENV if place.source == DOTENV else str(replace(place, column=0))


def load(home: File, environ: Mapping[str, str]) -> Loaded:
    """Raises BadConfig with everything that is wrong. A home without files is a good configuration."""
    return load_sources(home, Sources.of(home, environ))


def load_sources(home: File, sources: Sources) -> Loaded:
    """As `load`, of what was read from the home already."""
    loaded = read(sources)
    return replace(loaded, warnings=(*_of_the_home(home), *loaded.warnings))


def _of_the_home(home: File) -> Iterator[Problem]:
    if is_open(home):
        said = "others on this machine can look into it"
        yield Problem(place=SourcePlace(source=str(home)), path="", said=said, hint=f"chmod 700 {home}")


def read(sources: Sources) -> Loaded:
    """As `load`, of texts that are already read. Nothing is written anywhere."""
    unreadable = [*sources.problems, *read_dotenv(sources.dotenv)[1]]
    try:
        document = read_yaml(sources.yaml, YAML)
    except NotYaml as error:
        raise _bad([*unreadable, error.problem]) from None
    schema = schema_of(document, sources)
    masked = Masked(sources.yaml, document, schema)
    if not isinstance(document.data, dict | None):
        raise _bad([*unreadable, _no_mapping(document)], masked)
    overlay = lay_over(sources, document, schema)
    config, wrong = _validated(overlay, schema)
    wrong += _hidden(sources, document, schema, wrong)
    problems = [*unreadable, *document.problems, *overlay.problems]
    problems += _untold(wrong, [one for one in problems if one.said != TWICE])
    if not sources.problems:  # nothing is missing from what could not be read
        problems += _untold((_located(finding, overlay) for finding in rules.broken(config)), problems)
    warnings = [*(_located(finding, overlay) for finding in rules.doubtful(config)), *misspelt(sources, schema.names)]
    if problems:
        raise _bad(problems, masked, warnings)
    variables = sources.variables()
    return Loaded(config=config, warnings=masked.shown(warnings), variables=variables, overlay=overlay)


def schema_of(document: Document, sources: Sources) -> SchemaInfo:
    """What may be written: the sections of other packages' platforms count where they are named."""
    section: object = cast(dict[str, Any], document.data).get("platforms") if isinstance(document.data, dict) else None
    named = set(cast(dict[str, Any], section)) if isinstance(section, dict) else set[str]()
    named |= {setting.path[1] for setting in settings(sources) if setting.path[0] == "platforms"}
    return SchemaInfo(config_model(frozenset(named)))


def _no_mapping(document: Document) -> Problem:
    what = "a list" if isinstance(document.data, list) else "a single value"
    said = f"this file is {what}"
    return Problem(place=document.places[()], path="", said=said, hint="begin with a section such as  model:")


def _bad(problems: list[Problem], masked: Masked | None = None, warnings: Iterable[Problem] = ()) -> BadConfig:
    by_place = sorted(problems, key=lambda problem: (problem.place.source, problem.place.line, problem.place.column))
    return BadConfig(masked.shown(by_place), masked.shown(warnings)) if masked else BadConfig(by_place)


def _untold(found: Iterable[Problem], known: list[Problem]) -> list[Problem]:
    """One word for each key: what is missing because it, or what it is in, is wrong, is not missing as well."""
    told = [problem.path for problem in known]
    return [
        problem for problem in found if not any(re.match(rf"{re.escape(path)}($|[.\[])", problem.path) for path in told)
    ]


def _located(finding: rules.Finding, overlay: Overlay) -> Problem:
    """A finding about a missing key points to the section that it is missing from."""
    place = overlay.place(finding.path) if overlay.has(finding.path) else overlay.key_place(finding.path)
    also = tuple(overlay.place(path) for path in finding.also)
    return Problem(place=place, path=dotted(finding.path), said=finding.said, hint=finding.hint, also=also)


def _validated(overlay: Overlay, schema: SchemaInfo) -> tuple[Config, list[Problem]]:
    """The configuration without what is wrong in it, so that the rules can still look at the rest."""
    model = cast(type[Config], schema.root)
    try:
        return model.model_validate(overlay.data), []
    except ValidationError as error:
        wrong = error.errors(include_url=False)
    for one in wrong:
        _drop(overlay.data, one["loc"], schema)
    return model.model_validate(overlay.data), [explained(one, overlay, schema) for one in wrong]


def _hidden(sources: Sources, document: Document, schema: SchemaInfo, known: list[Problem]) -> list[Problem]:
    """Mistakes of the file in keys that a variable replaces: without the variable, the file would be refused."""
    if not settings(sources):
        return []
    told = {(problem.place, problem.path) for problem in known}
    _, wrong = _validated(only_the_file(document, schema), schema)
    return [problem for problem in wrong if (problem.place, problem.path) not in told]


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
