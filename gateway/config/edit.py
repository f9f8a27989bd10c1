"""Changes one key of `config.yaml`, keeps its comments and quotes, and puts secrets into `.env`."""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path as File
from typing import Any, cast

import ruamel.yaml
from pydantic import SecretStr
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from gateway.config.files import write_private
from gateway.config.insertion import in_place
from gateway.config.load import read, schema_of
from gateway.config.problems import BadConfig, Path, Problem, SourcePlace, dotted, nearest, parse_path
from gateway.config.schema_info import SchemaInfo, Takes, from_text
from gateway.config.sources import DOTENV, REFERENCE, YAML, Sources, dotenv_bindings
from gateway.config.yaml_nodes import Document, NotYaml, read_yaml

_OLD_YAML = re.compile(r"(?i)y|n|yes|no|on|off|[-+]?\d[\d:]*(\.\d*)?")
_HEAD = "# yaml-language-server: $schema=./config.schema.json\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What to write. `lines` are the new lines of the YAML with their numbers; `variable`: what a secret is called in `.env`."""

    yaml: str = field(repr=False)
    dotenv: str = field(repr=False)
    lines: tuple[tuple[int, str], ...]
    variable: str | None = None

    def write(self, home: File) -> None:
        """The secret first: a YAML that names a variable nobody has set would be refused. Raises OSError."""
        if self.variable is not None:
            write_private(home / DOTENV, self.dotenv)
        if self.lines or not (home / YAML).exists():
            write_private(home / YAML, self.yaml)


def edit_all(sources: Sources, values: Mapping[str, str]) -> list[Edit]:
    """Each key set to its value; only the result of all has to be usable. Raises BadConfig."""
    made: list[Edit] = []
    for number, (key, value) in enumerate(values.items(), 1):
        made.append(edit(sources, key, value, check=number == len(values)))
        sources = replace(sources, yaml=made[-1].yaml, dotenv=made[-1].dotenv)
    return made


def edit(sources: Sources, key: str, value: str, *, check: bool = True) -> Edit:
    """`key` set to `value`. Raises BadConfig if there is no such key, or, with `check`, if the result could not be used."""
    path = parse_path(key)
    document = _readable(sources)
    schema = schema_of(document, sources, also=map(str, path[1:2]))
    wanted = schema.takes(path)
    if not path or wanted is None or wanted.section is not None:
        raise BadConfig([_no_such_key(key, path, wanted, schema)])
    variable, dotenv = None, sources.dotenv
    if wanted.kind is SecretStr and value and not REFERENCE.fullmatch(value):
        variable = _variable(document, path)
        dotenv = _with_variable(sources.dotenv, variable, value)
    yaml = _with_value(sources.yaml, document, path, f"${{{variable}}}" if variable else from_text(value, wanted))
    if check:
        read(replace(sources, yaml=yaml, dotenv=dotenv))
    return Edit(yaml=yaml, dotenv=dotenv, lines=_new_lines(sources.yaml, yaml), variable=variable)


def _readable(sources: Sources) -> Document:
    """A file with two truths for one key, or that is no YAML, cannot be edited; the list says what is wrong."""
    if sources.problems:
        raise BadConfig(sources.problems)
    try:
        document = read_yaml(sources.yaml, YAML)
    except NotYaml as error:
        raise BadConfig([error.problem]) from None
    if document.problems or not isinstance(document.data, dict):
        read(sources)
    return document


def _no_such_key(key: str, path: Path, wanted: Takes | None, schema: SchemaInfo) -> Problem:
    if path and wanted is not None:
        hint = f"name a key below it: {', '.join(schema.beside((*path, '')))}"
        return Problem(place=SourcePlace(source="config set"), path=key, said="is a section", hint=hint)
    known = next((keys for end in range(len(path), -1, -1) if (keys := schema.beside(path[:end]))), ())
    wrong = next((str(part) for end, part in enumerate(path, 1) if schema.takes(path[:end]) is None), key)
    suggestion = nearest(wrong, known)
    hint = "" if suggestion else f"allowed: {', '.join(known)}"
    return Problem(
        place=SourcePlace(source="config set"), path=key, said="unknown key", hint=hint, suggestion=suggestion
    )


