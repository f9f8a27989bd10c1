"""Lays the variables over the file, and resolves every `${NAME}`."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gateway.config.problems import Path, Problem, dotted, nearest
from gateway.config.schema_info import SchemaInfo, from_text
from gateway.config.sources import DOTENV, REFERENCE, Setting, without_references
from gateway.config.yaml_nodes import Document

_BROKEN = re.compile(r"(?<!\$)\$\{(?![A-Za-z_][A-Za-z0-9_.-]*\})[^}\s]{0,40}\}?")
_UNSET = object()


def lay_over(document: Document, found: list[Setting], schema: SchemaInfo) -> Document:
    """The document with the values and the places of variables; those that mean no section are problems of it."""
    if not found:
        return document
    from gateway.config.variables import nested  # its library takes 60 ms, and most homes set no key by a variable

    # .env comes first in `found`, so a variable of the environment replaces its place too.
    places = {setting.path: setting.place for setting in found}
    return replace(
        document,
        data=_merged(document.data, nested(found, schema)),
        places=document.places | places,
        keys=document.keys | places,
        problems=[*document.problems, *(_unknown(one, schema) for one in found if one.path[0] not in schema.names)],
    )


def _unknown(setting: Setting, schema: SchemaInfo) -> Problem:
    suggestion = nearest(setting.path[0], schema.names)
    hint = "" if suggestion else f"allowed: {', '.join(schema.names)}"
    return Problem(place=setting.place, path=dotted(setting.path), said="unknown key", hint=hint, suggestion=suggestion)


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return cast(Any, below if above is None else above)
    low, high = cast(dict[str, Any], below), cast(dict[str, Any], above)
    return low | {name: _merged(low.get(name), one) for name, one in high.items()}


@dataclass(slots=True)
class References:
    """Replaces `${NAME}` by what `find` returns for it. Without `find`, what holds a reference is left out.

    `lost` are those that lead nowhere. They are left out as well.
    """

    document: Document
    schema: SchemaInfo
    find: Callable[[str], str | None] | None = None
    lost: list[tuple[Path, Problem]] = field(default_factory=list[tuple[Path, Problem]])

    def resolved(self, value: Any, path: Path = ()) -> Any:
        """The data as it is validated."""
        match value:
            case dict():
                entries = {name: self.resolved(one, (*path, name)) for name, one in cast(dict[str, Any], value).items()}
                return {name: one for name, one in entries.items() if one is not _UNSET}
            case list():
                items = [self.resolved(one, (*path, at)) for at, one in enumerate(cast(list[Any], value))]
                return [one for one in items if one is not _UNSET]
            case str() if "${" in value:
                return self._replaced(value, path)
            case str():
                wanted = self.schema.takes(path)
                return from_text(value, wanted) if wanted and wanted.kind is bool else value  # yes, no, on, off
            case None if (wanted := self.schema.takes(path)) and (wanted.section or wanted.element):
                return [] if wanted.kind is list else {}  # a section whose keys are all commented out
            case _:
                return value

    def _replaced(self, text: str, path: Path) -> Any:
        if self.find is None:
            return _UNSET
        missing = next((name for name in REFERENCE.findall(text) if not self.find(name)), None)
        if missing is not None:
            said = "is set nowhere" if self.find(missing) is None else "is set, but empty"
            self._lose(
                path, f"${{{missing}}} {said}", f"put {missing}=... into {DOTENV} in the home, or take this key out"
            )
            return _UNSET
        if broken := _BROKEN.search(text):
            self._lose(path, f"{broken[0]} is no reference", "write ${NAME}; $${ is a plain ${")
        return from_text(without_references(text, self.find), self.schema.takes(path))

    def _lose(self, path: Path, said: str, hint: str) -> None:
        problem = Problem(place=self.document.place(path), path=dotted(path), said=said, hint=hint)
        self.lost.append((path, problem))
