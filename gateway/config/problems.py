"""Describes problems of a configuration: where each is, what to write instead, and for a misspelt key the nearest known key."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from operator import attrgetter

KeyPath = tuple[str | int, ...]
"""The parts of a key: `("api", "keys", 0, "name")` is `api.keys[0].name`."""

MASK = "****"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlace:
    """Where something is written. Lines and columns count from 1; line 0: the source as a whole.

    `span`: its characters, from 0. `key`: where the key of a value is written, if it has one.
    """

    source: str
    line: int = 0
    column: int = 0
    span: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)
    key: "SourcePlace | None" = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return ":".join([self.source, *(str(number) for number in (self.line, self.column) if number)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`at`: the key. `said`: what is wrong, in words that follow the key's path. `hint`: what to write. Neither holds a secret.

    `excerpt`: the line of the file, where it may be shown.
    """

    place: SourcePlace
    at: KeyPath = ()
    said: str
    hint: str
    suggestion: str | None = None
    excerpt: str = ""

    @property
    def path(self) -> str:
        return dotted(self.at)

    @property
    def headline(self) -> str:
        """In one line, without the hint."""
        return f"{self.place}  {self.path}: {self.said}" if self.path else f"{self.place}  {self.said}"

    @property
    def remedy(self) -> str:
        if self.suggestion is None:
            return self.hint
        return f"{self.hint} (did you mean {self.suggestion}?)" if self.hint else f"did you mean {self.suggestion}?"


class BadConfig(Exception):
    """The configuration cannot be used. `problems` is never empty, and in the order of places; `warnings` would not have stopped it."""

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        super().__init__(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the configuration")
        order = attrgetter("place.source", "place.line", "place.column")
        self.problems = tuple(sorted(problems, key=order))
        self.warnings = tuple(warnings)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word that is most like this one; None: none is like it."""
    by_folded = {name.casefold(): name for name in known}
    found = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def unknown_key(place: SourcePlace, at: KeyPath, known: Sequence[str]) -> Problem:
    """The last part of the path is no key; `known` are those that could be meant."""
    suggestion = nearest(str(at[-1]), known)
    hint = "" if suggestion else f"allowed: {', '.join(known)}"
    return Problem(place=place, at=at, said="unknown key", hint=hint, suggestion=suggestion)


def dotted(path: KeyPath) -> str:
    """`("api", "keys", 0, "name")` as people write it: `api.keys[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def parse_path(text: str) -> KeyPath:
    """The opposite of `dotted`."""
    return tuple(int(part[1:-1]) if part.startswith("[") else part for part in re.findall(r"\[\d+\]|[^.\[\]]+", text))
