"""Reading the configuration: environment over `.env` over `config.yaml` over defaults.

The merge is done here over nodes with marks, not by a settings library: those merge plain data, and whoever has lost the marks
cannot say line and column any more.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any

from pydantic import ValidationError

from gateway.config import rules
from gateway.config.excerpts import Masked
from gateway.config.explain import explained
from gateway.config.keys import is_section, plain
from gateway.config.marks import TWICE, Node, NotYaml, locate, read_yaml
from gateway.config.model import Config
from gateway.config.problems import BadConfig, Place, Problem, dotted, parse_path
from gateway.config.sources import DOTENV, YAML, Sources, misspelt, read_dotenv, settings
from gateway.config.tree import Tree
from gateway.home import is_open


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration that can be used. `variables`: the environment, with `.env` below it."""

    config: Config
    warnings: tuple[Problem, ...]
    variables: Mapping[str, str] = field(repr=False)
    root: Node = field(repr=False)

    def origin(self, path: str) -> str:
        """Where the value of a key such as `api.port` comes from: file and line, environment and name, .env, or default."""
        node, _, exact = locate(self.root, parse_path(path))
        if not exact:
            return "default"
        return DOTENV if node.place.source == DOTENV else str(replace(node.place, column=0))


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
        yield Problem(place=Place(source=str(home)), path="", said=said, hint=f"chmod 700 {home}")


def read(sources: Sources) -> Loaded:
    """As `load`, of texts that are already read. Nothing is written anywhere."""
    unreadable = [*sources.problems, *read_dotenv(sources.dotenv)[1]]
    try:
        document = read_yaml(sources.yaml, YAML)
    except NotYaml as error:
        raise _bad([*unreadable, error.problem], (), Masked.of_text(sources.yaml)) from None
    masked = Masked(sources.yaml, document.root)
    if not isinstance(document.root.data, dict | None):
        raise _bad([*unreadable, _no_mapping(document.root)], (), masked)
    tree = Tree(sources, document.root)
    config, wrong = _checked(tree.root)
    wrong += _hidden(sources, document.root, wrong)
    surprises = _with_limits(document.problems, wrong)
    told = [*(one for one in surprises if one.said != TWICE), *tree.problems]
    told += _untold(wrong, told)
    if not sources.problems:  # nothing is missing from what could not be read
        told += _untold((_located(finding, tree.root) for finding in rules.broken(config)), told)
    problems = [*unreadable, *(one for one in surprises if one.said == TWICE), *told]
    warnings = [_located(finding, tree.root) for finding in rules.doubtful(config)]
    warnings += misspelt(sources, Config.model_fields)
    if problems:
        raise _bad(problems, warnings, masked)
    return Loaded(config=config, warnings=masked.shown(warnings), variables=sources.variables(), root=tree.root)


def _no_mapping(root: Node) -> Problem:
    what = "a list" if isinstance(root.data, list) else "a single value"
    return Problem(place=root.place, path="", said=f"this file is {what}", hint="begin with a section such as  model:")


def _bad(problems: list[Problem], warnings: Sequence[Problem], masked: Masked) -> BadConfig:
    by_place = sorted(problems, key=lambda problem: (problem.place.source, problem.place.line, problem.place.column))
    return BadConfig(masked.shown(by_place), masked.shown(warnings))


def _untold(found: Iterable[Problem], known: list[Problem]) -> list[Problem]:
    """One word for each key: what is missing because it, or what it is in, is wrong, is not missing as well."""
    told = [problem.path for problem in known]
    return [
        problem for problem in found if not any(re.match(rf"{re.escape(path)}($|[.\[])", problem.path) for path in told)
    ]


def _with_limits(surprises: list[Problem], wrong: list[Problem]) -> list[Problem]:
    """`10:30` for an hour is told once: what YAML made of it, and what is allowed."""
    hints = {problem.path: problem.hint for problem in wrong}
    return [
        replace(one, hint=hints.get(one.path, one.hint)) if one.said.startswith("got ") else one for one in surprises
    ]


def _located(finding: rules.Finding, root: Node) -> Problem:
    """A finding about a missing key points to the section that it is missing from."""
    node, key, exact = locate(root, finding.path)
    place = node.place if exact or key is None else key
    also = tuple(locate(root, path)[0].place for path in finding.also)
    return Problem(place=place, path=dotted(finding.path), said=finding.said, hint=finding.hint, also=also)


def _checked(root: Node) -> tuple[Config, list[Problem]]:
    """The configuration without what is wrong in it, so that the rules can still look at the rest."""
    data = plain(root)
    try:
        return Config.model_validate(data), []
    except ValidationError as error:
        wrong = error.errors(include_url=False)
    for one in wrong:
        _drop(data, one["loc"])
    return Config.model_validate(data), [explained(one, root) for one in wrong]


def _hidden(sources: Sources, root: Node, known: list[Problem]) -> list[Problem]:
    """Mistakes of the file in keys that a variable replaces: without the variable, the file would be refused."""
    if not settings(sources):
        return []
    alone = Tree(replace(sources, environ={}, dotenv=""), root, references=False)
    told = {(problem.place, problem.path) for problem in known}
    return [problem for problem in _checked(alone.root)[1] if (problem.place, problem.path) not in told]


def _drop(data: Any, location: tuple[str | int, ...]) -> None:
    """Take out the last named key on the way to what is wrong, so that indices of lists stay what they are."""
    path = [part for part in location if part != "[key]"]
    broken_item = isinstance(path[-1], int) and is_section(tuple(path))
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
