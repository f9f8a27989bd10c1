"""YAML as data that still knows where it was written. Everything that is wrong with a file is told by line and column."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import yaml
from yaml.constructor import SafeConstructor

from gateway.config.problems import Path, Place, Problem, dotted

Scalar = str | int | float | bool | None

TWICE = "written twice"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_TYPED = {_TAG + name for name in ("int", "float", "bool", "null")}
_OCTAL = re.compile(r"[-+]?0[0-9_]*[1-9]")
_TEXT = {_TAG + name for name in ("str", "timestamp", "value")}  # a date is meant as it is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value and where it begins and ends. `raw` is a scalar as it was written; `plain`: without quotes."""

    data: "Scalar | dict[str, Entry] | list[Node]"
    place: Place
    end: tuple[int, int] = (0, 0)
    raw: str | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A value of a mapping, with the place of its key."""

    key: Place
    value: Node
    key_end: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    root: Node
    problems: list[Problem] = field(default_factory=list[Problem])


class NotYaml(Exception):
    """The text cannot be read at all."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.said)
        self.problem = problem


def read_yaml(text: str, source: str) -> Document:
    """Raises NotYaml. Keys that are written twice and the like are in `problems`, and the rest is still read."""
    try:
        node = _compose(text)
        if node is None:
            return Document(root=Node(data={}, place=Place(source=source, line=1, column=1)))
        reader = _Reader(source)
        return Document(root=reader.node(node, ()), problems=reader.problems)
    except yaml.YAMLError as error:
        raise NotYaml(_syntax(error, text, source)) from None
    except RecursionError:
        raise NotYaml(Problem(place=Place(source=source), path="", said="is nested too deeply", hint="")) from None


