"""Flattens a configuration to a list of keys, and lists the keys in which two differ."""

from collections.abc import Iterable, Iterator
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


def secrets(config: Config) -> list[str]:
    """Returns every value of a secret key, found by its type."""
    return [value.get_secret_value() for _, value in leaves(config) if isinstance(value, SecretStr)]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every key that holds a value; sections of a list are entered, lists of words are values."""
    inside: Iterable[tuple[Any, Any]]
    match value:
        case Section():
            inside = value
        case dict():
            inside = cast(dict[str, Any], value).items()
        case [Section() | {}, *_]:  # else one value, such as a list of words
            inside = enumerate(cast(list[Any], value))
        case _:
            yield path, value
            return
    for part, one in inside:
        yield from leaves(one, (*path, part))


def shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [shown(one) for one in cast(list[Any], value)]
    return value
