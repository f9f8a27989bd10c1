"""Reads a platform's JSON without trusting its shape."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

Json = Mapping[str, Any]


def as_object(value: Any) -> Json:
    """Returns the value if it is an object, else an empty one."""
    return cast(Json, value) if isinstance(value, Mapping) else {}


def part(parent: Any, key: str) -> Json:
    """Returns the object at this key, or an empty one."""
    return as_object(as_object(parent).get(key))


def parts(parent: Any, key: str) -> list[Json]:
    """Returns the objects in the list at this key; other values are left out."""
    found = as_object(parent).get(key)
    items = cast(Sequence[Any], found) if isinstance(found, list) else ()
    return [cast(Json, one) for one in items if isinstance(one, Mapping)]


def text(parent: Any, key: str) -> str:
    """Returns the text or number at this key as text; empty where there is none."""
    found = as_object(parent).get(key)
    return str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""
