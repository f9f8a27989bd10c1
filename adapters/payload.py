"""Reads a platform's JSON without trusting its shape."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

Json = Mapping[str, Any]


def as_object(value: Any) -> Json:
    """The value, or an empty object where it is none."""
    return cast(Json, value) if isinstance(value, Mapping) else {}


def part(parent: Any, key: str) -> Json:
    """The object at this key, or an empty one."""
    return as_object(as_object(parent).get(key))


def parts(parent: Any, key: str) -> list[Json]:
    """The objects in the list at this key; what is no object is left out."""
    found = as_object(parent).get(key)
    items = cast(Sequence[Any], found) if isinstance(found, list) else ()
    return [cast(Json, one) for one in items if isinstance(one, Mapping)]


def text(parent: Any, key: str) -> str:
    """The text or number at this key as text; empty where there is none."""
    found = as_object(parent).get(key)
    return str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""
