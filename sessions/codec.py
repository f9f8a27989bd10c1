"""Stored JSON: one way to write a value of ours, one to read it. What is as by default is not stored; keys that nobody knows are ignored.

pydantic does it, as it is in memory anyway where something runs. It is imported when the first such value is met: commands that list
sessions or jobs meet none.
"""

import json
from functools import lru_cache
from typing import Any, TypeVar, cast

T = TypeVar("T")


@lru_cache
def _adapter(shape: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(shape)


def plain(shape: Any, value: Any) -> Any:
    """Returns the value as dicts, lists and words."""
    return _adapter(shape).dump_python(value, exclude_defaults=True, warnings=False)


def shaped(shape: type[T], stored: Any) -> T:
    """Returns the value that `plain` was given. Raises ValueError for what cannot be one."""
    return cast(T, _adapter(shape).validate_python(stored))


def dump(value: Any) -> str:
    # As it was always written: rows are found by the beginning of this text, and half a surrogate pair is replaced by the column.
    return json.dumps(value, ensure_ascii=False)
