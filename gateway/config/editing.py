"""Changes keys of `config.yaml`, keeps its comments and quotes, and puts secrets into `.env`."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import ndiff
from pathlib import Path
from typing import Any, cast

from gateway.config.model import Config
from gateway.config.problems import BadConfig, KeyPath, Problem, SourcePlace, parse_path, unknown_key
from gateway.config.reading import file_of, leaves, model_of, read
from gateway.config.sources import DOTENV, REFERENCE, YAML, Sources, dotenv_bindings
from gateway.config.validation import beside, from_text, is_secret, takes
from gateway.config.yaml_nodes import Document, read_yaml
from gateway.home import write_private

# What YAML 1.1 takes for a switch, a number or a time of day.
_OLD_YAML = re.compile(r"(?i)y|n|yes|no|on|off|[-+]?\d[\d:]*(\.\d*)?")
_NOT_IN_YAML = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def with_value(text: str, path: KeyPath, value: Any) -> str | None:
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


def _differs_only_there(text: str, old: Document, path: KeyPath, value: Any) -> bool:
    try:
        new = read_yaml(text)
    except BadConfig:
        return False
    others = [
        {at: one for at, one in leaves(document.data) if at[: len(path)] != path[: len(at)]} for document in (new, old)
    ]
    return not new.problems and new.value(path) == value and others[0] == others[1]


def _attempts(text: str, document: Document, path: KeyPath, value: Any, *, quoted: bool) -> Iterator[str]:
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


def _replaced(text: str, document: Document, path: KeyPath, written: str) -> str:
    """A value below its key comes to stand beside it."""
    start, end = document.places[path].span
    end = start + len(text[start:end].rstrip())  # the line breaks below a block of text stay
    key = document.places[path].key
    colon = text.index(":", key.span[1]) + 1 if key else start
    if start == colon or (text[colon:start].isspace() and "\n" in text[colon:start]):
        start, written = colon, f" {written}"
    return text[:start] + written + text[end:]


def _inserted(text: str, document: Document, section: KeyPath, rest: KeyPath, written: str) -> Iterator[str]:
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


_HEAD = "# yaml-language-server: $schema=./config.schema.json\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What to write. `lines` are the new lines of the YAML with their numbers; `variables`: what secrets are called in `.env`."""

    sources: Sources = field(repr=False)
    lines: tuple[tuple[int, str], ...]
    variables: tuple[str, ...]

    def write(self, home: Path) -> None:
        """The secrets first: a YAML that names a variable nobody has set would be refused. Raises OSError."""
        if self.variables:
            write_private(home / DOTENV, self.sources.dotenv)
        if self.lines or not (home / YAML).exists():
            write_private(home / YAML, self.sources.yaml)


def edit(sources: Sources, values: Mapping[str, str], *, check: bool = True) -> Edit:
    """Each key set to its value. Raises BadConfig if there is no such key, or, with `check`, if the result of all could not be used."""
    changed, variables = sources, list[str]()
    for key, value in values.items():
        changed, variable = _with_key(changed, parse_path(key) or ("",), value)
        variables += [variable] if variable else []
    if check:
        read(changed)
    after = [line for line in ndiff(sources.yaml.splitlines(), changed.yaml.splitlines()) if line[0] in " +"]
    lines = tuple((number, line[2:]) for number, line in enumerate(after, 1) if line[0] == "+")
    return Edit(sources=changed, lines=lines, variables=tuple(variables))


def _with_key(sources: Sources, path: KeyPath, value: str) -> tuple[Sources, str | None]:
    """The sources with this value, and the variable that it was put into, if it is a secret."""
    document = file_of(sources)
    if document.problems:  # it has two truths for one key, or the like
        read(sources)
    root = model_of(document, sources.settings(), also=map(str, path[1:2]))
    wanted = takes(root, path)
    if wanted is None or "properties" in wanted:
        raise BadConfig([_no_such_key(path, root)])
    variable, dotenv = None, sources.dotenv
    if is_secret(wanted) and value and not REFERENCE.fullmatch(value):
        variable = _variable(document, path)
        # The `.env` with this variable and no older one of its name.
        # In single quotes, so that spaces, # and $ mean nothing.
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        others = "".join(
            binding.original.string for binding in dotenv_bindings(sources.dotenv) if binding.key != variable
        )
        ending = "\n" if others and not others.endswith("\n") else ""
        dotenv = f"{others}{ending}{variable}='{quoted}'\n"
    yaml = with_value(sources.yaml or _HEAD, path, f"${{{variable}}}" if variable else from_text(value, wanted))
    if yaml is None:
        said, hint = "there is nothing of that kind to change", "write it into the file by hand"
        raise BadConfig([Problem(place=SourcePlace(source=YAML), at=path, said=said, hint=hint)])
    return replace(sources, yaml=yaml, dotenv=dotenv), variable


def _no_such_key(path: KeyPath, root: type[Config]) -> Problem:
    place = SourcePlace(source="config set")
    known = [takes(root, path[:end]) is not None for end in range(1, len(path) + 1)]
    if all(known):
        hint = f"name a key below it: {', '.join(beside(root, (*path, '')))}"
        return Problem(place=place, at=path, said="is a section", hint=hint)
    wrong = path[: known.index(False) + 1]
    return unknown_key(place, wrong, beside(root, wrong) or beside(root, wrong[:-1]))


def _variable(document: Document, path: KeyPath) -> str:
    """The one that the file names already, else one after the key: TELEGRAM_TOKEN, MODEL_API_KEY, API_KEYS_0_KEY."""
    written = document.value(path)
    if isinstance(written, str) and (match := REFERENCE.fullmatch(written)):
        return match[1]
    words = [str(part) for part in path if part != "platforms"]
    return re.sub(r"\W", "_", "_".join(words)).upper()


_PACKAGED = Path(__file__).parents[1] / "config.example.yaml"
_CHECKED_OUT = Path(__file__).parents[2] / "config.example.yaml"


def example() -> str:
    """The documented example, from the installed package or from the checkout."""
    return (_PACKAGED if _PACKAGED.exists() else _CHECKED_OUT).read_text("utf-8")


def schema() -> str:
    """The JSON schema that editors use. Every text may also be a reference such as ${NAME}."""
    return json.dumps(Config.model_json_schema(), indent=2, ensure_ascii=False) + "\n"
