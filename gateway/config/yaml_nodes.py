"""Reads `config.yaml` as plain data, with the line and column of every key and value, and of what cannot be read.

ruamel.yaml composes the nodes. It reads YAML 1.2: `no` and `10:30` are texts, and `010` is ten.
"""

import re
from dataclasses import dataclass
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode

from gateway.config.problems import Path, Problem, SourcePlace, dotted

TWICE = "written twice"
_TAG = "tag:yaml.org,2002:"
_TEXT = {_TAG + name for name in ("str", "timestamp", "value")}  # a date is meant as it is written


class NotYaml(Exception):
    """The text cannot be read at all."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.said)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`places` of the values and `keys` of the keys, by path. `problems`: what is wrong, although the rest could be read."""

    data: Any
    places: dict[Path, SourcePlace]
    keys: dict[Path, SourcePlace]
    problems: list[Problem]

    def place(self, path: Path) -> SourcePlace:
        """Where the value at `path` was written, or what is around it."""
        return self.places[self._written(path)]

    def key_place(self, path: Path) -> SourcePlace:
        """The same for the key."""
        found = self._written(path)
        return self.keys.get(found) or self.places[found]

    def value(self, path: Path) -> Any:
        """None where nothing is written."""
        found = self.data
        for part in path if path in self.places else ():
            found = found[part]
        return found if path in self.places else None

    def _written(self, path: Path) -> Path:
        return next(path[:end] for end in range(len(path), -1, -1) if path[:end] in self.places)


class _Reader:
    """Turns composed nodes into plain data and notes where they stand."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.places: dict[Path, SourcePlace] = {}
        self.keys: dict[Path, SourcePlace] = {}
        self.problems: list[Problem] = []

    def value(self, node: Any, path: Path = (), around: tuple[int, ...] = ()) -> Any:
        self.places[path] = self._place(node)
        if id(node) in around:
            return self._problem(node, path, "contains itself", "write it out instead of the alias")
        around = (*around, id(node))
        match node:
            case MappingNode():
                return self._mapping(node, path, around)
            case SequenceNode():
                items = enumerate(cast(list[Any], node.value))
                return [self.value(child, (*path, at), around) for at, child in items]
            case _:
                return self._scalar(node, path)

    def _mapping(self, node: Any, path: Path, around: tuple[int, ...]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        # Kept apart, because a key of the mapping itself wins wherever << stands.
        merged: dict[str, Any] = {}
        for key, value in cast(list[tuple[Any, Any]], node.value):
            name, here = str(key.value), (*path, str(key.value))
            if key.id != "scalar":
                self._problem(key, path, "a key must be a word", "take the brackets away")
                continue
            if name == "<<" and not key.style:  # <<: *name  and  <<: [*one, *two], of which the first wins
                for other in reversed(cast(list[Any], value.value) if isinstance(value, SequenceNode) else [value]):
                    if isinstance(other, MappingNode):
                        merged |= self._mapping(other, path, around)
                    else:
                        self._problem(other, path, "<< takes a mapping", "name the anchor of a mapping")
                continue
            if name in entries:
                self._problem(key, here, TWICE, f"first on line {self.keys[here].line}; keep one")
            self.keys[here] = self._place(key)
            entries[name] = self.value(value, here, around)
        return merged | entries

    def _scalar(self, node: Any, path: Path) -> Any:
        tag, text = str(node.tag), cast(str, node.value)
        try:
            match tag.removeprefix(_TAG):
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return int(text.replace("_", ""), 0 if re.match(r"[-+]?0[xo]", text) else 10)
                case "float":
                    return float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", text.replace("_", "").lower()))
                case _:
                    if tag not in _TEXT:
                        self._problem(node, path, "begins with a tag that is not known here", "write it in quotes")
                    return text
        except ValueError:
            return text

    def _place(self, node: Any) -> SourcePlace:
        return SourcePlace(source=self._source, line=node.start_mark.line + 1, column=node.start_mark.column + 1)

    def _problem(self, node: Any, path: Path, said: str, hint: str) -> None:
        self.problems.append(Problem(place=self._place(node), path=dotted(path), said=said, hint=hint))


def read_yaml(text: str, source: str = "") -> Document:
    """Raises NotYaml. Keys that are written twice and the like are in `problems`, and the rest is still read."""
    reader = _Reader(source)
    try:
        node: Any = cast(Any, YAML(typ="rt", pure=True)).compose(text)
        data: Any = {} if node is None else reader.value(node)
    except YAMLError as error:
        raise NotYaml(_syntax_problem(error, text, source)) from None
    except RecursionError:
        deep = Problem(place=SourcePlace(source=source), path="", said="is nested too deeply", hint="")
        raise NotYaml(deep) from None
    reader.places[()] = SourcePlace(source=source, line=1, column=1)
    return Document(data=data, places=reader.places, keys=reader.keys, problems=reader.problems)


def _syntax_problem(error: YAMLError, text: str, source: str) -> Problem:
    marked: Any = error  # its fields have no types
    line, column, why = 0, 0, str(error).partition("\n")[0]
    if isinstance(error, MarkedYAMLError):
        marks = [mark for mark in (marked.problem_mark, marked.context_mark) if mark is not None]
        if marks:  # what is never closed begins at the context
            mark = marks[-1 if "end of stream" in str(error) else 0]
            line, column = mark.line + 1, mark.column + 1
        why = str(marked.problem or marked.context or why)
    elif (at := getattr(error, "position", None)) is not None:  # a character that YAML forbids
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        why = str(getattr(error, "reason", why))
    why = re.sub(r" '[^']*'", "", why.removeprefix("but "))  # what is named may be a password that begins with *
    place = SourcePlace(source=source, line=line, column=column)
    return Problem(place=place, path="", said=f"this is no YAML: {why}", hint=_syntax_hint(why, text, place))


def _syntax_hint(why: str, text: str, place: SourcePlace) -> str:
    line = dict(enumerate(text.splitlines(), 1)).get(place.line, "")
    if "\t" in line[: place.column]:
        return "YAML wants spaces here, not tabs"
    if "mapping values are not allowed" in why:
        return "a text with a colon needs quotes; or the line above ends too early"
    if "another document" in why:
        return "one document only: take out the line ---"
    return "check quotes, brackets and the indentation here and on the line above"
