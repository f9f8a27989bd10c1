"""Writes one value into the text of a YAML file. Every other character stays as it is: comments, quotes, order and spaces.

What was written is read again, and an attempt that says anything else than was meant is not used.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from gateway.config.changes import leaves
from gateway.config.problems import BadConfig, Path
from gateway.config.yaml_nodes import Document, read_yaml

# What YAML 1.1 takes for a switch, a number or a time of day.
_OLD_YAML = re.compile(r"(?i)y|n|yes|no|on|off|[-+]?\d[\d:]*(\.\d*)?")
_NOT_IN_YAML = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def with_value(text: str, path: Path, value: Any) -> str | None:
    """The text with this value; a new key stands below the comment that shows it, else behind the last key of its section.

    Texts get quotes where YAML, or an older reader of it, would take them for something else. None: there is no place
    for the value, or none that leaves everything else as it is. Raises BadConfig.
    """
    text = text if text.endswith("\n") else f"{text}\n"
    document = read_yaml(text)
    found = document.value(path)
    if type(found) is type(value) and found == value:
        return text
    attempts = (one for quoted in (False, True) for one in _attempts(text, document, path, value, quoted=quoted))
    return next((attempt for attempt in attempts if _differs_only_there(attempt, document, path, value)), None)


def _differs_only_there(text: str, old: Document, path: Path, value: Any) -> bool:
    try:
        new = read_yaml(text)
    except BadConfig:
        return False
    others = [
        {at: one for at, one in leaves(document.data) if at[: len(path)] != path[: len(at)]} for document in (new, old)
    ]
    return not new.problems and new.value(path) == value and others[0] == others[1]


def _attempts(text: str, document: Document, path: Path, value: Any, *, quoted: bool) -> Iterator[str]:
    known = document.written(path)
    if known == path:
        yield _replaced(text, document, path, _as_yaml(value, quoted=quoted))
        known = path[:-1]  # what << brings in gets a key of its own
    entry: Any = value
    for part in reversed(path[len(known) :]):
        entry = {part: entry}
    written, (start, end) = _as_yaml(entry, quoted=quoted), document.places[known].span
    if text[start : start + 1] == "{":
        # A mapping in braces gets no line of its own.
        comma = ", " if document.value(known) else ""
        yield text[: end - 1].rstrip(" ,\n") + comma + written[1:-1] + text[end - 1 :]
        return
    yield from _inserted(text, document, known, path[len(known) :], _as_yaml(value, quoted=quoted))
    if document.value(known) is None:
        yield _replaced(text, document, known, written)


def _replaced(text: str, document: Document, path: Path, written: str) -> str:
    """A value below its key comes to stand beside it."""
    start, end = document.places[path].span
    end = start + len(text[start:end].rstrip())  # the line breaks below a block of text stay
    key = document.places[path].key
    colon = text.index(":", key.span[1]) + 1 if key else start
    if start == colon or (text[colon:start].isspace() and "\n" in text[colon:start]):
        start, written = colon, f" {written}"
    return text[:start] + written + text[end:]


def _inserted(text: str, document: Document, section: Path, rest: Path, written: str) -> Iterator[str]:
    """The text with new lines for the keys of `rest`: behind a comment that shows the first of them, or at the end of the section."""
    key, (start, end) = document.places[section].key, document.places[section].span
    below = [place.key for at, place in document.places.items() if at[:-1] == section]
    siblings = [one for one in below if one and one.span[0] >= start]
    indent = siblings[0].column - 1 if siblings else key.column + 1 if key else 0
    shown = re.compile(rf"^( *)# ?{re.escape(str(rest[0]))}:(?:\s.*)?\n(?:\1#   .*\n)*", re.MULTILINE)
    # A comment may be that of another section: then the key comes out elsewhere, and the attempt is not used.
    places = [(comment.end(), comment[1]) for comment in shown.finditer(text)]
    for at, margin in (*places, (text.index("\n", max(end, 1) - 1) + 1, " " * indent)):
        lines = "\n".join(f"{margin}{'  ' * depth}{part}:" for depth, part in enumerate(rest))
        yield f"{text[:at]}{lines} {written}\n{text[at:]}"


def _as_yaml(value: Any, *, quoted: bool) -> str:
    """The value on one line."""
    if isinstance(value, dict):
        entries = [f"{key}: {_as_yaml(one, quoted=quoted)}" for key, one in cast(dict[str, Any], value).items()]
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_as_yaml(one, quoted=quoted) for one in cast(list[Any], value))}]"
    if isinstance(value, str) and not quoted and not _OLD_YAML.fullmatch(value):
        return value
    # JSON is YAML, but for some characters that YAML wants escaped.
    return _NOT_IN_YAML.sub(lambda char: f"\\u{ord(char[0]):04x}", json.dumps(value, ensure_ascii=False))
