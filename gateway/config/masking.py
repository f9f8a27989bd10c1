"""Decides what of a configuration may be shown, and masks values of secret keys and what has the shape of a token."""

import re
from dataclasses import dataclass, replace

from pydantic import SecretStr

from gateway.config.problems import Path, Problem, SourcePlace, nearest
from gateway.config.schema_info import SchemaInfo, Takes
from gateway.config.sources import YAML

MASK = "****"
_WIDTH = 160
_SUSPICIOUS = re.compile(r"token|secret|key|passw|credential", re.IGNORECASE)
_ASSIGNED = re.compile(r"\w*(?:token|secret|key|passw)\w*[\"']?\s*[:=]", re.IGNORECASE)
_SHAPES = re.compile(r"\d{6,}:[\w-]{30,}|\b(?:sk|xox[a-z]|xapp|ghp)-[\w-]{10,}|\bEAA\w{20,}|(?<=://)[^/\s]+(?=@)")
_ENTRY = re.compile(r"\s*(?:- )?(?P<key>[A-Za-z_]+):\s+(?P<value>[^\s#{}\[\]&*|>][^#{}]*|\[[^#{}]*\])?\s*")


def without_secrets(text: str) -> str:
    """The text without what has the shape of a token; nothing of it, if something in it is named like one."""
    return MASK if _ASSIGNED.search(text) else without_tokens(text)


def without_tokens(text: str) -> str:
    """The text without tokens and without names and passwords in addresses."""
    return _SHAPES.sub(MASK, text)


def looks_secret(schema: SchemaInfo, path: Path) -> bool:
    """Whether the value of this key must not be shown; a misspelled or misplaced key counts by its name."""
    return any(_is_secret(schema, path[:end]) for end in range(1, len(path) + 1))


def _is_secret(schema: SchemaInfo, path: Path) -> bool:
    meant = _meant(schema, path)
    unknown = schema.takes(path) is None
    return (meant is not None and meant.kind is SecretStr) or (unknown and bool(_SUSPICIOUS.search(str(path[-1]))))


def _meant(schema: SchemaInfo, path: Path) -> Takes | None:
    """What the key takes, or the one whose name is like it."""
    like = nearest(str(path[-1]), schema.beside(path))
    return schema.takes(path) or (schema.takes((*path[:-1], like)) if like else None)


@dataclass(frozen=True, slots=True)
class Masking:
    """Makes problems fit to be shown: with the lines of the file that hold one entry of a key that cannot be secret."""

    lines: list[str]
    paths: dict[int, Path]
    schema: SchemaInfo

    def shown(self, problem: Problem) -> Problem:
        lines = [(place.line, text) for place in (*problem.also, problem.place) if (text := self._line(place))]
        complete = lines and lines[-1][0] == problem.place.line
        return replace(problem, excerpt=tuple(lines) if complete else (), at=self._path(problem.at))

    def _path(self, path: Path) -> Path:
        """Without what slipped to where a key belongs."""
        slipped = {
            end
            for end, part in enumerate(path)
            if not re.fullmatch(r"\d+|[A-Za-z_.]*", str(part)) and _meant(self.schema, path[: end + 1]) is None
        }
        return tuple(MASK if end in slipped else part for end, part in enumerate(path))

    def _line(self, place: SourcePlace) -> str | None:
        path = self.paths.get(place.line) if place.source == YAML else None
        meant = _meant(self.schema, path) if path else None
        if path is None or meant is None or looks_secret(self.schema, path):
            return None
        text = self.lines[place.line - 1]
        entry = _ENTRY.fullmatch(text)
        if entry is None or entry["key"] != path[-1] or (self.schema.is_section(path) and entry["value"]):
            return None
        return text if len(text) <= _WIDTH and text.isprintable() and not _SHAPES.search(text) else None
