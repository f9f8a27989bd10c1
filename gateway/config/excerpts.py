"""Lines of the file as they may be shown: what is secret, or looks like it, is replaced by ****."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from gateway.config.keys import fields, is_section, known_beside, takes
from gateway.config.marks import Node, scalars, walk
from gateway.config.problems import Excerpt, Path, Place, Problem, dotted, nearest, parse_path
from gateway.config.sources import REFERENCE, YAML

MASK = "****"
_WIDTH = 160
_SUSPICIOUS = re.compile(r"token|secret|key|passw|credential", re.IGNORECASE)
_ASSIGNED = re.compile(r"\w*(?:token|secret|key|passw)\w*[\"']?\s*[:=]", re.IGNORECASE)
_SHAPES = re.compile(r"\d{6,}:[\w-]{30,}|\b(?:sk|xox[a-z]|xapp|ghp)-[\w-]{10,}|\bEAA\w{20,}|(?<=://)[^/\s]+(?=@)")
_WORD = re.compile(r"[^\s{}\[\],:\"'#]{6,}")
_COMMENT = re.compile(r"\s*[,}\]]*\s+#\s*(?P<text>\S.*)")


def looks_secret(path: Path) -> bool:
    """Whether the value of this key must not be shown; a misspelled or misplaced key counts by its name."""
    return any(_one_looks_secret(path[:end]) for end in range(1, len(path) + 1))


def _one_looks_secret(path: Path) -> bool:
    found = takes(path)
    if found is not None:
        return found.secret
    name = str(path[-1])
    meant = nearest(name, known_beside(path))
    around = takes((*path[:-1], meant)) if meant else None
    return bool(_SUSPICIOUS.search(name)) or (around is not None and around.secret)


def without_secrets(text: str) -> str:
    """The text without what has the shape of a token; all of it, if something in it is named like one."""
    return MASK if _ASSIGNED.search(text) else without_tokens(text)


def without_tokens(text: str) -> str:
    """The text without tokens and without names and passwords in addresses."""
    return _SHAPES.sub(MASK, text)


def _no_name(path: Path) -> bool:
    """Whether an unknown key may be a secret that slipped to where a key belongs."""
    name = str(path[-1])
    return takes(path) is None and not re.fullmatch(r"[A-Za-z_]+", name) and not nearest(name, known_beside(path))


def _shown_path(text: str) -> str:
    path = parse_path(text)
    parts = (MASK if isinstance(part, str) and _no_name(path[: end + 1]) else part for end, part in enumerate(path))
    return dotted(tuple(parts))


@cache
def _harmless() -> frozenset[str]:
    """The words of the schema."""
    paths = [path for path, _ in fields()]
    words = {word for path in paths if (found := takes(path)) for word in found.words}
    return frozenset(words | {str(path[-1]) for path in paths})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """What to mask; lines and columns from 1."""

    start: tuple[int, int]
    end: tuple[int, int]


class Masked:
    """A file whose lines can be shown."""

    def __init__(self, text: str, root: Node | None) -> None:
        self._lines = text.splitlines()
        self._spans = [*_values(root), *_names(root), *self._comments(root)] if root is not None else None

    @classmethod
    def of_text(cls, text: str) -> "Masked":
        """Of a file that could not be read as YAML: every word that is not of the schema is masked."""
        return cls(text, None)

    def shown(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The problems with the lines that they are about."""
        return tuple(
            replace(problem, excerpts=self._excerpts(problem), path=_shown_path(problem.path)) for problem in problems
        )

    def _comments(self, root: Node) -> Iterator[_Span]:
        """Behind a secret there may be the old one."""
        for path, node in scalars(root):
            line, column = node.end
            rest = self._lines[line - 1][column - 1 :] if looks_secret(path) and 0 < line <= len(self._lines) else ""
            if match := _COMMENT.match(rest):
                yield _Span(start=(line, column + match.start("text")), end=(line, column + match.end("text")))

    def _excerpts(self, problem: Problem) -> tuple[Excerpt, ...]:
        return tuple(excerpt for place in (*problem.also, problem.place) if (excerpt := self._excerpt(place)))

    def _excerpt(self, place: Place) -> Excerpt | None:
        if place.source != YAML or not 0 < place.line <= len(self._lines):
            return None
        text, caret = self._masked(place.line, max(place.column, 1) - 1)
        text = "".join(char if char.isprintable() else " " for char in text)
        cut = max(0, caret - _WIDTH // 2) if len(text) > _WIDTH else 0
        head, tail = "… " if cut else "", " …" if cut + _WIDTH < len(text) else ""
        shown = text[cut : cut + _WIDTH]
        return Excerpt(line=place.line, text=f"{head}{shown}{tail}", caret=caret - cut + len(head))

    def _masked(self, number: int, caret: int) -> tuple[str, int]:
        text = self._lines[number - 1]
        spans = _unknown_words(text, number) if self._spans is None else self._spans
        for span in sorted(spans, key=lambda span: span.start, reverse=True):
            if not span.start[0] <= number <= span.end[0]:
                continue
            start = span.start[1] - 1 if number == span.start[0] else len(text) - len(text.lstrip())
            end = span.end[1] - 1 if number == span.end[0] else len(text)
            if end > start:
                text = text[:start] + MASK + text[end:]
                caret = (
                    caret + len(MASK) - (end - start) if caret >= end else min(caret, start) if caret > start else caret
                )
        text = without_tokens(text)
        return text, min(caret, len(text))


def _values(root: Node) -> Iterator[_Span]:
    for path, node in scalars(root):
        raw = node.raw or ""
        hidden = looks_secret(path) or _ASSIGNED.search(raw) or _misplaced(path, node)
        if hidden and not REFERENCE.fullmatch(raw):
            yield _Span(start=(node.place.line, node.place.column), end=node.end)


def _misplaced(path: Path, node: Node) -> bool:
    """A text where no text belongs, or below a key that nobody knows: it may have slipped there."""
    return isinstance(node.data, str) and (is_section(path) or (takes(path) is None and len(node.data) > 5))


def _names(root: Node) -> Iterator[_Span]:
    """Keys below a secret, and unknown ones that look like no key."""
    for path, entry in walk(root):
        if _no_name(path) or (len(path) > 1 and looks_secret(path[:-1])):
            yield _Span(start=(entry.key.line, entry.key.column), end=entry.key_end)


def _unknown_words(text: str, number: int) -> list[_Span]:
    words = ((match.start(), match.end()) for match in _WORD.finditer(text) if not nearest(match[0], _harmless()))
    return [_Span(start=(number, start + 1), end=(number, end + 1)) for start, end in words]
