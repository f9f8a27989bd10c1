"""What the models say about a key: what it takes, whether it is secret, and which keys are beside it."""

import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from adapters.section import Section
from gateway.config.problems import Path
from gateway.config.yaml_nodes import NotYaml, read_yaml

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


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
        return _unwrapped(arguments[-1]) if self.is_list or self.is_mapping else None

    @property
    def is_list(self) -> bool:
        return typing.get_origin(self.kind) is list

    @property
    def is_mapping(self) -> bool:
        return typing.get_origin(self.kind) is dict

    @property
    def words(self) -> tuple[str, ...]:
        """The closed set of words, if it is one."""
        if typing.get_origin(self.kind) is Literal:
            return typing.get_args(self.kind)
        return next((limit.words() for limit in self.limits if isinstance(limit, OneOf)), ())


@dataclass(frozen=True, slots=True)
class OneOf:
    """In `Annotated[str, OneOf(…)]`: the words that may stand there, which other packages may have added to."""

    words: Callable[[], tuple[str, ...]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "enum": list(self.words())}

    def _check(self, word: str) -> str:
        if word not in self.words():
            raise PydanticCustomError("literal_error", "none of the known words")
        return word


def _unwrapped(annotation: Any, limits: tuple[Any, ...] = ()) -> Takes:
    if hasattr(annotation, "__metadata__"):
        return _unwrapped(annotation.__origin__, (*limits, *annotation.__metadata__))
    if typing.get_origin(annotation) in {Union, types.UnionType}:
        return _unwrapped(next(one for one in typing.get_args(annotation) if one is not type(None)), limits)
    return Takes(kind=annotation, limits=limits)


def of_field(field: FieldInfo) -> Takes:
    return _unwrapped(field.annotation, tuple(field.metadata))


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """Answers for one model of the whole configuration."""

    root: type[Section]

    @property
    def names(self) -> tuple[str, ...]:
        """The sections."""
        return tuple(self.root.model_fields)

    def takes(self, path: Path) -> Takes | None:
        """None for a key that does not exist."""
        found: Takes | None = Takes(kind=self.root)
        for part in path:
            if found is None:
                return None
            if found.section is not None:
                field = found.section.model_fields.get(str(part))
                found = of_field(field) if field else None
            else:
                found = found.element if found.is_list is isinstance(part, int) else None
        return found

    def beside(self, path: Path) -> tuple[str, ...]:
        """The keys of the section that `path` is in."""
        around = self.takes(path[:-1])
        return tuple(around.section.model_fields) if around and around.section else ()

    def is_section(self, path: Path) -> bool:
        found = self.takes(path)
        return found is not None and found.section is not None

    def fields(self, path: Path = (), section: type[Section] | None = None) -> Iterator[tuple[Path, str]]:
        """Every key with its documentation; `*` stands for a free name, 0 for each element of a list."""
        for name, field in (section or self.root).model_fields.items():
            found = of_field(field)
            yield (*path, name), field.description or ""
            inner, at = found, (*path, name)
            if found.element is not None:
                inner, at = found.element, (*path, name, 0 if found.is_list else "*")
            if inner.section is not None:
                yield from self.fields(at, inner.section)


def from_text(text: str, wanted: Takes | None) -> Any:
    """What a text of the environment means for a key. What does not fit stays text, for the validation to find."""
    if wanted is None or wanted.secret or wanted.words or wanted.kind is str:
        return text
    if wanted.kind is bool:
        return _SWITCHES.get(text.strip().lower(), text)
    if wanted.kind in {int, float}:
        try:
            return wanted.kind(text)
        except ValueError:
            return text
    if wanted.is_list and not text.lstrip().startswith("["):
        return [from_text(part.strip(), wanted.element) for part in text.split(",") if part.strip()]
    try:
        return read_yaml(text, "").data
    except NotYaml:
        return text
