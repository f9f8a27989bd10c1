"""Flattens a configuration to a list of keys, and lists the keys in which two differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from pydantic import SecretStr

from adapters.section import Section
from gateway.config.model import Config
from gateway.config.problems import MASK, Path, dotted
from gateway.observe.redaction import redact


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A key whose value is another one now. None: the key was not there. Secrets are masked on both sides."""

    path: str
    old: Any
    new: Any


def diff(old: Config, new: Config) -> list[Change]:
    """What changed, in the order of the sections."""
    before, after = dict(leaves(old)), dict(leaves(new))
    paths = dict.fromkeys([*before, *after])
    return [
        Change(path=dotted(path), old=shown(before.get(path)), new=shown(after.get(path)))
        for path in paths
        if before.get(path) != after.get(path)
    ]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every key that holds a value; sections of a list are entered, lists of words are values."""
    match value:
        case Section():
            for name in type(value).model_fields:
                yield from leaves(getattr(value, name), (*path, name))
        case dict():
            for name, one in cast(dict[str, Any], value).items():
                yield from leaves(one, (*path, name))
        case [Section() | {}, *_]:
            for index, one in enumerate(cast(list[Any], value)):
                yield from leaves(one, (*path, index))
        case _:
            yield path, value


def shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [shown(one) for one in cast(list[Any], value)]
    return value
