"""Lays the variables such as HERMES_API__PORT over the file, and replaces every `${NAME}`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from gateway.config.model import Config
from gateway.config.sources import DOTENV, PREFIX, REFERENCE, Setting, without_references
from gateway.config.yaml_nodes import Document

_BROKEN = re.compile(r"(?<!\$)\$\{(?![A-Za-z_][A-Za-z0-9_.-]*\})[^}\s]{0,40}\}?")


class UntypedText(str):
    """What a variable holds, or a value with a reference: its key says whether it means a number, a switch or a list."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BadReference:
    """Stands for a text with a bad reference. It is of no type that a key can have, so the validation finds it.

    `is_broken`: it is written wrongly; else it leads nowhere.
    """

    said: str
    hint: str
    is_broken: bool = False


def resolve_references(value: Any, find: Callable[[str], str | None]) -> Any:
    """The data with each `${NAME}` replaced by what `find` returns for it."""
    match value:
        case dict():
            return {name: resolve_references(one, find) for name, one in cast(dict[str, Any], value).items()}
        case list():
            return [resolve_references(one, find) for one in cast(list[Any], value)]
        case str() if "${" in value:
            return _replaced(value, find)
        case _:
            return value


def _replaced(text: str, find: Callable[[str], str | None]) -> UntypedText | BadReference:
    for name in REFERENCE.findall(text):
        if not (found := find(name)):
            said = f"${{{name}}} {'is set nowhere' if found is None else 'is set, but empty'}"
            return BadReference(said, f"put {name}=... into {DOTENV} in the home, or take this key out")
    if broken := _BROKEN.search(text):
        return BadReference(f"{broken[0]} is no reference", "write ${NAME}; $${ is a plain ${", is_broken=True)
    return UntypedText(without_references(text, find))


def lay_over(file: Document, found: Sequence[Setting], root: type[Config]) -> Document:
    """The file with the variables over it."""
    found = [setting for setting in found if len(setting.path) > 1]
    if not found:
        return file
    # It takes 60 ms, and most homes set no key by a variable.
    from pydantic_settings import EnvSettingsSource, SettingsConfigDict

    source = EnvSettingsSource(cast(Any, root), env_prefix=PREFIX, env_nested_delimiter="__")
    # Values stay texts, because a list may be written with commas, and any value as a reference.
    source.config = SettingsConfigDict(enable_decoding=False)
    source.env_vars = {setting.name.lower(): UntypedText(setting.value) for setting in found}
    places = {setting.path: setting.place for setting in found}
    around = {path[:end] for path in places for end in range(1, len(path)) if path[:end] in file.places}
    over = {*places, *(path for path in around if not isinstance(file.value(path), dict))}  # a section replaces a value
    below = {at: place for at, place in file.places.items() if not any(at[: len(path)] == path for path in over)}
    # A section that no file has is where its first variable is.
    sections = {one.path[:end]: one.place for one in reversed(found) for end in range(1, len(one.path))}
    # The library leaves out what is no section, and nobody would hear of it.
    named: dict[str, Any] = {one.path[0]: {} for one in found}
    return replace(file, data=_merged(file.data, named | source()), places=sections | below | places)


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    low, high = cast(dict[str, Any], below), cast(dict[str, Any], above)
    return low | {name: _merged(low.get(name), one) for name, one in high.items()}
