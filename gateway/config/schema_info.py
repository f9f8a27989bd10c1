"""Reads from the models what a key takes, whether it is secret, and which keys are beside it."""

import types
import typing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union

from pydantic import SecretStr

from adapters.section import Section
from gateway.config.problems import BadConfig, Path
from gateway.config.yaml_nodes import read_yaml

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What may be written for a key. `kind`: list, dict, a section, SecretStr or a plain type. `element`: what a list, or a
    mapping of free names, holds. `words`: the closed set of them, if it is one. `limits`: `ge` and `le` of a number."""

    kind: Any
    element: "Takes | None" = None
    words: tuple[str, ...] = ()
    limits: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def section(self) -> type[Section] | None:
        return self.kind if isinstance(self.kind, type) and issubclass(self.kind, Section) else None


def takes(annotation: Any, *around: Any) -> Takes:
    """What a key of this type takes. `around`: the limits that were taken off it already."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return takes(arguments[0], *around, *arguments[1:])
    if origin in {Union, types.UnionType}:
        return takes(next(one for one in arguments if one is not type(None)), *around)
    if origin is Literal:
        return Takes(kind=str, words=arguments)
    if origin in {list, dict}:
        return Takes(kind=origin, element=takes(arguments[-1]))
    parts = [part for limit in around for part in (limit, *getattr(limit, "metadata", ()))]
    limits = {name: getattr(part, name) for part in parts for name in ("ge", "le") if hasattr(part, name)}
    return Takes(kind=annotation, limits=limits)


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
                key = found.section.model_fields.get(str(part))
                found = takes(key.annotation, *key.metadata) if key else None
            else:
                found = found.element if (found.kind is list) is isinstance(part, int) else None
        return found

    def beside(self, path: Path) -> tuple[str, ...]:
        """The keys of the section that `path` is in."""
        around = self.takes(path[:-1])
        return tuple(around.section.model_fields) if around and around.section else ()

    def is_section(self, path: Path) -> bool:
        found = self.takes(path)
        return found is not None and found.section is not None


def from_text(text: str, wanted: Takes | None) -> Any:
    """What a text of the environment means for a key. What does not fit stays text, for the validation to find."""
    if wanted is None or wanted.kind in {str, SecretStr}:
        return text
    if wanted.kind is bool:
        return _SWITCHES.get(text.strip().lower(), text)
    if wanted.kind is list and not text.lstrip().startswith("["):
        return [from_text(part.strip(), wanted.element) for part in text.split(",") if part.strip()]
    try:
        return wanted.kind(text) if wanted.kind in {int, float} else read_yaml(text).data
    except (ValueError, BadConfig):
        return text
