"""The usual blocks that hold no others: paragraphs, headings, fences, tables. What is doubtful in them is said so."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from adapters.text.blocks import Fence, Table

SPECIAL = r"""(?:
    \#{1,6}(?:[ \t]|$)
  | >
  | `{3} | ~{3}
  | (?:[-+*]|[0-9]{1,9}[.)])(?:[ \t]|$)
  | [-:|][-:|\t ]*+$
  | =++[ \t]*+$
  | (?:[*_][ \t]*+)++$
)"""
"""How a line begins that may be more than text, whatever stands before it."""

_CLOSING = re.compile(r"^(?P<indent> *+)(?P<ticks>`{3,}+|~{3,}+)[ \t]*+\n", re.MULTILINE)
_ALIGNMENT = re.compile(r" *:?-+:? *")
_CELLS_AT_MOST = 10_000  # the parser adds so many that are missing, or a few more


class DoubtfulError(Exception):
    """The parser has to say what it is."""


class Prose(NamedTuple):
    """A paragraph, or a heading where the fields have a level."""

    text: str
    fields: dict[str, Any]


def prose(text: str, fields: dict[str, Any]) -> Prose:
    trimmed = text.strip(" \t\n")
    if trimmed != text.strip() or (trimmed[0] == "[" and "]:" in trimmed):  # odd blanks; a definition of a link
        raise DoubtfulError
    return Prose(trimmed, fields)


def fence(opening: re.Match[str], indent: int, inner: int, fields: dict[str, Any]) -> tuple[Fence, int]:
    """A fence with that indent, in an item of a list whose content begins at `inner`; and where it ends."""
    begin = opening.end("fence")
    for closing in _CLOSING.finditer(opening.string, begin):
        spaces = len(closing["indent"])
        if closing["ticks"].startswith(opening["ticks"]) and inner <= spaces < inner + 4:
            code = opening.string[begin : closing.start()]
            if indent:
                code = "\n".join(_without(line, indent, inner) for line in code.split("\n"))
            language = "".join(opening["info"].split(maxsplit=1)[:1])
            return Fence(code=code.removesuffix("\n"), language=language, **fields), closing.end()
    raise DoubtfulError


def _without(line: str, indent: int, inner: int) -> str:
    words = line.lstrip(" ")
    spaces = len(line) - len(words)
    if spaces < indent and words and (spaces < inner or words[0] == "\t"):
        raise DoubtfulError
    return line[min(indent, spaces) :]


def table(lines: Sequence[str], quote: int) -> Table:
    header, alignment, *rows = map(_cells, lines)
    width = len(header)
    if len(alignment) != width or not all(map(_ALIGNMENT.fullmatch, alignment)) or width * len(rows) > _CELLS_AT_MOST:
        raise DoubtfulError
    return Table(header=header, rows=tuple((*row[:width], *[""] * (width - len(row))) for row in rows), quote=quote)


def _cells(line: str) -> tuple[str, ...]:
    cells = line.rstrip(" \t").split("|")[1:]
    if cells[-1] == "":
        del cells[-1]
    trimmed = tuple(cell.strip(" \t") for cell in cells)
    if any(cell != cell.strip() for cell in trimmed):
        raise DoubtfulError
    return trimmed
