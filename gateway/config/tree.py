"""The nodes of the file with the environment laid over them and every `${NAME}` resolved."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from gateway.config.keys import from_text, takes
from gateway.config.marks import Entry, Node, locate
from gateway.config.problems import Path, Place, Problem, dotted
from gateway.config.sources import DOTENV, PREFIX, REFERENCE, Setting, Sources, lookup, settings

_UNSET = Node(data=None, place=Place(source=""))
_BROKEN = re.compile(r"(?<!\$)\$\{(?![A-Za-z_][A-Za-z0-9_.-]*\})[^}\s]{0,40}\}?")


class Tree:
    """`root` is what is checked; `problems` are the references that lead nowhere. Without `references` they are left out of it."""

    def __init__(self, sources: Sources, root: Node, *, references: bool = True) -> None:
        self.problems: list[Problem] = []
        self._sources = sources
        self._references = references
        self._variables = sources.variables()
        self.root = replace(root, data={}) if root.data is None else root
        for setting in settings(sources):
            self._lay_over(setting)
        self._file = self.root  # references are looked up in what was written
        self.root = self._resolved(self.root, ())

    def _lay_over(self, setting: Setting) -> None:
        path = tuple(setting.name.removeprefix(PREFIX).lower().split("__"))
        value = _node(from_text(setting.value, takes(path)), setting.place)
        self.root = _with(self.root, path, value)

    def _resolved(self, node: Node, path: Path) -> Node:
        match node.data:
            case dict() as entries:
                return replace(node, data=dict(self._entries(entries, path)))
            case list() as items:
                children = (self._resolved(item, (*path, index)) for index, item in enumerate(items))
                return replace(node, data=[child for child in children if child is not _UNSET])
            case str() as text if "${" in text:
                return self._text(node, text, path)
            case None if (wanted := takes(path)) and (wanted.section or wanted.is_mapping or wanted.is_list):
                return replace(node, data=[] if wanted.is_list else {})  # a section whose keys are all commented out
            case _:
                return node

    def _entries(self, entries: Mapping[str, Entry], path: Path) -> Iterator[tuple[str, Entry]]:
        for name, entry in entries.items():
            value = self._resolved(entry.value, (*path, name))
            if value is not _UNSET:
                yield name, replace(entry, value=value)

    def _text(self, node: Node, text: str, path: Path) -> Node:
        if not self._references:
            return _UNSET
        used = self._in_use(path)
        for name in REFERENCE.findall(text):
            if not lookup(self._sources, self._variables, name):
                if used:
                    self._unset(node, path, name)
                return _UNSET
        if used and (broken := _BROKEN.search(text)):
            self._found(node, path, f"{broken[0]} is no reference", "write ${NAME}; $${ is a plain ${")
        value = REFERENCE.sub(lambda match: lookup(self._sources, self._variables, match[1]) or "", text)
        return replace(node, data=from_text(value.replace("$${", "${"), takes(path)))

    def _unset(self, node: Node, path: Path, name: str) -> None:
        empty = lookup(self._sources, self._variables, name) is not None
        said = f"${{{name}}} is set, but empty" if empty else f"${{{name}}} is set nowhere"
        self._found(node, path, said, f"put {name}=... into {DOTENV} in the home, or take this key out")

    def _in_use(self, path: Path) -> bool:
        """Whether the section of this key is switched on. What is off may point to what is not there."""
        match path:
            case ("platforms", name, *_):
                node, _, exact = locate(self._file, ("platforms", name, "enabled"))
                return exact and self._is_true(node)
            case ("model", *_):
                return self._has_text(("model", "name"))
            case ("voice", *_):
                return self._has_text(("voice", "base_url"))
            case _:
                return True

    def _is_true(self, node: Node) -> bool:
        if not isinstance(node.data, str):
            return node.data is True
        text = REFERENCE.sub(lambda match: lookup(self._sources, self._variables, match[1]) or "", node.data)
        return from_text(text, takes(("memory", "enabled"))) is True

    def _has_text(self, path: Path) -> bool:
        node, _, exact = locate(self._file, path)
        return exact and bool(node.data)

    def _found(self, node: Node, path: Path, said: str, hint: str) -> None:
        self.problems.append(Problem(place=node.place, path=dotted(path), said=said, hint=hint))


def _node(value: Any, place: Place) -> Node:
    if isinstance(value, dict):
        named = cast(dict[str, Any], value).items()
        return Node(data={key: Entry(key=place, value=_node(one, place)) for key, one in named}, place=place)
    if isinstance(value, list):
        return Node(data=[_node(one, place) for one in cast(list[Any], value)], place=place)
    return Node(data=value, place=place, raw=str(value))


def _with(node: Node, path: Path, value: Node) -> Node:
    if not path:
        return value
    entries = node.data if isinstance(node.data, dict) else {}
    name = str(path[0])
    inner = entries[name].value if name in entries else Node(data={}, place=value.place)
    key = entries[name].key if name in entries and len(path) > 1 else value.place
    return replace(node, data={**entries, name: Entry(key=key, value=_with(inner, path[1:], value))})
