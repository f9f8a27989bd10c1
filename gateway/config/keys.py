"""What the models say about a key: what it takes, whether it is secret, and which keys are beside it."""

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union

from pydantic import SecretStr

from gateway.config.marks import Node, NotYaml, read_yaml
from gateway.config.model import Config
from gateway.config.problems import Path
from gateway.config.section import Section

_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What may be written for a key: `kind` is the type without its wrappers, and the limits that were around it."""

    kind: Any
    limits: tuple[Any, ...] = ()

    @property
    def section(self) -> type[Section] | None:
        return self.kind if isinstance(self.kind, type) and issubclass(self.kind, Section) else None

    @property
    def secret(self) -> bool:
        return self.kind is SecretStr

    @property
    def element(self) -> "Takes | None":
        """What a list or a mapping of free names holds."""
        arguments = typing.get_args(self.kind)
        return unwrapped(arguments[-1]) if self.is_list or self.is_mapping else None

    @property
    def is_list(self) -> bool:
        return typing.get_origin(self.kind) is list

    @property
    def is_mapping(self) -> bool:
        return typing.get_origin(self.kind) is dict

    @property
    def words(self) -> tuple[str, ...]:
        """The closed set of words, if it is one."""
        return typing.get_args(self.kind) if typing.get_origin(self.kind) is Literal else ()


def unwrapped(annotation: Any, limits: tuple[Any, ...] = ()) -> Takes:
    if hasattr(annotation, "__metadata__"):
        return unwrapped(annotation.__origin__, (*limits, *annotation.__metadata__))
    if typing.get_origin(annotation) in {Union, types.UnionType}:
        return unwrapped(next(one for one in typing.get_args(annotation) if one is not type(None)), limits)
    return Takes(kind=annotation, limits=limits)


def takes(path: Path) -> Takes | None:
    """None for a key that does not exist."""
    found: Takes | None = Takes(kind=Config)
    for part in path:
        if found is None:
            return None
        if found.section is not None:
            field = found.section.model_fields.get(str(part))
            found = unwrapped(field.annotation, tuple(field.metadata)) if field else None
        else:
            found = found.element if found.is_list is isinstance(part, int) else None
    return found


def known_beside(path: Path) -> tuple[str, ...]:
    """The keys of the section that `path` is in."""
    around = takes(path[:-1])
    return tuple(around.section.model_fields) if around and around.section else ()


def is_section(path: Path) -> bool:
    found = takes(path)
    return found is not None and found.section is not None


def fields(section: type[Section] = Config, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every key with its documentation; `*` stands for a free name, 0 for each element of a list."""
    for name, field in section.model_fields.items():
        found = unwrapped(field.annotation)
        yield (*path, name), field.description or ""
        inner, at = found, (*path, name)
        if found.element is not None:
            inner, at = found.element, (*path, name, 0 if found.is_list else "*")
        if inner.section is not None:
            yield from fields(inner.section, at)


def from_text(text: str, wanted: Takes | None) -> Any:
    """What a text means for a key: values of the environment have no types. What does not fit stays text, for the check to find."""
    if wanted is None or wanted.secret or wanted.words or wanted.kind is str:
        return text
    if wanted.kind is bool:
        return _WORDS.get(text.strip().lower(), text)
    if wanted.kind in {int, float}:
        return _number(text, wanted.kind)
    if wanted.is_list and not text.lstrip().startswith("["):
        return [from_text(part.strip(), wanted.element) for part in text.split(",") if part.strip()]
    return _structure(text)


def _number(text: str, wanted: type) -> Any:
    try:
        return wanted(text)
    except ValueError:
        return text


def _structure(text: str) -> Any:
    try:
        return plain(read_yaml(text, "").root)
    except NotYaml:
        return text


def plain(node: Node) -> Any:
    """The data without its marks."""
    match node.data:
        case dict() as entries:
            return {key: plain(entry.value) for key, entry in entries.items()}
        case list() as items:
            return [plain(item) for item in items]
        case scalar:
            return scalar
