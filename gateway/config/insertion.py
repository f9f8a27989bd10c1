"""Moves a new key to its place: below the comment that shows it, else behind the last key of its section.

A YAML library writes it behind the comments of the section, which is below the heading of the next one.
"""

import re
from itertools import takewhile

from gateway.config.problems import Path
from gateway.config.yaml_nodes import NotYaml, read_yaml


def in_place(text: str, path: Path, *, known: int) -> str:
    """The text with the new lines of this key moved. `known`: how many parts of the path were there before."""
    if known == len(path):
        return text
    keys = read_yaml(text).keys
    key, above = keys.get(path[: known + 1]), keys.get(path[:known])
    if key is None or (known and above is None):
        return text
    lines = text.splitlines(keepends=True)
    start, count = key.line - 1, len(path) - known
    section = above.line if above is not None and known else 0
    block, rest = lines[start : start + count], lines[:start] + lines[start + count :]
    if start < section or not block[0].startswith(" " * (key.column - 1) + str(path[known])):
        return text  # on the line of its section, in braces
    at = _place(rest, section, key.column - 1, str(path[known]))
    if at and not rest[at - 1].endswith("\n"):
        rest[at - 1] += "\n"
    moved = "".join([*rest[:at], *block, *rest[at:]])
    return moved if _says_the_same(moved, text) else text


def _place(lines: list[str], section: int, indent: int, name: str) -> int:
    """The index in `lines` for a key of this indent in the section that begins there."""
    inside = list(takewhile(lambda line: _is_blank(line) or _indent(line) >= indent, lines[section:]))
    shown = re.compile(rf" {{{indent}}}# ?{re.escape(name)}:(\s|$)")
    for number, line in enumerate(inside, 1):
        if shown.match(line):
            more = takewhile(lambda below: re.match(rf" {{{indent}}}#  ", below), inside[number:])
            return section + number + len(list(more))
    return section + max((number for number, line in enumerate(inside, 1) if not _is_blank(line)), default=0)


def _is_blank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _says_the_same(moved: str, text: str) -> bool:
    """What looks like a comment may be a line of a long text."""
    try:
        return read_yaml(moved).data == read_yaml(text, "").data
    except NotYaml:
        return False
