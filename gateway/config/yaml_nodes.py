"""`config.yaml` as plain data, with the place of every key and value. What cannot be read is told by line and column.

ruamel.yaml composes the nodes. It reads YAML 1.2: `no` and `10:30` are texts, and `010` is ten.
"""

import re
from dataclasses import dataclass, field
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode

from gateway.config.problems import Path, Problem, SourcePlace, dotted

TWICE = "written twice"
_TAG = "tag:yaml.org,2002:"
_TEXT = {_TAG + name for name in ("str", "timestamp", "value")}  # a date is meant as it is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`places` of the values and `keys` of the keys, by path. `problems`: what is wrong, although the rest could be read."""

    data: Any = None
    places: dict[Path, SourcePlace] = field(default_factory=dict[Path, SourcePlace])
    keys: dict[Path, SourcePlace] = field(default_factory=dict[Path, SourcePlace])
    problems: list[Problem] = field(default_factory=list[Problem])

    def value(self, path: Path) -> Any:
        """None where nothing is written."""
        found = self.data
        for part in path if path in self.places else ():
            found = found[part]
        return found if path in self.places else None


class NotYaml(Exception):
    """The text cannot be read at all."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.said)
        self.problem = problem


def read_yaml(text: str, source: str) -> Document:
    """Raises NotYaml. Keys that are written twice and the like are in `problems`, and the rest is still read."""
    reader = _Reader(source)
    try:
        node: Any = cast(Any, YAML(typ="rt", pure=True)).compose(text)
        return reader.document(node)
    except YAMLError as error:
        raise NotYaml(_syntax_problem(error, text, source)) from None
    except RecursionError:
        raise NotYaml(
            Problem(place=SourcePlace(source=source), path="", said="is nested too deeply", hint="")
        ) from None


def _syntax_problem(error: YAMLError, text: str, source: str) -> Problem:
    place, why = SourcePlace(source=source), str(error).partition("\n")[0]
    if isinstance(error, MarkedYAMLError):
        marked: Any = error  # its fields have no types
        marks = [marked.problem_mark, marked.context_mark]
        if "end of stream" in str(error):  # what is never closed begins at the context
            marks.reverse()
        mark = next((mark for mark in marks if mark is not None), None)
        place = _place(source, mark) if mark is not None else place
        why = str(marked.problem or marked.context or why)
    elif (at := getattr(error, "position", None)) is not None:  # a character that YAML forbids
        before = text[:at]
        place = SourcePlace(source=source, line=before.count("\n") + 1, column=at - (before.rfind("\n") + 1) + 1)
        why = str(getattr(error, "reason", why))
    why = re.sub(r" '[^']*'", "", why.removeprefix("but "))  # what is named may be a password that begins with *
    return Problem(place=place, path="", said=f"this is no YAML: {why}", hint=_syntax_hint(why, text, place))


def _syntax_hint(why: str, text: str, place: SourcePlace) -> str:
    lines = text.splitlines()
    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    if "\t" in line[: place.column]:
        return "YAML wants spaces here, not tabs"
    if "mapping values are not allowed" in why:
        return "a text with a colon needs quotes; or the line above ends too early"
    if "another document" in why:
        return "one document only: take out the line ---"
    return "check quotes, brackets and the indentation here and on the line above"


def _place(source: str, mark: Any) -> SourcePlace:
    return SourcePlace(source=source, line=mark.line + 1, column=mark.column + 1)


class _Reader:
    """Turns composed nodes into plain data and notes where they stand."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found = Document()
        self._open: list[int] = []

    def document(self, node: Any) -> Document:
        self._found.places[()] = SourcePlace(source=self._source, line=1, column=1)
        data: Any = {} if node is None else self._value(node, ())
        return Document(data=data, places=self._found.places, keys=self._found.keys, problems=self._found.problems)

    def _value(self, node: Any, path: Path) -> Any:
        self._found.places[path] = _place(self._source, node.start_mark)
        if id(node) in self._open:
            return self._problem(node, path, "contains itself", "write it out instead of the alias")
        self._open.append(id(node))
        try:
            match node:
                case MappingNode():
                    return self._mapping(node, path)
                case SequenceNode():
                    return [self._value(child, (*path, at)) for at, child in enumerate(cast(list[Any], node.value))]
                case _:
                    return self._scalar(node, path)
        finally:
            self._open.pop()

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

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in cast(list[tuple[Any, Any]], node.value):
            if key.id != "scalar":
                self._problem(key, path, "a key must be a word", "take the brackets away")
            elif key.value == "<<" and not key.style:
                merged |= self._merged(value, path)
            else:
                self._entry(entries, key, value, path)
        return merged | entries

    def _entry(self, entries: dict[str, Any], key: Any, value: Any, path: Path) -> None:
        name = str(key.value)
        here = (*path, name)
        if name in entries:
            self._problem(key, here, TWICE, f"first on line {self._found.keys[here].line}; keep one")
        self._found.keys[here] = _place(self._source, key.start_mark)
        entries[name] = self._value(value, here)

    def _merged(self, value: Any, path: Path) -> dict[str, Any]:
        """`<<: *name` and `<<: [*one, *two]`, of which the first wins."""
        entries: dict[str, Any] = {}
        sources = cast(list[Any], value.value) if isinstance(value, SequenceNode) else [value]
        for source in reversed(sources):
            if isinstance(source, MappingNode):
                entries |= self._mapping(source, path)
            else:
                self._problem(source, path, "<< takes a mapping", "name the anchor of a mapping")
        return entries

    def _problem(self, node: Any, path: Path, said: str, hint: str) -> None:
        place = _place(self._source, node.start_mark)
        self._found.problems.append(Problem(place=place, path=dotted(path), said=said, hint=hint))
