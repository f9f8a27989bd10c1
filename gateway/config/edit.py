"""Changes one key of `config.yaml`, keeps its comments and quotes, and puts secrets into `.env`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import ndiff
from pathlib import Path as File

from pydantic import SecretStr

from gateway.config.files import write_private
from gateway.config.load import file_of, read, schema_of
from gateway.config.problems import BadConfig, Path, Problem, SourcePlace, parse_path, unknown_key
from gateway.config.schema_info import SchemaInfo, Takes, from_text
from gateway.config.sources import DOTENV, REFERENCE, YAML, Sources, dotenv_bindings
from gateway.config.yaml_nodes import Document
from gateway.config.yaml_text import with_value

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
    document = file_of(sources)
    if document.problems:  # it has two truths for one key, or the like
        read(sources)
    schema = schema_of(document, sources.settings(), also=map(str, path[1:2]))
    wanted = schema.takes(path)
    if not path or wanted is None or wanted.section is not None:
        raise BadConfig([_no_such_key(path, wanted, schema)])
    variable, dotenv = None, sources.dotenv
    if wanted.kind is SecretStr and value and not REFERENCE.fullmatch(value):
        variable = _variable(document, path)
        dotenv = _with_variable(sources.dotenv, variable, value)
    yaml = with_value(sources.yaml or _HEAD, path, f"${{{variable}}}" if variable else from_text(value, wanted))
    if yaml is None:
        said, hint = "there is nothing of that kind to change", "write it into the file by hand"
        raise BadConfig([Problem(place=SourcePlace(source=YAML), at=path, said=said, hint=hint)])
    if check:
        read(replace(sources, yaml=yaml, dotenv=dotenv))
    return Edit(yaml=yaml, dotenv=dotenv, lines=_new_lines(sources.yaml, yaml), variable=variable)


def _no_such_key(path: Path, wanted: Takes | None, schema: SchemaInfo) -> Problem:
    place = SourcePlace(source="config set")
    if path and wanted is not None:
        hint = f"name a key below it: {', '.join(schema.beside((*path, '')))}"
        return Problem(place=place, at=path, said="is a section", hint=hint)
    known = next((keys for end in range(len(path), -1, -1) if (keys := schema.beside(path[:end]))), ())
    wrong = next((str(part) for end, part in enumerate(path, 1) if schema.takes(path[:end]) is None), "")
    return unknown_key(place, path, wrong, known)


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


def _new_lines(old: str, new: str) -> tuple[tuple[int, str], ...]:
    after = [line for line in ndiff(old.splitlines(), new.splitlines()) if line[0] in " +"]
    return tuple((number, line[2:]) for number, line in enumerate(after, 1) if line[0] == "+")