def _variable(document: Document, path: Path) -> str:
    """The one that the file names already, else one after the key: TELEGRAM_TOKEN, MODEL_API_KEY, API_KEYS_0_KEY."""
    written = document.value(path)
    if isinstance(written, str) and (match := REFERENCE.fullmatch(written)):
        return match[1]
    words = [str(part) for part in path if part != "platforms"]
    return re.sub(r"\W", "_", "_".join(words)).upper()


def _with_variable(dotenv: str, name: str, value: str) -> str:
    """The `.env` with this variable and no older one of its name."""
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    others = "".join(binding.original.string for binding in dotenv_bindings(dotenv) if binding.key != name)
    ending = "\n" if others and not others.endswith("\n") else ""
    return f"{others}{ending}{name}='{quoted}'\n"


def _with_value(text: str, document: Document, path: Path, value: Any) -> str:
    yaml = ruamel.yaml.YAML()
    yaml.preserve_quotes = True
    yaml.width = 100_000
    if re.search(r"^( *)[\w\"']+:[^\n]*\n(?: *(?:#[^\n]*)?\n)*\1  +- ", text, re.MULTILINE):
        yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        root: Any = yaml.load(text)  # pyright: ignore[reportUnknownMemberType]
    except ruamel.yaml.YAMLError:
        hint = "`hermes config check` says what is wrong; mend that first"
        raise _not_possible((), "cannot be edited as it is", hint) from None
    new_file = root is None
    root = CommentedMap() if new_file else root
    _put(root, path, _quoted(value))
    out = io.StringIO()
    yaml.dump(root, out)  # pyright: ignore[reportUnknownMemberType]
    if new_file:
        return (text or _HEAD) + out.getvalue()
    known = next((end for end in range(len(path)) if path[: end + 1] not in document.places), len(path))
    return in_place(out.getvalue(), path, known=known)


def _put(root: Any, path: Path, value: Any) -> None:
    around = root
    for end, part in enumerate(path):
        if not _has_room(around, part):
            hint = "write it into the file by hand"
            raise _not_possible(path[: end + 1], "there is nothing of that kind to change", hint)
        if end == len(path) - 1:
            around[part] = value
            return
        if isinstance(part, str) and around.get(part) is None:
            around[part] = CommentedMap()
        around = around[part]


def _has_room(around: Any, part: str | int) -> bool:
    if isinstance(part, int):
        return isinstance(around, list) and part < len(cast(list[Any], around))
    return isinstance(around, dict)


def _not_possible(path: Path, said: str, hint: str) -> BadConfig:
    return BadConfig([Problem(place=SourcePlace(source=YAML), path=dotted(path), said=said, hint=hint)])


def _quoted(value: Any) -> Any:
    """Texts that YAML would read as something else, and ids in lists, get quotes."""
    if isinstance(value, list):
        items: Any = CommentedSeq([_quoted(item) for item in cast(list[Any], value)])
        items.fa.set_flow_style()
        return items
    return DoubleQuotedScalarString(value) if isinstance(value, str) and _needs_quotes(value) else value


def _needs_quotes(text: str) -> bool:
    """The reader decides; and what older readers of YAML take for a switch or a time is quoted, too."""
    try:
        found = read_yaml(f"key: {text}")
    except NotYaml:
        return True
    return bool(found.problems) or found.data != {"key": text} or _OLD_YAML.fullmatch(text) is not None


def _new_lines(old: str, new: str) -> tuple[tuple[int, str], ...]:
    before, after = old.splitlines(), new.splitlines()
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return tuple(
        (number + 1, after[number])
        for tag, _, _, start, end in blocks
        if tag != "equal"
        for number in range(start, end)
    )
