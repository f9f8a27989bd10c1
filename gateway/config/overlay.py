"""Makes a layer of the variables, which lies over the file, and resolves every `${NAME}` of both."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gateway.config.problems import Path, Problem, SourcePlace, unknown_key
from gateway.config.schema_info import SchemaInfo, from_text
from gateway.config.sources import DOTENV, REFERENCE, Setting, without_references
from gateway.config.yaml_nodes import Document

_BROKEN = re.compile(r"(?<!\$)\$\{(?![A-Za-z_][A-Za-z0-9_.-]*\})[^}\s]{0,40}\}?")
_UNSET = object()


@dataclass(frozen=True, slots=True)
class References:
    """Replaces `${NAME}` by what `find` returns for it. `lost`: those that lead nowhere; the values that hold them are left out."""

    find: Callable[[str], str | None]
    schema: SchemaInfo
    lost: list[Problem] = field(default_factory=list[Problem])

    def resolved(self, value: Any, document: Document, path: Path = ()) -> Any:
        """The data of the file as it is validated."""
        match value:
            case dict():
                items = cast(dict[str, Any], value).items()
                entries = {name: self.resolved(one, document, (*path, name)) for name, one in items}
                return {name: one for name, one in entries.items() if one is not _UNSET}
            case list():
                found = [self.resolved(one, document, (*path, at)) for at, one in enumerate(cast(list[Any], value))]
                return [one for one in found if one is not _UNSET]
            case str() if "${" in value:
                text = self.replaced(value, document, path)
                return _UNSET if text is None else from_text(text, self.schema.takes(path))
            case str():
                wanted = self.schema.takes(path)
                return from_text(value, wanted) if wanted and wanted.kind is bool else value  # yes, no, on, off
            case None if (wanted := self.schema.takes(path)) and (wanted.section or wanted.element):
                return [] if wanted.kind is list else {}  # a section whose keys are all commented out
            case _:
                return value

    def replaced(self, text: str, document: Document, path: Path) -> str | None:
        """None where something is lost."""
        missing = next((name for name in REFERENCE.findall(text) if not self.find(name)), None)
        if missing is not None:
            said = f"${{{missing}}} {'is set nowhere' if self.find(missing) is None else 'is set, but empty'}"
            hint = f"put {missing}=... into {DOTENV} in the home, or take this key out"
            self.lost.append(document.problem(path, said, hint))
            return None
        if broken := _BROKEN.search(text):
            hint = "write ${NAME}; $${ is a plain ${"
            self.lost.append(document.problem(path, f"{broken[0]} is no reference", hint))
        return without_references(text, self.find)


def layer_of(found: Sequence[Setting], schema: SchemaInfo, references: References) -> Document:
    """Sections with keys, each value as its key wants it. Variables that mean no section are problems of it."""
    found = [setting for setting in found if len(setting.path) > 1]
    places: dict[Path, SourcePlace] = {setting.path: setting.place for setting in found}
    layer = Document(data={}, places=places, keys=places, problems=[])
    if not found:
        return layer
    from gateway.config.variables import Variables  # its library takes 60 ms, and most homes set no key by a variable

    texts = {setting.name: references.replaced(setting.value, layer, setting.path) for setting in found}
    data = Variables(schema.root, {name: text for name, text in texts.items() if text is not None})()
    unknown = [one for one in found if one.path[0] not in schema.names]
    problems = [unknown_key(one.place, one.path, one.path[0], schema.names) for one in unknown]
    return replace(layer, data=data, problems=problems)


def lay_over(below: Document, above: Document) -> Document:
    return Document(
        data=_merged(below.data, above.data),
        places=below.places | above.places,
        keys=below.keys | above.keys,
        problems=[*below.problems, *above.problems],
    )


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    low, high = cast(dict[str, Any], below), cast(dict[str, Any], above)
    return low | {name: _merged(low.get(name), one) for name, one in high.items()}
