"""Changes keys of `config.yaml`, keeps its comments and quotes, and puts secrets into `.env`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import ndiff
from pathlib import Path as File

from gateway.config.load import file_of, model_of, read
from gateway.config.model import Config
from gateway.config.problems import BadConfig, Path, Problem, SourcePlace, parse_path, unknown_key
from gateway.config.schema_info import beside, is_secret, takes
from gateway.config.sources import DOTENV, REFERENCE, YAML, Sources, dotenv_bindings
from gateway.config.validation import from_text
from gateway.config.yaml_nodes import Document
from gateway.config.yaml_text import with_value
from gateway.home import write_private

_HEAD = "# yaml-language-server: $schema=./config.schema.json\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What to write. `lines` are the new lines of the YAML with their numbers; `variables`: what secrets are called in `.env`."""

    sources: Sources = field(repr=False)
    lines: tuple[tuple[int, str], ...]
    variables: tuple[str, ...]

    def write(self, home: File) -> None:
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


def _with_key(sources: Sources, path: Path, value: str) -> tuple[Sources, str | None]:
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
        dotenv = _with_variable(sources.dotenv, variable, value)
    yaml = with_value(sources.yaml or _HEAD, path, f"${{{variable}}}" if variable else from_text(value, wanted))
    if yaml is None:
        said, hint = "there is nothing of that kind to change", "write it into the file by hand"
        raise BadConfig([Problem(place=SourcePlace(source=YAML), at=path, said=said, hint=hint)])
    return replace(sources, yaml=yaml, dotenv=dotenv), variable


def _no_such_key(path: Path, root: type[Config]) -> Problem:
    place = SourcePlace(source="config set")
    known = [takes(root, path[:end]) is not None for end in range(1, len(path) + 1)]
    if all(known):
        hint = f"name a key below it: {', '.join(beside(root, (*path, '')))}"
        return Problem(place=place, at=path, said="is a section", hint=hint)
    wrong = path[: known.index(False) + 1]
    return unknown_key(place, wrong, beside(root, wrong) or beside(root, wrong[:-1]))


def _variable(document: Document, path: Path) -> str:
    """The one that the file names already, else one after the key: TELEGRAM_TOKEN, MODEL_API_KEY, API_KEYS_0_KEY."""
    written = document.value(path)
    if isinstance(written, str) and (match := REFERENCE.fullmatch(written)):
        return match[1]
    words = [str(part) for part in path if part != "platforms"]
    return re.sub(r"\W", "_", "_".join(words)).upper()


def _with_variable(dotenv: str, name: str, value: str) -> str:
    """The `.env` with this variable and no older one of its name."""
    # In single quotes, so that spaces, # and $ mean nothing.
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    others = "".join(binding.original.string for binding in dotenv_bindings(dotenv) if binding.key != name)
    ending = "\n" if others and not others.endswith("\n") else ""
    return f"{others}{ending}{name}='{quoted}'\n"
