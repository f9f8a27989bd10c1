"""Decides what of the file may be shown with a problem: nothing of a key that is, or could be, secret."""

import re
from dataclasses import replace

from gateway.config.model import Config
from gateway.config.problems import MASK, Problem
from gateway.config.schema_info import holds_plain_values, takes
from gateway.config.sources import YAML
from gateway.config.yaml_nodes import Document
from gateway.observe.redaction import redact

_WIDTH = 160
# An unknown key of such a name holds a secret, also where a harmless key is the most like it.
_SUSPICIOUS = re.compile(r"token|secret|key|passw|credential", re.IGNORECASE)
# A text whose quote is never closed may have taken in the key below it.
_NAMED = re.compile(r"\w*(?:token|secret|key|passw)\w*[\"']?\s*[:=]", re.IGNORECASE)
# One entry and nothing in which another could hide: no comment, no braces, no text that goes on below.
_ENTRY = re.compile(r"\s*(?:- )?(?P<key>[A-Za-z_]+):\s+(?P<value>[^\s#{}\[\]&*|>][^#{}]*|\[[^#{}]*\])?\s*")


def without_secrets(text: str) -> str:
    """The text without what has the shape of a token; nothing of it, if something in it is named like one."""
    return MASK if _NAMED.search(text) else redact(text)


def with_excerpt(problem: Problem, document: Document, lines: list[str], root: type[Config]) -> Problem:
    """The problem with its line of the file, and without what slipped to where a key belongs."""
    at = list(problem.at)
    for end, part in enumerate(problem.at, 1):
        is_meant = end == len(at) and problem.suggestion is not None
        if not (is_meant or re.fullmatch(r"\d+|[A-Za-z_.]*", str(part)) or takes(root, problem.at[:end])):
            at[end - 1] = MASK
    return replace(problem, at=tuple(at), excerpt=_line_of(problem, document, lines, root))


def _line_of(problem: Problem, document: Document, lines: list[str], root: type[Config]) -> str:
    """Empty unless the line holds one entry of a key that cannot be secret; a misspelt one counts as the one that is meant."""
    place = problem.place
    path = next((at for at, one in document.places.items() if one.key and one.key.line == place.line), None)
    if place.source != YAML or path is None:
        return ""
    text = lines[place.line - 1]
    entry = _ENTRY.fullmatch(text)
    fits = len(text) <= _WIDTH and text.isprintable() and redact(text) == text
    if entry is None or entry["key"] != path[-1] or not fits:
        return ""
    meant = takes(root, path)
    if meant is None and not _SUSPICIOUS.search(str(path[-1])):
        meant = takes(root, (*path[:-1], problem.suggestion or ""))
    return text if meant is not None and (not entry["value"] or holds_plain_values(meant)) else ""