def _compose(text: str) -> Any:
    loader = _LOADER(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _syntax(error: yaml.YAMLError, text: str, source: str) -> Problem:
    marks = [getattr(error, name, None) for name in ("problem_mark", "context_mark")]
    if "end of stream" in str(error):  # what is never closed begins at the context
        marks.reverse()
    mark = marks[0] or marks[1]
    place = Place(source=source)
    if mark is not None:
        place = Place(source=source, line=mark.line + 1, column=mark.column + 1)
    elif (at := getattr(error, "position", None)) is not None:  # a character that YAML forbids
        before = text[:at]
        place = Place(source=source, line=before.count("\n") + 1, column=at - (before.rfind("\n") + 1) + 1)
    why = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read")
    why = why.removeprefix("but ")
    why = re.sub(r" '[^']{4,}'", "", why)  # the name of an alias may be a password that begins with *
    return Problem(place=place, path="", said=f"this is no YAML: {why}", hint=_syntax_hint(why, text, place))


def _syntax_hint(why: str, text: str, place: Place) -> str:
    lines = text.splitlines()
    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    if "\t" in line[: place.column]:
        return "YAML wants spaces here, not tabs"
    if "mapping values are not allowed" in why:
        return "a text with a colon needs quotes; or the line above ends too early"
    if "another document" in why:
        return "one document only: take out the line ---"
    return "check quotes, brackets and the indentation here and on the line above"


class _Reader:
    """Turns composed nodes into ours."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self._typed: Any = SafeConstructor()
        self._open: list[int] = []

    def node(self, node: Any, path: Path) -> Node:
        if id(node) in self._open:
            self._found(node, path, "contains itself", "write it out instead of the alias")
            return Node(data=None, place=self._place(node))
        self._open.append(id(node))
        try:
            return Node(data=self._data(node, path), **self._around(node))
        finally:
            self._open.pop()

    def _around(self, node: Any) -> dict[str, Any]:
        scalar = isinstance(node, yaml.ScalarNode)
        return {
            "place": self._place(node),
            "end": (node.end_mark.line + 1, node.end_mark.column + 1),
            "raw": cast(str, node.value) if scalar else None,
            "plain": scalar and not node.style,
        }

    def _data(self, node: Any, path: Path) -> Scalar | dict[str, Entry] | list[Node]:
        match node:
            case yaml.MappingNode():
                return self._mapping(node, path)
            case yaml.SequenceNode():
                return [self.node(child, (*path, index)) for index, child in enumerate(cast(list[Any], node.value))]
            case _:
                return self._scalar(node, path)

    def _scalar(self, node: Any, path: Path) -> Scalar:
        if node.tag in _TYPED:
            try:
                value = cast(Scalar, self._typed.construct_object(node))
            except ValueError:
                return cast(str, node.value)
            self._look_at_number(node, path, value)
            return value
        if node.tag not in _TEXT:
            self._found(node, path, "begins with a tag that is not known here", "write it in quotes")
        return cast(str, node.value)

    def _look_at_number(self, node: Any, path: Path, value: Scalar) -> None:
        """`10:30` is 630 to YAML and `010` is 8. Both are in range somewhere, so nobody else would notice."""
        raw = cast(str, node.value)
        if node.tag in {_TAG + "int", _TAG + "float"} and (
            ":" in raw or (node.tag == _TAG + "int" and _OCTAL.match(raw))
        ):
            said = f"got {raw}, which YAML reads as the number {value}"
            self._found(node, path, said, f'write {value}, or "{raw}" in quotes if it is a text')

    def _mapping(self, node: Any, path: Path) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key, value in cast(list[tuple[Any, Any]], node.value):
            if not isinstance(key, yaml.ScalarNode):
                self._found(key, path, "a key must be a word", "take the brackets away")
            elif key.tag == _TAG + "merge":
                merged |= self._merged(value, path)
            else:
                self._entry(entries, key, value, path)
        return merged | entries

    def _entry(self, entries: dict[str, Entry], key: Any, value: Any, path: Path) -> None:
        name = cast(str, key.value)
        here = (*path, name)
        if name in entries:
            first = entries[name].key
            self._found(key, here, TWICE, f"first on line {first.line}; keep one")
        end = (key.end_mark.line + 1, key.end_mark.column + 1)
        entries[name] = Entry(key=self._place(key), value=self.node(value, here), key_end=end)

    def _merged(self, value: Any, path: Path) -> dict[str, Entry]:
        """`<<: *name` and `<<: [*one, *two]`, of which the first wins."""
        entries: dict[str, Entry] = {}
        for source in reversed(list(value.value) if isinstance(value, yaml.SequenceNode) else [value]):
            data = self.node(source, path).data
            if isinstance(data, dict):
                entries |= data
            else:
                self._found(source, path, "<< takes a mapping", "name the anchor of a mapping")
        return entries

    def _place(self, node: Any) -> Place:
        return Place(source=self.source, line=node.start_mark.line + 1, column=node.start_mark.column + 1)

    def _found(self, node: Any, path: Path, said: str, hint: str) -> None:
        self.problems.append(Problem(place=self._place(node), path=dotted(path), said=said, hint=hint))


def locate(root: Node, path: Path) -> tuple[Node, Place | None, bool]:
    """The node at `path`, or the nearest one around it; the place of its key; and whether it is the very one."""
    node, key = root, None
    for part in path:
        match node.data:
            case dict() as entries if str(part) in entries:
                entry = entries[str(part)]
                node, key = entry.value, entry.key
            case list() as items if isinstance(part, int) and part < len(items):
                node, key = items[part], None
            case _:
                return node, key, False
    return node, key, True


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Entry]]:
    """Every entry of every mapping."""
    match node.data:
        case dict() as entries:
            for name, entry in entries.items():
                yield (*path, name), entry
                yield from walk(entry.value, (*path, name))
        case list() as items:
            for index, item in enumerate(items):
                yield from walk(item, (*path, index))
        case _:
            return


def scalars(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    match node.data:
        case dict() as entries:
            for name, entry in entries.items():
                yield from scalars(entry.value, (*path, name))
        case list() as items:
            for index, item in enumerate(items):
                yield from scalars(item, (*path, index))
        case _:
            yield path, node
