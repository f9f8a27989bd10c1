"""What must not be shown of a configuration: values of secret keys, and what has the shape of a token."""

import re
from collections.abc import Iterable
from dataclasses import replace

from gateway.config.problems import Excerpt, Path, Problem, SourcePlace, dotted, nearest, parse_path
from gateway.config.schema_info import SchemaInfo
from gateway.config.sources import YAML
from gateway.config.yaml_nodes import Document

MASK = "****"
_WIDTH = 160
_SUSPICIOUS = re.compile(r"token|secret|key|passw|credential", re.IGNORECASE)
_ASSIGNED = re.compile(r"\w*(?:token|secret|key|passw)\w*[\"']?\s*[:=]", re.IGNORECASE)
_SHAPES = re.compile(r"\d{6,}:[\w-]{30,}|\b(?:sk|xox[a-z]|xapp|ghp)-[\w-]{10,}|\bEAA\w{20,}|(?<=://)[^/\s]+(?=@)")
_PLAIN_ENTRY = re.compile(r"\s*(?:- )?(?P<key>[A-Za-z_]+):\s+(?P<value>[^\s#{}\[\]&*|>][^#{}]*|\[[^#{}]*\])?\s*")


def without_secrets(text: str) -> str:
    """The text without what has the shape of a token; nothing of it, if something in it is named like one."""
    return MASK if _ASSIGNED.search(text) else without_tokens(text)


def without_tokens(text: str) -> str:
    """The text without tokens and without names and passwords in addresses."""
    return _SHAPES.sub(MASK, text)


def looks_secret(schema: SchemaInfo, path: Path) -> bool:
    """Whether the value of this key must not be shown; a misspelled or misplaced key counts by its name."""
    return any(_is_secret_name(schema, path[:end]) for end in range(1, len(path) + 1))


def _is_secret_name(schema: SchemaInfo, path: Path) -> bool:
    found = schema.takes(path)
    if found is not None:
        return found.secret
    name = str(path[-1])
    meant = nearest(name, schema.beside(path))
    similar = schema.takes((*path[:-1], meant)) if meant else None
    return bool(_SUSPICIOUS.search(name)) or (similar is not None and similar.secret)


def _is_known(schema: SchemaInfo, path: Path) -> bool:
    """A key of the schema, or one that is nearly so."""
    return schema.takes(path) is not None or nearest(str(path[-1]), schema.beside(path)) is not None


class Masked:
    """Shows problems: with the line of the file where that line holds one entry of a key that cannot be secret."""

    def __init__(self, text: str, document: Document, schema: SchemaInfo) -> None:
        self._lines = text.splitlines()
        self._schema = schema
        self._by_line = {place.line: path for path, place in document.keys.items()}

    def shown(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        return tuple(self._shown(problem) for problem in problems)

    def _shown(self, problem: Problem) -> Problem:
        excerpts = tuple(found for place in (*problem.also, problem.place) if (found := self._excerpt(place)))
        complete = excerpts and excerpts[-1].line == problem.place.line
        return replace(problem, excerpts=excerpts if complete else (), path=self._path(problem.path))

    def _path(self, text: str) -> str:
        """Without what slipped to where a key belongs."""
        path = parse_path(text)
        parts = [
            MASK
            if isinstance(part, str)
            and not re.fullmatch(r"[A-Za-z_]+", part)
            and not self._is_free(path[: end + 1])
            and not _is_known(self._schema, path[: end + 1])
            else part
            for end, part in enumerate(path)
        ]
        return dotted(tuple(parts))

    def _is_free(self, path: Path) -> bool:
        return self._schema.takes(path) is not None

    def _excerpt(self, place: SourcePlace) -> Excerpt | None:
        if place.source != YAML or not 0 < place.line <= len(self._lines):
            return None
        line, path = self._lines[place.line - 1], self._by_line.get(place.line)
        entry = _PLAIN_ENTRY.fullmatch(line)
        if path is None or entry is None or entry["key"] != path[-1] or len(line) > _WIDTH or not line.isprintable():
            return None
        if looks_secret(self._schema, path) or not _is_known(self._schema, path) or _SHAPES.search(line):
            return None
        if self._schema.is_section(path) and entry["value"]:
            return None
        return Excerpt(line=place.line, text=line, caret=max(place.column, 1) - 1)
