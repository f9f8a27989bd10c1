"""Reads `config.yaml` as plain data, with the line and column of every key and value, and of what cannot be read.

ruamel.yaml composes the nodes. It reads YAML 1.2: `no` and `10:30` are texts, and `010` is ten.
"""

import re
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode

from gateway.config.problems import BadConfig, KeyPath, Problem, SourcePlace

_TEXT = {"str", "timestamp", "value"}  # a date is meant as it is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`places` of the values by path. `problems`: what is wrong, although the rest could be read."""

    data: Any
    places: dict[KeyPath, SourcePlace]
    problems: list[Problem]

    def place(self, path: KeyPath, *, of_key: bool = False) -> SourcePlace:
        """Where the value at `path`, or its key, was written; the key around it where nothing was."""
        found = self.written(path)
        place = self.places[found]
        return place if found == path and not of_key else place.key or place

    def problem(
        self, path: KeyPath, said: str, hint: str, suggestion: str | None = None, *, of_key: bool = False
    ) -> Problem:
        """A problem of the value at `path`, or of its key."""
        return Problem(place=self.place(path, of_key=of_key), at=path, said=said, hint=hint, suggestion=suggestion)

    def value(self, path: KeyPath) -> Any:
        """None where nothing is written."""
        return reduce(getitem, path, self.data) if path in self.places else None

    def written(self, path: KeyPath) -> KeyPath:
        """The longest part of the path at which something is written."""
        return next((path[:end] for end in range(len(path), 0, -1) if path[:end] in self.places), ())


class _Reader:
    """Turns composed nodes into plain data and notes where they stand."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.yaml = cast(Any, YAML(typ="safe", pure=True))
        self.places: dict[KeyPath, SourcePlace] = {}
        self.problems: list[Problem] = []

    def value(self, node: Any, path: KeyPath = (), around: tuple[int, ...] = (), key: Any = None) -> Any:
        self.places[path] = self._place(node, key)
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
                kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
                if kind in {"null", "bool", "int", "float"}:
                    try:
                        return self.yaml.constructor.construct_object(node)
                    except (ValueError, KeyError):  # !!int x
                        return node.value
                if kind not in _TEXT:
                    self._problem(node, path, "begins with a tag that is not known here", "write it in quotes")
                return node.value

    def _mapping(self, node: Any, path: KeyPath, around: tuple[int, ...]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        # Kept apart, because a key of the mapping itself wins wherever << stands.
        merged: dict[str, Any] = {}
        for key, value in cast(list[tuple[Any, Any]], node.value):
            name, here = str(key.value), (*path, str(key.value))
            if key.id != "scalar":
                self._problem(key, path, "a key must be a word", "take the brackets away")
            elif name == "<<" and not key.style:  # <<: *name  and  <<: [*one, *two], of which the first wins
                for other in reversed(cast(list[Any], value.value) if isinstance(value, SequenceNode) else [value]):
                    if isinstance(other, MappingNode):
                        merged |= self._mapping(other, path, around)
                    else:
                        self._problem(other, path, "<< takes a mapping", "name the anchor of a mapping")
            else:
                if name in entries:
                    first = cast(SourcePlace, self.places[here].key)
                    self._problem(key, here, "written twice", f"first on line {first.line}; keep one")
                entries[name] = self.value(value, here, around, key)
        return merged | entries

    def _place(self, node: Any, key: Any = None) -> SourcePlace:
        start, last = node.start_mark, _end(node)
        line, column, span = start.line + 1, start.column + 1, (start.index, last.index)
        if key is None:
            return SourcePlace(source=self._source, line=line, column=column, span=span)
        if start.index == last.index:  # empty: the library says where the next token begins
            line, column = key.end_mark.line + 1, key.end_mark.column + 2
            span = (key.end_mark.index + 1, key.end_mark.index + 1)
        return SourcePlace(source=self._source, line=line, column=column, span=span, key=self._place(key))

    def _problem(self, node: Any, path: KeyPath, said: str, hint: str) -> None:
        self.problems.append(Problem(place=self._place(node), at=path, said=said, hint=hint))


def _end(node: Any) -> Any:
    """Where the text of a node ends; the library counts comments and blank lines below a block to it."""
    last, seen = node, set[int]()
    while last.id != "scalar" and not last.flow_style and last.value and id(last) not in seen:
        seen.add(id(last))  # an alias may lead back to what it stands in
        last = last.value[-1][1] if last.id == "mapping" else last.value[-1]
    return last.end_mark


def read_yaml(text: str, source: str = "") -> Document:
    """Raises BadConfig where it is no YAML. Keys that are written twice and the like are in `problems`, and the rest is still read."""
    reader = _Reader(source)
    try:
        node: Any = reader.yaml.compose(text)
        data: Any = {} if node is None else reader.value(node)
    except YAMLError as error:
        raise BadConfig([_syntax_problem(error, text, source)]) from None
    except RecursionError:
        raise BadConfig([Problem(place=SourcePlace(source=source), said="is nested too deeply", hint="")]) from None
    span = reader.places[()].span if node is not None else (len(text), len(text))
    reader.places[()] = SourcePlace(source=source, line=1, column=1, span=span)
    return Document(data=data, places=reader.places, problems=reader.problems)


def _syntax_problem(error: YAMLError, text: str, source: str) -> Problem:
    found: Any = error  # its fields have no types
    if isinstance(error, MarkedYAMLError):
        marks = [mark for mark in (found.problem_mark, found.context_mark) if mark is not None]
        # What is never closed begins at the context.
        at, why = marks[-1 if "end of stream" in str(error) else 0].index, str(found.problem or found.context)
    else:  # a character that YAML forbids
        at, why = found.position, str(found.reason)
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    why = re.sub(r" '[^']*'", "", why.removeprefix("but "))  # what is named may be a password that begins with *
    place = SourcePlace(source=source, line=line, column=column)
    return Problem(place=place, said=f"this is no YAML: {why}", hint=_syntax_hint(why, text, place))


def _syntax_hint(why: str, text: str, place: SourcePlace) -> str:
    line = dict(enumerate(text.splitlines(), 1)).get(place.line, "")
    if "\t" in line[: place.column]:
        return "YAML wants spaces here, not tabs"
    if "mapping values are not allowed" in why:
        return "a text with a colon needs quotes; or the line above ends too early"
    if "another document" in why:
        return "one document only: take out the line ---"
    return "check quotes, brackets and the indentation here and on the line above"
