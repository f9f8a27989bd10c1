"""Looks up what a key takes in the JSON schema, the one that editors use: its type, limits and words, whether it is secret."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from gateway.config.model import Config
from gateway.config.problems import Path

KeySchema = Mapping[str, Any]


def takes(root: type[Config], path: Path) -> KeySchema | None:
    """What may be written for a key of the whole configuration `root`; None for a key that does not exist."""
    whole = _json_schema(root)
    found: KeySchema | None = whole
    for part in path:
        found = _below(found, part)
        while found and ("$ref" in found or "anyOf" in found):  # a section, or a type beside null
            name = found.get("$ref", "").rpartition("/")[2]
            found = whole["$defs"][name] if name else next(one for one in found["anyOf"] if one.get("type") != "null")
        if found is None:
            return None
    return found


def beside(root: type[Config], path: Path) -> tuple[str, ...]:
    """The keys of the section that `path` is in."""
    return tuple((takes(root, path[:-1]) or {}).get("properties", ()))


def is_secret(taken: KeySchema) -> bool:
    return taken.get("format") == "password"


def holds_plain_values(taken: KeySchema) -> bool:
    """Whether the value is no secret, and neither a section nor a list of what could hold one."""
    value = taken.get("items", taken)
    return value.get("type") in {"string", "integer", "number", "boolean"} and not is_secret(value)


@cache
def _json_schema(root: type[Config]) -> KeySchema:
    """Costs 10 ms, so it is asked for only when there is something to explain."""
    return root.model_json_schema()


def _below(around: KeySchema, part: str | int) -> KeySchema | None:
    if not around:  # it takes anything, at any depth
        return around
    if isinstance(part, int):
        return around.get("items")
    # A mapping of free names has patterns where the names are checked, else one schema for all.
    free_names = [*around.get("patternProperties", {}).values(), around.get("additionalProperties")]
    found = around.get("properties", {}).get(part) or free_names[0]
    return {} if found is True else found or None  # true: anything
