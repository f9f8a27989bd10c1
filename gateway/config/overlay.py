"""The environment laid over `.env`, and both over `config.yaml`; with every `${NAME}` resolved.

pydantic-settings reads the variables. The data that comes out is plain; where a value was written is looked up afterwards, by its path.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from gateway.config.model import Config
from gateway.config.problems import Path, Problem, SourcePlace, dotted, nearest
from gateway.config.schema_info import SchemaInfo, from_text, of_field
from gateway.config.sources import DOTENV, REFERENCE, Setting, Sources, lookup, settings
from gateway.config.yaml_nodes import Document

_BROKEN = re.compile(r"(?<!\$)\$\{(?![A-Za-z_][A-Za-z0-9_.-]*\})[^}\s]{0,40}\}?")
_UNSET = object()


class _Variables(EnvSettingsSource):
    """The variables that are handed in, instead of those of the process."""

    def __init__(self, model: type[Config], found: list[Setting]) -> None:
        self._found = {setting.name.lower(): setting.value for setting in found}
        super().__init__(model)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._found

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002
        """Lists may be written with commas, and anything as YAML; the library wants JSON."""
        return from_text(str(value), of_field(field))


@dataclass(slots=True)
class Overlay:
    """`data` is what is validated; `problems` are references that lead nowhere, and variables that mean no section."""

    document: Document
    places: dict[Path, SourcePlace]
    data: Any = None
    problems: list[Problem] = field(default_factory=list[Problem])

    def place(self, path: Path) -> SourcePlace:
        """Where the value at `path` was written, or what is around it."""
        return next(place for end in range(len(path), -1, -1) if (place := self._exactly(path[:end])))

    def key_place(self, path: Path) -> SourcePlace:
        """The same for the key."""
        end = next(end for end in range(len(path), -1, -1) if self._exactly(path[:end]))
        return self.places.get(path[:end]) or self.document.keys.get(path[:end]) or self.place(path)

    def has(self, path: Path) -> bool:
        return self._exactly(path) is not None

    def _exactly(self, path: Path) -> SourcePlace | None:
        return self.places.get(path) or self.document.places.get(path)


def lay_over(sources: Sources, document: Document, schema: SchemaInfo) -> Overlay:
    """The file with the variables over it."""
    found = settings(sources)
    overlay = Overlay(document, {setting.path: setting.place for setting in found})
    overlay.problems += [_unknown_section(setting, schema) for setting in found if setting.path[0] not in schema.names]
    variables = _Variables(cast(type[Config], schema.root), found)()
    references = _References(sources, overlay, schema)
    overlay.data = references.resolved(_merged(document.data, _typed(variables, (), schema)))
    return overlay


def only_the_file(document: Document, schema: SchemaInfo) -> Overlay:
    """What the file says by itself. References are left out: only their values could be wrong."""
    overlay = Overlay(document, {})
    overlay.data = _References(None, overlay, schema).resolved(document.data)
    return overlay


def _unknown_section(setting: Setting, schema: SchemaInfo) -> Problem:
    suggestion = nearest(setting.path[0], schema.names)
    hint = "" if suggestion else f"allowed: {', '.join(schema.names)}"
    return Problem(place=setting.place, path=dotted(setting.path), said="unknown key", hint=hint, suggestion=suggestion)


def _typed(value: Any, path: Path, schema: SchemaInfo) -> Any:
    """Texts of variables as their keys want them."""
    if isinstance(value, dict):
        return {name: _typed(one, (*path, name), schema) for name, one in cast(dict[str, Any], value).items()}
    return from_text(value, schema.takes(path)) if isinstance(value, str) else value


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return cast(Any, below if above is None else above)
    low, high = cast(dict[str, Any], below), cast(dict[str, Any], above)
    return {
        name: _merged(low.get(name), high.get(name)) for name in (*low, *(name for name in high if name not in low))
    }


class _References:
    """Replaces `${NAME}`. Without sources, every text that holds one is left out."""

    def __init__(self, sources: Sources | None, overlay: Overlay, schema: SchemaInfo) -> None:
        self._sources = sources
        self._variables = sources.variables() if sources else {}
        self._overlay = overlay
        self._schema = schema
        self._data: Any = None

    def resolved(self, data: Any) -> Any:
        self._data = data
        return self._resolve(data, ())

    def _resolve(self, value: Any, path: Path) -> Any:
        match value:
            case dict():
                entries = {name: self._resolve(one, (*path, name)) for name, one in cast(dict[str, Any], value).items()}
                return {name: one for name, one in entries.items() if one is not _UNSET}
            case list():
                items = [self._resolve(one, (*path, at)) for at, one in enumerate(cast(list[Any], value))]
                return [one for one in items if one is not _UNSET]
            case str():
                return self._text(value, path)
            case None if (wanted := self._schema.takes(path)) and (
                wanted.section or wanted.is_mapping or wanted.is_list
            ):
                return [] if wanted.is_list else {}  # a section whose keys are all commented out
            case _:
                return value

    def _text(self, text: str, path: Path) -> Any:
        wanted = self._schema.takes(path)
        if "${" not in text:
            return from_text(text, wanted) if wanted and wanted.kind is bool else text  # yes, no, on, off
        if self._sources is None:
            return _UNSET
        used = self._in_use(path)
        for name in REFERENCE.findall(text):
            if not lookup(self._sources, self._variables, name):
                if used:
                    self._unset(path, name)
                return _UNSET
        if used and (broken := _BROKEN.search(text)):
            self._problem(path, f"{broken[0]} is no reference", "write ${NAME}; $${ is a plain ${")
        return from_text(self._replaced(text), wanted)

    def _replaced(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            return (self._sources and lookup(self._sources, self._variables, match[1])) or ""

        return REFERENCE.sub(value, text).replace("$${", "${")

    def _unset(self, path: Path, name: str) -> None:
        empty = self._sources is not None and lookup(self._sources, self._variables, name) is not None
        said = f"${{{name}}} is set, but empty" if empty else f"${{{name}}} is set nowhere"
        self._problem(path, said, f"put {name}=... into {DOTENV} in the home, or take this key out")

    def _problem(self, path: Path, said: str, hint: str) -> None:
        self._overlay.problems.append(Problem(place=self._overlay.place(path), path=dotted(path), said=said, hint=hint))

    def _in_use(self, path: Path) -> bool:
        """Whether the section of this key is switched on. What is off may point to what is not there."""
        match path:
            case ("platforms", name, *_):
                enabled = self._at("platforms", name, "enabled")
                text = self._replaced(enabled) if isinstance(enabled, str) else enabled
                return from_text(str(text), self._schema.takes(("memory", "enabled"))) is True
            case ("model", *_):
                return bool(self._at("model", "name"))
            case ("voice", *_):
                return bool(self._at("voice", "base_url"))
            case _:
                return True

    def _at(self, *path: str | int) -> Any:
        found = self._data
        for part in path:
            found = cast(dict[Any, Any], found).get(part) if isinstance(found, dict) else None
        return found
